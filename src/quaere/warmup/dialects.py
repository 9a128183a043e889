"""The dialects that a warm-up can teach, named after the recipes that use them (`dialects/registry.py`).

    drzero       JSON calls; a solver and a proposer
    eve          as drzero, and both quote the sentence they rely on
    evalact      JSON calls, each search evaluated and scored in a separate turn; only a solver, as in those below
    evalrar      tags; the turn after a search opens with an evaluation of the results
    autorefine   tags; the turn after a search opens with the facts that were found
    search-r1    tags
    eve-search-r1    tags, and the solver quotes the sentence it relies on
    score        tags; a solver that writes reports, and an evaluator that chooses rubrics and assesses reports

A newly registered dialect can be taught under its own name without a change here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from quaere.dialects import registry
from quaere.dialects.registry import TAUGHT_NAMES, find_dialect, find_taught
from quaere.errors import BadInput

if TYPE_CHECKING:
    from quaere.dialects.roles import ProposerTurns, SolverTurns

Turns = TypeVar("Turns")

Dialect = str
DIALECTS: Sequence[Dialect] = TAUGHT_NAMES

Role = Literal["solver", "proposer", "evaluator"]
ROLES: tuple[Role, ...] = get_args(Role)
# For each role whose weights are trained, the roles of a dialect that these weights play.
_SPOKEN: dict[Role, tuple[registry.Role, ...]] = {
    "solver": ("solver", "writer"),
    "proposer": ("proposer",),
    "evaluator": ("rubric", "assessment"),
}

# The kinds of lesson of score: a report is the solver's lesson, a rubric and an assessment are the evaluator's.
LessonKind = Literal["report", "rubric", "assessment"]
LESSON_KINDS: tuple[LessonKind, ...] = get_args(LessonKind)


def roles_of(dialect: Dialect) -> tuple[Role, ...]:
    """The roles of a dialect that a warm-up can teach.

    roles_of("evalact") == ("solver",)
    """
    spoken = registry.roles_of(find_taught(dialect).dialect)
    return tuple(role for role in ROLES if set(_SPOKEN[role]) & set(spoken))


def role_of(kind: LessonKind) -> Role:
    """The role that learns from a lesson of this kind of the dialect score.

    role_of("rubric") == "evaluator"
    """
    return "solver" if kind == "report" else "evaluator"


def cites(dialect: Dialect) -> bool:
    """True if the roles of this dialect quote the sentence they rely on before they answer.

    cites("eve") == True
    """
    return find_taught(dialect).evidence


def solver_turns(dialect: Dialect) -> SolverTurns:
    """The class that writes a demonstrated solver's turns in this dialect.

    solver_turns("autorefine").remarks == "facts"
    """
    return _shown(dialect, find_dialect(find_taught(dialect).dialect, "solver").demonstration)


def scores_searches(dialect: Dialect) -> bool:
    """True if a solver of this dialect scores each search in a turn of its own, and can be demonstrated.

    scores_searches("evalact") == True
    """
    turns = find_dialect(find_taught(dialect).dialect, "solver").demonstration
    return turns is not None and turns.remarks == "turn"


def proposer_turns(dialect: Dialect) -> ProposerTurns:
    """The class that writes a demonstrated proposer's turns in this dialect."""
    return _shown(dialect, find_dialect(find_taught(dialect).dialect, "proposer").demonstration)


def _shown(dialect: Dialect, turns: Turns | None) -> Turns:
    if turns is None:
        raise BadInput(
            f"the oracle cannot demonstrate {dialect}: it has no demonstration turns", hint="--teacher openai:MODEL@URL"
        )
    return turns


def needed_turns(dialect: Dialect, num_searches: int) -> int:
    """The number of turns that `num_searches` searches and the answer take if every search succeeds.

    A dialect's evaluations are turns too. A report takes at least two searches, and so does an assessment of reports on
    two things.

        needed_turns("drzero", 2) == 3; needed_turns("evalact", 2) == 5
    """
    if dialect == "score":
        return 3
    *search, _ = find_dialect(find_taught(dialect).dialect, "solver").turns
    return num_searches * len(search) + 1
