"""Registers Eval-RAR for the command line."""

from __future__ import annotations

from quaere.recipes.evalrar.config import PRESETS, EvalRarConfig
from quaere.recipes.evalrar.protocols import solver_protocol
from quaere.recipes.evalrar.train import train
from quaere.recipes.registry import Recipe
from quaere.training.qa_run import check_practice, plan_practice


def check(config: EvalRarConfig) -> None:
    """Raise `BadInput` for settings that cannot be run, before anything is loaded."""
    check_practice(config, "evalrar")


EVALRAR = Recipe(
    name="evalrar",
    summary="a solver that writes after each search what it found or what is missing, and may be paid for it",
    schema=EvalRarConfig,
    presets=PRESETS,
    check=check,
    plan=plan_practice,
    train=train,
    solver_protocol=solver_protocol,
    takes_questions=True,
)
