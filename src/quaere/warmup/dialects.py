"""Which recipes' ways of writing a warm-up can teach.

A dialect is named after the recipe that speaks it, and is known here by itself: teaching it loads no recipe.

    drzero       JSON calls; a solver and a proposer
    eve          the same, and both quote the sentence they rely on
    evalact      JSON calls, each search evaluated and scored in a turn of its own; a solver alone, as are the rest
    evalrar      tags; the turn after a search opens with an evaluation of what it found
    autorefine   tags; it opens with the facts that were found
    search-r1    tags
    score        tags; a solver that writes reports, and an evaluator that chooses rubrics and assesses reports
"""

from __future__ import annotations

from typing import Literal, get_args

Dialect = Literal["drzero", "eve", "evalact", "evalrar", "autorefine", "search-r1", "score"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)

Role = Literal["solver", "proposer", "evaluator"]
ROLES: tuple[Role, ...] = get_args(Role)

LessonKind = Literal["report", "rubric", "assessment"]
"""What score's lessons are about; the first is the solver's, the others are the evaluator's."""
LESSON_KINDS: tuple[LessonKind, ...] = get_args(LessonKind)


def roles_of(dialect: Dialect) -> tuple[Role, ...]:
    """Who speaks it.

    roles_of("evalact") == ("solver",)
    """
    if dialect == "score":
        return ("solver", "evaluator")
    return ("solver", "proposer") if dialect in ("drzero", "eve") else ("solver",)


def role_of(kind: LessonKind) -> Role:
    """Whose lesson it is.

    role_of("rubric") == "evaluator"
    """
    return "solver" if kind == "report" else "evaluator"


def cites(dialect: Dialect) -> bool:
    """Do its roles quote the sentence they rely on before they answer?

    cites("eve") == True
    """
    return dialect == "eve"


def note_tag(dialect: Dialect) -> str:
    """Between which tags the turn after a search notes down what was found; "" where none are.

    note_tag("autorefine") == "refine"
    """
    return {"evalrar": "evaluate", "autorefine": "refine"}.get(dialect, "")


def needed_turns(dialect: Dialect, num_searches: int) -> int:
    """The turns that so many searches and the answer take if every search finds what it is for.

    Evaluations are turns too. A report takes two searches at least, and so does an assessment of reports on two things.

        needed_turns("drzero", 2) == 3; needed_turns("evalact", 2) == 5
    """
    if dialect == "score":
        return 3
    return num_searches * (2 if dialect == "evalact" else 1) + 1
