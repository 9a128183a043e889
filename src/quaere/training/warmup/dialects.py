"""Which recipes' ways of writing a warm-up can teach.

A dialect is named after the recipe that speaks it, and is known here by itself: teaching it loads no recipe.
"""

from __future__ import annotations

from typing import Literal

Dialect = Literal["drzero", "eve"]
DIALECTS: tuple[Dialect, ...] = ("drzero", "eve")


def cites(dialect: Dialect) -> bool:
    """Do its roles quote the sentence they rely on before they answer?

    cites("eve") == True
    """
    return dialect == "eve"
