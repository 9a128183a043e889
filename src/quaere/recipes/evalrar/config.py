"""Settings and presets of an Eval-RAR run; the preset `paper` has the paper's values.

Each ablation of the paper, and each choice it leaves open, is one value:

    solver.evaluation.bonus=0            no evaluation reward
    solver.evaluation.contain=raw        an evaluation must contain the answer letter for letter
    solver.dialect=search-r1             no evaluation at all
    solver.shuffle_advantages=true       the shuffle control, which must not learn
"""

from __future__ import annotations

from quaere.rollout.episode import Limits
from quaere.training.learner_settings import LearnerSettings
from quaere.training.phases.solver import SolverConfig
from quaere.training.qa_run import DEMO, LARGE_GPU, PAPER, SINGLE_GPU, PracticeConfig


class EvalRarConfig(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of an Eval-RAR run.

    EvalRarConfig(model="warm", index="demo/index", questions="train.jsonl")
    """

    solver: SolverConfig = SolverConfig(
        dialect="evalrar",
        steps=200,
        batch=512,
        attempts=5,
        limits=Limits(topk=3, sequence_tokens=4096),
        learner=LearnerSettings(learning_rate=1e-6, loss="clipped", epsilon=0.2),
    )


# The settings that each preset changes. The defaults differ from the paper only in the settings that `paper` lists. A
# mean over the tokens of each episode gives tokens of short episodes more weight, which rewards searching less. A KL
# term as weak as the paper's costs a forward pass of the reference model and has no effect.
PRESETS: dict[str, dict[str, object]] = {
    "paper": {**PAPER, "solver.learner.aggregation": "sequence_mean"},
    "single-gpu": SINGLE_GPU,
    "large-gpu": LARGE_GPU,
    "demo": DEMO,
}
