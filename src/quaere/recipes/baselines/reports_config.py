"""Everything that can be set about reports under a fixed judge, by GRPO or by DPO, and the presets.

They have SCORE's values for writing, so that they differ from it by their judge and their update alone.

    judge=model                           the model the run began with judges, by a rubric that never changes
    fixed_rubric="factuality, depth 0.3"  by this one, and writers are told; else by the first of the pool
    dpo_beta=0.5                          report-dpo: how far it may move from where it began
    shuffle_advantages=true               a control that must not learn
"""

from __future__ import annotations

from typing import Literal

from quaere.chat.dimensions import POOL
from quaere.errors import BadInput
from quaere.setting_types import PositiveFloat
from quaere.training.learner import LearnerSettings
from quaere.training.report_run import (
    DEMO,
    SINGLE_GPU,
    ResearchConfig,
    WriterConfig,
    check_research,
    check_research_run,
)

Judge = Literal["checks", "model"]


class ReportGrpoConfig(ResearchConfig, frozen=True, forbid_unknown_fields=True):
    """A whole run under a fixed judge.

        ReportGrpoConfig(model="warm", index="demo/index", questions="open.jsonl", judge="model")

    Attributes:
        judge: checks counts citations, words and length (`rewards/reports.py`); model is the one the run began
            with, by a rubric that never changes. [Quaere]
    """

    judge: Judge = "checks"


class ReportDpoConfig(ReportGrpoConfig, frozen=True, forbid_unknown_fields=True):
    """A whole run: of the reports on a question, the best and the worst are a pair.

        ReportDpoConfig(model="warm", index="demo/index", questions="open.jsonl", dpo_beta=0.1)

    Attributes:
        dpo_beta: How far the policy may move from the model the run began with: a greater value holds it
            closer. [DPO]
    """

    dpo_beta: PositiveFloat = 0.1
    solver: WriterConfig = WriterConfig(
        minibatch=0,  # what a pair is worth is worked out once a step
        learner=LearnerSettings(
            learning_rate=1e-6,
            warmup_ratio=0.05,
            loss="policy_gradient",
            aggregation="token_sum",
            keep_reference=True,
        ),
    )


# What each preset changes, in both.
PRESETS: dict[str, dict[str, object]] = {
    # The paper keeps no turn for the report or the assessment.
    "paper": {
        "engine.max_rows": 256,
        "solver.limits.answer_turn": False,
        "evaluator.limits.answer_turn": False,
    },
    "single-gpu": SINGLE_GPU,
    "demo": DEMO,
}


def check_grpo(config: ReportGrpoConfig, recipe: str = "report-grpo") -> None:
    """Refuse what cannot be run, before anything is loaded."""
    check_research(config, recipe, POOL)
    check_research_run(config, recipe)


def check_dpo(config: ReportDpoConfig) -> None:
    """The same, and that the update is DPO's."""
    learner = config.solver.learner
    if (learner.loss, learner.aggregation, learner.keep_reference) != ("policy_gradient", "token_sum", True):
        raise BadInput("DPO is a policy gradient summed over tokens and held to a reference: leave solver.learner so")
    if config.solver.minibatch:
        raise BadInput(
            f"report-dpo learns from a batch at once: solver.minibatch must be 0, not {config.solver.minibatch}"
        )
    check_grpo(config, "report-dpo")
