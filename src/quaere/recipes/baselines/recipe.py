"""Search-R1 and AutoRefine as the command line knows them."""

from __future__ import annotations

from functools import partial

from quaere.recipes.baselines.config import PRESETS, AutoRefineConfig, SearchR1Config
from quaere.recipes.baselines.prompts import solver_protocol
from quaere.recipes.baselines.train import train
from quaere.recipes.registry import Recipe
from quaere.training.practice import check_practice, plan_practice

SEARCH_R1 = Recipe(
    name="search-r1",
    summary="a solver that searches between tags, paid for the right answer",
    schema=SearchR1Config,
    presets=PRESETS,
    check=partial(check_practice, recipe="search-r1"),
    plan=plan_practice,
    train=train,
    solver_protocol=solver_protocol,
    takes_questions=True,
)
AUTOREFINE = Recipe(
    name="autorefine",
    summary="Search-R1 with a note on what was found after each search, which may be paid for",
    schema=AutoRefineConfig,
    presets=PRESETS,
    check=partial(check_practice, recipe="autorefine"),
    plan=plan_practice,
    train=train,
    solver_protocol=solver_protocol,
    takes_questions=True,
)
