"""How the solver is spoken to: JSON calls, every search followed by its evaluation."""

from __future__ import annotations

from quaere.chat.protocol import Protocol
from quaere.dialects.registry import open_protocol
from quaere.recipes.evalact.config import EvalActConfig


def solver_protocol(config: EvalActConfig) -> Protocol:
    """While it is trained and in evaluation."""
    return open_protocol(config.solver.dialect, style=config.prompts, settings=config.solver.evaluation)
