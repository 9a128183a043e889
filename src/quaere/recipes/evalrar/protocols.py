"""Prompts of Eval-RAR's solver: tags, and an evaluation after every search."""

from __future__ import annotations

from quaere.chat.protocol import Protocol
from quaere.dialects.registry import open_protocol
from quaere.recipes.evalrar.config import EvalRarConfig


def solver_protocol(config: EvalRarConfig) -> Protocol:
    """The solver's protocol, in training and in evaluation."""
    return open_protocol(config.solver.dialect, style=config.prompts, settings=config.solver.evaluation)
