"""Settings and presets of report runs with a fixed judge, trained by GRPO or by DPO.

The defaults for writing are SCORE's, so that the runs differ from it only in judge and update.

    judge=model                           the initial model is the judge, with a fixed rubric
    fixed_rubric="factuality, depth 0.3"  this rubric, which writers are shown; else the first dimensions of the pool
    dpo_beta=0.5                          report-dpo: strength of the pull towards the initial model
    shuffle_advantages=true               the shuffle control, which must not learn
"""

from __future__ import annotations

from typing import Literal

from quaere.chat.dimensions import POOL
from quaere.errors import BadInput
from quaere.setting_types import PositiveFloat
from quaere.training.learner_settings import LearnerSettings
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
    """Settings of a report run with a fixed judge.

        ReportGrpoConfig(model="warm", index="demo/index", questions="open.jsonl", judge="model")

    Attributes:
        judge: checks scores citations, words and length by rules (`rewards/reports.py`); model is the initial
            model, with a fixed rubric. [Quaere]
    """

    judge: Judge = "checks"


class ReportDpoConfig(ReportGrpoConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of a DPO run: the best and the worst report on a question are a pair.

        ReportDpoConfig(model="warm", index="demo/index", questions="open.jsonl", dpo_beta=0.1)

    Attributes:
        dpo_beta: Strength of the pull towards the initial model: a greater value keeps the policy closer to it.
            [DPO]
    """

    dpo_beta: PositiveFloat = 0.1
    solver: WriterConfig = WriterConfig(
        minibatch=0,  # DPO's weights of the pairs are computed once per step and go stale after an update
        learner=LearnerSettings(
            learning_rate=1e-6,
            warmup_ratio=0.05,
            loss="policy_gradient",
            aggregation="token_sum",
            keep_reference=True,
        ),
    )


# The settings that each preset changes, for both recipes.
PRESETS: dict[str, dict[str, object]] = {
    # The paper reserves no turn for the report or the assessment.
    "paper": {
        "engine.max_rows": 256,
        "solver.limits.answer_turn": False,
        "evaluator.limits.answer_turn": False,
    },
    "single-gpu": SINGLE_GPU,
    "demo": DEMO,
}


def check_grpo(config: ReportGrpoConfig, recipe: str = "report-grpo") -> None:
    """Raise `BadInput` for settings that cannot be run, before anything is loaded."""
    check_research(config, recipe, POOL)
    check_research_run(config, recipe)


def check_dpo(config: ReportDpoConfig) -> None:
    """As `check_grpo`, and raise `BadInput` if the learner's settings are not those of DPO."""
    learner = config.solver.learner
    if (learner.loss, learner.aggregation, learner.keep_reference) != ("policy_gradient", "token_sum", True):
        raise BadInput(
            "report-dpo needs solver.learner.loss=policy_gradient, solver.learner.aggregation=token_sum and "
            "solver.learner.keep_reference=true",
            hint="leave these three settings at their defaults",
        )
    if config.solver.minibatch:
        raise BadInput(
            f"report-dpo makes one update per batch: solver.minibatch must be 0, not {config.solver.minibatch}"
        )
    check_grpo(config, "report-dpo")
