"""Everything that can be set about an Eval-RAR run, with the paper's values as defaults; and the presets.

Each ablation of the paper, and each option it leaves open, is one value here:

    solver.evaluation.bonus=0            no evaluation reward
    solver.evaluation.contain=raw        an evaluation must hold the answer letter for letter
    solver.protocol=search-r1            no evaluation at all
    solver.shuffle_advantages=true       a control that must not learn
"""

from __future__ import annotations

from quaere.rollout.episode import Limits
from quaere.training.learner import LearnerSettings
from quaere.training.phases.solving import SolverConfig
from quaere.training.practice import DEMO, SINGLE_GPU, PracticeConfig


class EvalRarConfig(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """A whole run.

    EvalRarConfig(model="warm", index="demo/index", questions="train.jsonl")
    """

    solver: SolverConfig = SolverConfig(
        protocol="evalrar",
        steps=200,
        batch=512,
        attempts=5,
        limits=Limits(topk=3, sequence_tokens=4096),
        learner=LearnerSettings(
            learning_rate=1e-6, loss="clipped", epsilon=0.2, aggregation="sequence_mean", kl_beta=0.001
        ),
    )


# What each preset changes; what it does not name is as in the paper.
PRESETS: dict[str, dict[str, object]] = {
    "paper": {"engine.max_rows": 256, "validation.questions": 0},
    "single-gpu": SINGLE_GPU,
    "demo": DEMO,
}
