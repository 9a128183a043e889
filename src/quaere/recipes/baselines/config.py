"""Settings and presets of a run of Search-R1 or AutoRefine.

The defaults are Eval-RAR's, so that the runs differ from it only in dialect and reward.

    solver.answer_score=f1               Search-R1 paid by F1
    solver.answer_score=exact_match      AutoRefine paid by exact match
    solver.evaluation.bonus=0            AutoRefine without a reward for its notes
    solver.evaluation.contain=raw        a note must contain the answer letter for letter
    solver.shuffle_advantages=true       the shuffle control, which must not learn
"""

from __future__ import annotations

from quaere.rollout.episode import Limits
from quaere.training.learner_settings import LearnerSettings
from quaere.training.phases.solver import SolverConfig
from quaere.training.qa_run import DEMO, LARGE_GPU, PAPER, SINGLE_GPU, PracticeConfig

_LIMITS = Limits(topk=3, sequence_tokens=4096)
_LEARNER = LearnerSettings(learning_rate=1e-6, loss="clipped", epsilon=0.2)


class SearchR1Config(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of a Search-R1 run, trained with GRPO.

    SearchR1Config(model="warm", index="demo/index", questions="train.jsonl")
    """

    solver: SolverConfig = SolverConfig(
        dialect="search-r1", steps=200, batch=512, attempts=5, limits=_LIMITS, learner=_LEARNER
    )


class AutoRefineConfig(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of an AutoRefine run.

    AutoRefineConfig(model="warm", index="demo/index", questions="train.jsonl")
    """

    solver: SolverConfig = SolverConfig(
        dialect="autorefine", steps=200, batch=512, attempts=5, limits=_LIMITS, learner=_LEARNER
    )


# The settings that each preset changes, for both recipes.
PRESETS: dict[str, dict[str, object]] = {
    "paper": {**PAPER, "solver.learner.aggregation": "sequence_mean"},
    "single-gpu": SINGLE_GPU,
    "large-gpu": LARGE_GPU,
    "demo": DEMO,
}
