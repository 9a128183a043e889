"""How a solver is spoken to, by name: while it is trained, evaluated or simply asked. Loads no torch.

open_protocol("evalrar", style="brief").name == "evalrar-solver"
"""

from __future__ import annotations

from collections.abc import Iterable

from quaere.chat.evalact import EvaluateSolver
from quaere.chat.prompts import PromptStyle
from quaere.chat.protocol import Protocol
from quaere.chat.tagged import TagSolver
from quaere.chat.toolcall import ToolCallSolver
from quaere.errors import BadInput
from quaere.rollout.episode import Limits
from quaere.training.settings import PROTOCOLS, EvaluationSettings, SolverProtocol

# A search and its evaluation are two turns each: twenty of both, the answer, and one turn to spare.
_LIMITS: dict[SolverProtocol, Limits] = {
    "evalact": Limits(max_turns=42, max_searches=20, sequence_tokens=16384),
}


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
