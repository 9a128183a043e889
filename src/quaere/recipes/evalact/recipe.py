"""Registers EvalAct for the command line."""

from __future__ import annotations

from quaere.recipes.evalact.config import PRESETS, EvalActConfig
from quaere.recipes.evalact.protocols import solver_protocol
from quaere.recipes.evalact.train import train
from quaere.recipes.registry import Recipe
from quaere.training.qa_run import check_practice, plan_practice


def check(config: EvalActConfig) -> None:
    """Raise `BadInput` for settings that cannot be run, before anything is loaded."""
    check_practice(config, "evalact")


EVALACT = Recipe(
    name="evalact",
    summary="a solver that scores each of its searches, and learns most from those it relied on",
    schema=EvalActConfig,
    presets=PRESETS,
    check=check,
    plan=plan_practice,
    train=train,
    solver_protocol=solver_protocol,
    takes_questions=True,
)
