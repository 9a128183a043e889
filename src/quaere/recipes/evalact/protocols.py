"""Prompts of EvalAct's solver: JSON calls, every search followed by its evaluation."""

from __future__ import annotations

from quaere.chat.protocol import Protocol
from quaere.dialects.registry import open_protocol
from quaere.recipes.evalact.config import EvalActConfig


def solver_protocol(config: EvalActConfig) -> Protocol:
    """The solver's protocol, in training and in evaluation."""
    return open_protocol(config.solver.dialect, style=config.prompts, settings=config.solver.evaluation)
