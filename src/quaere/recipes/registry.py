"""Registry of recipes, and what each recipe provides to the command line.

    find_recipe("drzero").presets -> {"paper": ..., "single-gpu": ..., "demo": ...}

An installed package adds a recipe with an entry point of the group `quaere.recipes` (`plugins.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from quaere.errors import BadInput, find_nearest
from quaere.plugins import Registry

if TYPE_CHECKING:  # the command line lists the recipes' names, so importing this module must stay cheap
    from quaere.chat.protocol import Protocol
    from quaere.runs import Run
    from quaere.training.progress import Reporter


class Recipe(Struct, frozen=True):
    """A recipe: its settings, presets, checks and training loop.

    `check` raises `BadInput` for a config that cannot be run; `plan` describes in words what a run would do and cost;
    `train` runs it from its last checkpoint; `solver_protocol` is the protocol of the solver for a config. A recipe
    that `takes_questions` writes none of its own: its config has `questions`, and its runs keep a copy of them; without
    `needs_answers`, the questions may be open ones without answers.

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
    takes_questions: bool = False
    needs_answers: bool = True


# By name: the module, and its constant.
_RECIPES = Registry(
    "recipe",
    "quaere.recipes",
    {
        "drzero": "quaere.recipes.drzero:DRZERO",
        "eve": "quaere.recipes.eve:EVE",
        "evalact": "quaere.recipes.practice:EVALACT",
        "evalrar": "quaere.recipes.practice:EVALRAR",
        "search-r1": "quaere.recipes.practice:SEARCH_R1",
        "autorefine": "quaere.recipes.practice:AUTOREFINE",
        "r1": "quaere.recipes.practice:R1",
        "sft": "quaere.recipes.practice:SFT",
        "score": "quaere.recipes.score.train:SCORE",
        "report-grpo": "quaere.recipes.report_baselines:REPORT_GRPO",
        "report-dpo": "quaere.recipes.report_baselines:REPORT_DPO",
    },
)
RECIPES = _RECIPES.names
LEARNED = ("search-r1", "drzero", "eve")  # those of `quaere learn`, the one that was measured best first


def find_recipe(name: str) -> Recipe:
    """The recipe of this name, `BadInput` if there is none or its package is broken; loading it may import torch."""
    if name not in RECIPES:
        near = find_nearest(name, RECIPES) or RECIPES[0]
        raise BadInput(f"there is no recipe {name}", hint=f"quaere evolve {near} ...")
    return _RECIPES.load(name, Recipe)


def writes_reports(name: str) -> bool:
    """True if the recipe of this name trains its solver to write reports; false for an unknown name.

    It is decided by the solver's protocol, so this loads the recipe.

        writes_reports("score") == True; writes_reports("drzero") == False
    """
    from quaere.dialects.report.report_writer import ReportWriter

    if name not in RECIPES:
        return False
    recipe = find_recipe(name)
    return isinstance(recipe.solver_protocol(recipe.schema()), ReportWriter)
