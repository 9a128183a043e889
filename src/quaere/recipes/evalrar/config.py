"""Everything that can be set about an Eval-RAR run, and the presets; `paper` has the paper's values.

Each ablation of the paper, and each option it leaves open, is one value here:

    solver.evaluation.bonus=0            no evaluation reward
    solver.evaluation.contain=raw        an evaluation must hold the answer letter for letter
    solver.dialect=search-r1             no evaluation at all
    solver.shuffle_advantages=true       a control that must not learn
"""

from __future__ import annotations

from quaere.rollout.episode import Limits
from quaere.training.learner import LearnerSettings
from quaere.training.phases.solver import SolverConfig
from quaere.training.qa_run import DEMO, LARGE_GPU, PAPER, SINGLE_GPU, PracticeConfig


class EvalRarConfig(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """A whole run.

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


# What each preset changes. The defaults differ from the paper in what `paper` names: a mean over the tokens of each
# episode weighs a token of a short one more, which pays for searching less, and a KL term that weak costs a pass over
# the reference and holds nothing.
PRESETS: dict[str, dict[str, object]] = {
    "paper": {**PAPER, "solver.learner.aggregation": "sequence_mean"},
    "single-gpu": SINGLE_GPU,
    "large-gpu": LARGE_GPU,
    "demo": DEMO,
}
