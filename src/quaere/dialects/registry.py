"""The dialects of a solver, by name: how each is spoken to, while it is trained, evaluated or asked, and what it pays.

tool-call     JSON calls, as in Dr. Zero                      exact match
search-r1     tags                                            exact match
autorefine    tags, notes on what was found                   F1, or else a bonus for notes that hold the answer
evalrar       tags, an evaluation of what was found           exact match, or else the same bonus
evalact       JSON calls, every search evaluated and scored   F1 if the format holds; tokens weighed by the scores

solver = open_solver("evalact", style="brief", settings=EvaluationSettings(pcar=False))
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from quaere.chat.prompt_style import PromptStyle
from quaere.chat.protocol import Protocol
from quaere.dialects.evalact.calibration import measure_evaluations
from quaere.dialects.evalact.protocol import EvaluateSolver
from quaere.dialects.evalact.reward import pay_evaluated, weigh_pairs
from quaere.dialects.settings import PROTOCOLS, AnswerScore, EvaluationSettings, SolverProtocol
from quaere.dialects.solver import Pay, Solver, pay_exact_match, pay_f1
from quaere.dialects.tagged.protocol import TagSolver
from quaere.dialects.tagged.reward import pay_noted
from quaere.dialects.tool_call.protocol import ToolCallSolver
from quaere.errors import BadInput
from quaere.rollout.episode import Limits

# A search and its evaluation are two turns each: twenty of both, the answer, and one turn to spare.
_LIMITS: dict[SolverProtocol, Limits] = {
    "evalact": Limits(max_turns=42, max_searches=20, sequence_tokens=16384),
}


_DEFAULT = EvaluationSettings()
_OWN: dict[SolverProtocol, AnswerScore] = {"autorefine": "f1", "evalact": "f1"}  # the others pay exact match


def open_protocol(
    protocol: SolverProtocol,
    *,
    style: PromptStyle = "full",
    evidence: bool = False,
    settings: EvaluationSettings | None = None,
    guided: bool = False,
) -> Protocol:
    """The solver's side of this name; `evidence` asks for the sentence it relies on, `guided` opens turns for it."""
    if guided and protocol != "tool-call":
        raise BadInput(f"only the tool-call protocol can be guided, not {protocol}", hint="leave --guided out")
    if protocol == "tool-call":
        return ToolCallSolver(guided=guided, style=style, evidence=evidence)
    if protocol == "evalact":
        settings = settings or EvaluationSettings()
        return EvaluateSolver(
            style=style,
            evidence=evidence,
            bad_score=settings.bad_score,
            think_before_evaluate=settings.think_before_evaluate,
        )
    return TagSolver(protocol, style=style, evidence=evidence)


def open_solver(
    protocol: SolverProtocol,
    *,
    style: PromptStyle = "full",
    evidence: bool = False,
    settings: EvaluationSettings = _DEFAULT,
    answer_score: AnswerScore = "own",
) -> Solver:
    """The solver of this name; with `evidence` it is asked for the sentence it relies on as well."""
    settings.check()
    asking = open_protocol(protocol, style=style, evidence=evidence, settings=settings)
    score = _OWN.get(protocol, "exact_match") if answer_score == "own" else answer_score
    if protocol == "evalact":
        pay = partial(pay_evaluated, score=score, settings=settings)
        weigh = partial(weigh_pairs, settings=settings) if settings.pcar else None
        return Solver(asking, pay, weigh, measure_evaluations, gated=True)
    if protocol in ("evalrar", "autorefine"):
        return Solver(asking, partial(pay_noted, score=score, settings=settings))
    plain: Pay = pay_f1 if score == "f1" else pay_exact_match
    return Solver(asking, plain)


def usual_limits(protocol: SolverProtocol) -> Limits:
    """How far an episode may go where nobody has said: EvalAct's searches take two turns each.

    usual_limits("evalact").max_turns == 42
    """
    return _LIMITS.get(protocol, Limits())


def check_turns(protocol: SolverProtocol, limits: Limits, option: str = "solver.limits.max_turns") -> None:
    """Refuse limits under which nobody could search and answer; `option` is how the user sets the turns."""
    needed = ("search", "evaluate", "answer") if protocol == "evalact" else ("search", "answer")
    if limits.max_turns < len(needed):
        raise BadInput(
            f"{option} must be at least {len(needed)} for {protocol} ({', '.join(needed)}), not {limits.max_turns}"
        )


def solver_dialect(protocol: SolverProtocol) -> str:
    """The dialect in which a warm-up teaches it: the recipe's name.

    solver_dialect("tool-call") == "drzero"
    """
    return "drzero" if protocol == "tool-call" else protocol


def taught_protocol(dialects: Iterable[str]) -> SolverProtocol | None:
    """The one protocol that a model taught these dialects solves questions in; None if there are several or none.

    taught_protocol(("eve", "drzero")) == "tool-call"; taught_protocol(("drzero", "evalact")) is None
    """
    taught: set[SolverProtocol] = {
        protocol
        for dialect in dialects
        for protocol in PROTOCOLS
        if dialect in (protocol, solver_dialect(protocol)) or (dialect == "eve" and protocol == "tool-call")
    }
    return taught.pop() if len(taught) == 1 else None
