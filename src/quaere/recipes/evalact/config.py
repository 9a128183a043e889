"""Settings and presets of an EvalAct run; the preset `paper` has the paper's values.

Each ablation of the paper, and each choice it leaves open, is one value:

    epochs=0                                          no reinforcement learning: the warm-up alone
    solver.dialect=tool-call                          no Evaluate; the reward is still F1
    solver.evaluation.pcar=false                      Evaluate without PCAR
    solver.evaluation.base=0.05                       with solver.evaluation.most=0.25: PCAR, low
    solver.evaluation.base=0.2                        with solver.evaluation.most=1, solver.evaluation.floor=0.01: high
    solver.evaluation.segment=search_eval             PCAR weighs the calls alone, not the thoughts
    solver.evaluation.bad_score=clamp                 a score off the scale becomes the nearest one
    solver.evaluation.think_before_evaluate=fail      thoughts before an evaluation break the format
    solver.shuffle_advantages=true                    the shuffle control, which must not learn

To leave the warm-up out, name a model without one after `--model`.
"""

from __future__ import annotations

from quaere.rollout.episode import Limits
from quaere.setting_types import NonNegativeFloat
from quaere.training.learner_settings import LearnerSettings
from quaere.training.phases.solver import SolverConfig
from quaere.training.qa_run import DEMO, LARGE_GPU, PAPER, SINGLE_GPU, PracticeConfig

# Twenty searches, twenty evaluations, the answer, and one spare turn.
LIMITS = Limits(max_turns=42, max_searches=20, topk=3, sequence_tokens=16384)


class EvalActConfig(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of an EvalAct run; `answer_score` is explicit, so that a solver without Evaluate has the same reward.

    EvalActConfig(model="warm", index="demo/index", questions="train.jsonl")
    """

    epochs: NonNegativeFloat = 2.0
    solver: SolverConfig = SolverConfig(
        dialect="evalact",
        answer_score="f1",
        steps=0,
        batch=256,
        attempts=5,
        limits=LIMITS,
        learner=LearnerSettings(learning_rate=1e-6, loss="clipped", epsilon=0.2),
    )


# The settings that each preset changes. The defaults differ from the paper only in the settings that `paper` lists.
PRESETS: dict[str, dict[str, object]] = {
    "paper": {**PAPER, "solver.learner.aggregation": "token_sum"},
    "single-gpu": {**SINGLE_GPU, "solver.limits.max_turns": 14, "solver.limits.sequence_tokens": 6144},
    # Six searches, six evaluations, an answer, and one spare turn.
    "large-gpu": {**LARGE_GPU, "solver.limits.max_turns": 14, "solver.limits.sequence_tokens": 6144},
    "demo": {**DEMO, "solver.limits.max_turns": 6, "solver.limits.sequence_tokens": 1024},
}
