"""The dialects of a solver, by name: how each is spoken to, while it is trained, evaluated or asked, and what it pays.

tool-call     JSON calls, as in Dr. Zero                      exact match
search-r1     tags                                            exact match
autorefine    tags, notes on what was found                   F1, or else a bonus for notes that hold the answer
evalrar       tags, an evaluation of what was found           exact match, or else the same bonus
evalact       JSON calls, every search evaluated and scored   F1 if the format holds; tokens weighed by the scores

open_solver("evalact", style="brief", settings=EvaluationSettings(pcar=False))
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Literal, get_args

from quaere.chat.prompt_style import PromptStyle
from quaere.dialects.settings import AnswerScore, EvaluationSettings
from quaere.errors import BadInput

if TYPE_CHECKING:
    from quaere.chat.protocol import Protocol
    from quaere.dialects.solver import Solver, SolverDialect
    from quaere.rollout.episode import Limits

SolverProtocol = Literal["tool-call", "search-r1", "autorefine", "evalrar", "evalact"]
PROTOCOLS: tuple[SolverProtocol, ...] = get_args(SolverProtocol)
# By name, the folder and what it is called there; it is loaded when it is asked for, so that names cost nothing.
_PLACES: dict[SolverProtocol, tuple[str, str]] = {
    "tool-call": ("tool_call", "TOOL_CALL"),
    "search-r1": ("tagged", "SEARCH_R1"),
    "autorefine": ("tagged", "AUTOREFINE"),
    "evalrar": ("tagged", "EVALRAR"),
    "evalact": ("evalact", "EVALACT"),
}
_DEFAULT = EvaluationSettings()


def find_dialect(protocol: SolverProtocol) -> SolverDialect:
    """The dialect of this name, as its folder registers it."""
    from quaere.dialects.solver import SolverDialect

    folder, constant = _PLACES[protocol]
    found = getattr(import_module(f"quaere.dialects.{folder}.dialect"), constant)
    assert isinstance(found, SolverDialect)
    return found


def open_protocol(
    protocol: SolverProtocol,
    *,
    style: PromptStyle = "full",
    evidence: bool = False,
    settings: EvaluationSettings = _DEFAULT,
    guided: bool = False,
) -> Protocol:
    """The solver's side of this name; `evidence` asks for the sentence it relies on, `guided` opens turns for it."""
    from quaere.dialects.solver import SolverOptions

    dialect = find_dialect(protocol)
    if guided and not dialect.can_be_guided:
        able = ", ".join(name for name in PROTOCOLS if find_dialect(name).can_be_guided)
        raise BadInput(f"only the {able} protocol can be guided, not {protocol}", hint="leave --guided out")
    options = SolverOptions(style=style, evidence=evidence, guided=guided, settings=settings)
    return dialect.open(options).protocol


def open_solver(
    protocol: SolverProtocol,
    *,
    style: PromptStyle = "full",
    evidence: bool = False,
    settings: EvaluationSettings = _DEFAULT,
    answer_score: AnswerScore = "own",
) -> Solver:
    """The solver of this name; with `evidence` it is asked for the sentence it relies on as well."""
    from quaere.dialects.solver import SolverOptions

    settings.check()
    dialect = find_dialect(protocol)
    score = dialect.score if answer_score == "own" else answer_score
    return dialect.open(SolverOptions(style=style, evidence=evidence, settings=settings, score=score))


def usual_limits(protocol: SolverProtocol) -> Limits:
    """How far an episode may go where nobody has said: EvalAct's searches take two turns each.

    usual_limits("evalact").max_turns == 42
    """
    return find_dialect(protocol).limits


def check_turns(protocol: SolverProtocol, limits: Limits, option: str = "solver.limits.max_turns") -> None:
    """Refuse limits under which nobody could search and answer; `option` is how the user sets the turns."""
    needed = find_dialect(protocol).turns
    if limits.max_turns < len(needed):
        raise BadInput(
            f"{option} must be at least {len(needed)} for {protocol} ({', '.join(needed)}), not {limits.max_turns}"
        )


def solver_dialect(protocol: SolverProtocol) -> str:
    """The name under which a warm-up teaches it, without evidence.

    solver_dialect("tool-call") == "drzero"
    """
    return next(iter(find_dialect(protocol).taught_as), protocol)


def taught_protocol(dialects: Iterable[str]) -> SolverProtocol | None:
    """The one protocol that a model taught these dialects solves questions in; None if there are several or none.

    taught_protocol(("eve", "drzero")) == "tool-call"; taught_protocol(("drzero", "evalact")) is None
    """
    taught = {
        protocol
        for name in dialects
        for protocol in PROTOCOLS
        if name == protocol or name in find_dialect(protocol).taught_as
    }
    return taught.pop() if len(taught) == 1 else None
