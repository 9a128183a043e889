"""Registry of dialects by name and role: prompts and protocol of each role and, for a solver, its reward.

tool-call     solver       JSON calls, as in Dr. Zero                      exact match
              proposer     the same; a question and its answer
search-r1     solver       tags                                            exact match
autorefine    solver       tags, notes on what was found                   F1, or else a bonus for notes with the answer
evalrar       solver       tags, an evaluation of what was found           exact match, or else the same bonus
evalact       solver       JSON calls, every search evaluated and scored   F1 if the format holds; tokens weighed
report        writer       tags; a report that cites passages by number
              rubric       the dimensions that reports are graded by
              assessment   searches into reports, and their scores
closed-book   verifier     one turn without searching, with a span of evidence or without

open_solver("evalact", style="brief", settings=EvaluationSettings(pcar=False))
find_dialect("report", "writer").open(style="brief")
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from quaere.errors import BadInput

if TYPE_CHECKING:
    from quaere.chat.protocol import PromptStyle, Protocol
    from quaere.dialects.roles import (
        OpenAssessment,
        OpenRubric,
        OpenVerifier,
        OpenWriter,
        ProposerDialect,
        RoleDialect,
    )
    from quaere.dialects.settings import AnswerScore, EvaluationSettings
    from quaere.dialects.solver_dialect import Solver, SolverDialect
    from quaere.rollout.episode import Limits

Role = Literal["solver", "proposer", "writer", "rubric", "assessment", "verifier"]

# By dialect and role: the folder, and the constant in its `dialect.py`. A folder is imported on first use: the options
# of a command list all dialects, and printing its help must not import every one of them.
_PLACES: dict[tuple[str, Role], tuple[str, str]] = {
    ("tool-call", "solver"): ("tool_call", "SOLVER"),
    ("tool-call", "proposer"): ("tool_call", "PROPOSER"),
    ("search-r1", "solver"): ("tagged", "SEARCH_R1"),
    ("autorefine", "solver"): ("tagged", "AUTOREFINE"),
    ("evalrar", "solver"): ("tagged", "EVALRAR"),
    ("evalact", "solver"): ("evalact", "SOLVER"),
    ("report", "writer"): ("report", "WRITER"),
    ("report", "rubric"): ("report", "RUBRIC"),
    ("report", "assessment"): ("report", "ASSESSMENT"),
    ("closed-book", "verifier"): ("closed_book", "VERIFIER"),
}
SOLVER_DIALECTS: tuple[str, ...] = tuple(dialect for dialect, role in _PLACES if role == "solver")

if TYPE_CHECKING:
    SolverDialectName = str
else:  # msgspec checks a setting of this type against the table above, the only list of names
    SolverDialectName = Literal[SOLVER_DIALECTS]


@overload
def find_dialect(dialect: str, role: Literal["solver"]) -> SolverDialect: ...
@overload
def find_dialect(dialect: str, role: Literal["proposer"]) -> ProposerDialect: ...
@overload
def find_dialect(dialect: str, role: Literal["writer"]) -> RoleDialect[OpenWriter]: ...
@overload
def find_dialect(dialect: str, role: Literal["rubric"]) -> RoleDialect[OpenRubric]: ...
@overload
def find_dialect(dialect: str, role: Literal["assessment"]) -> RoleDialect[OpenAssessment]: ...
@overload
def find_dialect(dialect: str, role: Literal["verifier"]) -> RoleDialect[OpenVerifier]: ...
def find_dialect(dialect: str, role: Role) -> Any:
    """A role of a dialect, as the dialect's folder registers it.

    find_dialect("tool-call", "proposer").open(style="brief").name == "drzero-proposer"
    """
    if (dialect, role) not in _PLACES:
        able = ", ".join(name for name, its_role in _PLACES if its_role == role)
        raise BadInput(f"there is no dialect {dialect} with the role {role}; dialects with that role: {able}")
    folder, constant = _PLACES[dialect, role]
    return getattr(import_module(f"quaere.dialects.{folder}.dialect"), constant)


def roles_of(dialect: str) -> tuple[Role, ...]:
    """The roles that a dialect has.

    roles_of("tool-call") == ("solver", "proposer")
    """
    return tuple(role for name, role in _PLACES if name == dialect)


# ------------------------------------------------------------------------------------------------------------- solvers


def open_protocol(
    dialect: str,
    *,
    style: PromptStyle = "full",
    evidence: bool = False,
    settings: EvaluationSettings | None = None,
    guided: bool = False,
) -> Protocol:
    """A solver's protocol; `evidence` asks for the sentence it relies on, `guided` writes the start of its turns."""
    from quaere.dialects.settings import EvaluationSettings
    from quaere.dialects.solver_dialect import SolverOptions

    found = find_dialect(dialect, "solver")
    if guided and not found.can_be_guided:
        able = ", ".join(name for name in SOLVER_DIALECTS if find_dialect(name, "solver").can_be_guided)
        raise BadInput(f"only the {able} dialect can be guided, not {dialect}", hint="leave --guided out")
    options = SolverOptions(style=style, evidence=evidence, guided=guided, settings=settings or EvaluationSettings())
    return found.open(options).protocol


