"""Which recipes there are, and what each hands to the command line.

find_recipe("drzero").presets -> {"paper": ..., "single-gpu": ..., "demo": ...}
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from quaere.chat.protocol import Protocol
from quaere.errors import BadInput
from quaere.runs import Run
from quaere.training.reporting import Reporter


class Recipe(Struct, frozen=True):
    """A recipe by its name.

    `check` refuses a config that makes no sense; `plan` says in words what a run would do and cost; `train` does it,
    from wherever the run stands; `solver_protocol` is how a run of this config speaks to its solver.

        Recipe(name="drzero", summary="...", schema=DrZeroConfig, presets=PRESETS, check=..., plan=..., train=...,
               solver_protocol=...)
    """

    name: str
    summary: str
    schema: type[Any]
    presets: Mapping[str, Mapping[str, object]]
    check: Callable[[Any], None]
    plan: Callable[[Any], list[tuple[str, str]]]
    train: Callable[[Any, Run, Reporter], Awaitable[None]]
    solver_protocol: Callable[[Any], Protocol]


def find_recipe(name: str) -> Recipe:
    """The recipe of this name; loading it may load torch."""
    if name == "drzero":
        from quaere.recipes.drzero.recipe import DRZERO

        return DRZERO
    if name == "eve":
        from quaere.recipes.eve.recipe import EVE

        return EVE
    near = get_close_matches(name, RECIPES, 1)
    raise BadInput(f"there is no recipe {name}", hint=f"quaere evolve {near[0] if near else RECIPES[0]} ...")


RECIPES = ("drzero", "eve")
