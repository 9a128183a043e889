"""Everything that can be set about an EvalAct run, and the presets; `paper` has the paper's values.

Each ablation of the paper, and each option it leaves open, is one value here:

    epochs=0                                          no reinforcement learning: the warm-up alone
    solver.dialect=tool-call                          no Evaluate; paid by F1 all the same
    solver.evaluation.pcar=false                      Evaluate without PCAR
    solver.evaluation.base=0.05                       with solver.evaluation.most=0.25: PCAR, low
    solver.evaluation.base=0.2                        with solver.evaluation.most=1, solver.evaluation.floor=0.01: high
    solver.evaluation.segment=search_eval             thoughts do not belong to the step they lead to
    solver.evaluation.bad_score=clamp                 a score off the scale is moved onto it
    solver.evaluation.think_before_evaluate=fail      thoughts before an evaluation break the format
    solver.shuffle_advantages=true                    a control that must not learn

No warm-up is a matter of the model: `--model` names the plain one.
"""

from __future__ import annotations

from quaere.rollout.episode import Limits
from quaere.setting_types import NonNegativeFloat
from quaere.training.learner import LearnerSettings
from quaere.training.phases.solver import SolverConfig
from quaere.training.qa_run import DEMO, LARGE_GPU, PAPER, SINGLE_GPU, PracticeConfig

# A search and its evaluation are two turns: twenty of both, the answer, and one turn to spare.
LIMITS = Limits(max_turns=42, max_searches=20, topk=3, sequence_tokens=16384)


class EvalActConfig(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """A whole run; `answer_score` is named so that a solver without Evaluate is paid alike.

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


# What each preset changes. The defaults differ from the paper in what `paper` names.
PRESETS: dict[str, dict[str, object]] = {
    "paper": {**PAPER, "solver.learner.aggregation": "token_sum"},
    "single-gpu": {**SINGLE_GPU, "solver.limits.max_turns": 14, "solver.limits.sequence_tokens": 6144},
    # Six searches, each with its evaluation, an answer, and one turn to spare.
    "large-gpu": {**LARGE_GPU, "solver.limits.max_turns": 14, "solver.limits.sequence_tokens": 6144},
    "demo": {**DEMO, "solver.limits.max_turns": 6, "solver.limits.sequence_tokens": 1024},
}