def open_solver(
    dialect: str,
    *,
    style: PromptStyle = "full",
    evidence: bool = False,
    settings: EvaluationSettings | None = None,
    answer_score: AnswerScore = "own",
) -> Solver:
    """The solver of a dialect: protocol and reward. With `evidence` it is also asked for the sentence it relies on."""
    from quaere.dialects.settings import EvaluationSettings
    from quaere.dialects.solver_dialect import SolverOptions

    settings = settings or EvaluationSettings()
    settings.check()
    found = find_dialect(dialect, "solver")
    score = found.score if answer_score == "own" else answer_score
    return found.open(SolverOptions(style=style, evidence=evidence, settings=settings, score=score))


def usual_limits(dialect: str) -> Limits:
    """The default episode limits of a dialect: EvalAct has more turns, because a search takes two.

    usual_limits("evalact").max_turns == 42
    """
    return find_dialect(dialect, "solver").limits


def check_turns(dialect: str, limits: Limits, option: str = "solver.limits.max_turns") -> None:
    """Raise `BadInput` if the limits leave no room for a search and an answer; `option` names the limit."""
    needed = find_dialect(dialect, "solver").turns
    if limits.max_turns < len(needed):
        raise BadInput(
            f"{option} must be at least {len(needed)} for {dialect} ({', '.join(needed)}), not {limits.max_turns}"
        )


# ------------------------------------------------------------------------------------------------- dialects of warm-ups


class Taught(NamedTuple):
    """The dialect that a warm-up of one name teaches, and whether with evidence.

    Taught("tool-call", evidence=True)
    """

    dialect: str
    evidence: bool = False


# A warm-up has the name of the recipe it prepares for, which for most dialects is the dialect's own name.
_TAUGHT: dict[str, Taught] = {
    "drzero": Taught("tool-call"),
    "eve": Taught("tool-call", evidence=True),
    "eve-search-r1": Taught("search-r1", evidence=True),  # of EVE with solver.dialect=search-r1
    **{name: Taught(name) for name in SOLVER_DIALECTS if name != "tool-call"},
    "score": Taught("report"),
}
TAUGHT_NAMES: tuple[str, ...] = tuple(_TAUGHT)


def find_taught(name: str) -> Taught:
    """The dialect that a warm-up of this name teaches; `BadInput` if there is none.

    find_taught("eve") == Taught("tool-call", evidence=True)
    """
    if name not in _TAUGHT:
        raise BadInput(f"there is no warm-up for {name}; choose one of {', '.join(_TAUGHT)}")
    return _TAUGHT[name]


def taught_name(dialect: str) -> str:
    """The name under which a warm-up teaches a dialect, without evidence.

    taught_name("tool-call") == "drzero"
    """
    return next(name for name, taught in _TAUGHT.items() if taught == Taught(dialect))


def taught_dialect(names: Iterable[str]) -> str | None:
    """The one dialect that a model taught under these names solves questions in; None if there are several or none.

    taught_dialect(("eve", "drzero")) == "tool-call"; taught_dialect(("drzero", "evalact")) is None
    """
    found = {_TAUGHT[name].dialect for name in names if name in _TAUGHT} & set(SOLVER_DIALECTS)
    return found.pop() if len(found) == 1 else None
