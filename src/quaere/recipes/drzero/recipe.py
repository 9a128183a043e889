"""Registers Dr. Zero for the command line."""

from __future__ import annotations

from quaere.recipes.drzero.config import PRESETS, DrZeroConfig
from quaere.recipes.drzero.protocols import solver_protocol
from quaere.recipes.drzero.train import evolve
from quaere.recipes.registry import Recipe
from quaere.runs import Run
from quaere.training.progress import Reporter
from quaere.training.run_setup import check_openable, open_run, open_training
from quaere.training.self_play.config import check_self_play, needed_dialects
from quaere.training.self_play.schedule import ROLES, count_steps, plan_self_play


async def train(config: DrZeroConfig, store: Run, reporter: Reporter) -> None:
    """Train from the run's last checkpoint, or from the start; close all resources at the end."""
    async with open_run(config, ROLES, reporter) as opened:
        training = open_training(
            config, store, opened.actors, reporter, count_steps(config), read_document=opened.index.document
        )
        await evolve(config, training, opened.index, opened.searcher)


def check(config: DrZeroConfig) -> None:
    """Raise `BadInput` for settings that cannot be run, before anything is loaded."""
    check_self_play(config)
    check_openable(config, "drzero", needed_dialects(config, "drzero"))


DRZERO = Recipe(
    name="drzero",
    summary="a proposer and a solver that teach each other, without data",
    schema=DrZeroConfig,
    presets=PRESETS,
    check=check,
    plan=plan_self_play,
    train=train,
    solver_protocol=solver_protocol,
    given=lambda config: config.generation.given,
)
