"""Which recipes' ways of writing a warm-up can teach.

A dialect is named after the recipe that speaks it, and is known here by itself: teaching it loads no recipe.

    drzero       JSON calls; a solver and a proposer
    eve          the same, and both quote the sentence they rely on
    evalact      JSON calls, each search evaluated and scored in a turn of its own; a solver alone, as are the rest
    evalrar      tags; the turn after a search opens with an evaluation of what it found
    autorefine   tags; it opens with the facts that were found
    search-r1    tags
"""

from __future__ import annotations

from typing import Literal

Dialect = Literal["drzero", "eve", "evalact", "evalrar", "autorefine", "search-r1"]
DIALECTS: tuple[Dialect, ...] = ("drzero", "eve", "evalact", "evalrar", "autorefine", "search-r1")

Role = Literal["solver", "proposer"]
ROLES: tuple[Role, ...] = ("solver", "proposer")


def roles_of(dialect: Dialect) -> tuple[Role, ...]:
    """Who speaks it.

    roles_of("evalact") == ("solver",)
    """
    return ROLES if dialect in ("drzero", "eve") else ("solver",)


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


def needed_turns(dialect: Dialect, role: Role, hops: int) -> int:
    """The turns it takes if every search finds what it is for.

    A proposer's first hop is in its document, a solver needs a search for each, and evaluations are turns too.

        needed_turns("drzero", "solver", 2) == 3; needed_turns("evalact", "solver", 2) == 5
    """
    num_searches = hops if role == "solver" else hops - 1
    return num_searches * (2 if dialect == "evalact" else 1) + 1
