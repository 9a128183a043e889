"""Registers EvalAct's solver as a dialect."""

from __future__ import annotations

from functools import partial

from quaere.dialects.evalact.demonstration import EvalActTurns
from quaere.dialects.evalact.protocol import EvaluateSolver
from quaere.dialects.evalact.reward import pay_evaluated, weigh_pairs
from quaere.dialects.evalact.score_calibration import measure_evaluations
from quaere.dialects.solver_dialect import Solver, SolverDialect, SolverOptions
from quaere.rollout.episode import Limits


def open_solver(options: SolverOptions) -> Solver:
    """EvalAct's solver: reward is F1 if the format held, token advantages are scaled by the scores (PCAR)."""
    settings = options.settings
    protocol = EvaluateSolver(
        style=options.style,
        evidence=options.evidence,
        bad_score=settings.bad_score,
        think_before_evaluate=settings.think_before_evaluate,
    )
    pay = partial(pay_evaluated, score=options.score, settings=settings)
    weigh = partial(weigh_pairs, settings=settings) if settings.pcar else None
    return Solver(protocol, pay, weigh, measure_evaluations, gated=True)


SOLVER = SolverDialect(
    open_solver,
    score="f1",
    # Twenty searches, twenty evaluations, the answer, and one spare turn.
    limits=Limits(max_turns=42, max_searches=20, sequence_tokens=16384),
    turns=("search", "evaluate", "answer"),
    demonstration=EvalActTurns(),
)
