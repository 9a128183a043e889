"""Who speaks how: the tool-call dialect for the proposer, and for the solver whichever its config names."""

from __future__ import annotations

from quaere.chat.protocol import Protocol
from quaere.dialects.registry import find_dialect, open_protocol
from quaere.recipes.drzero.config import DrZeroConfig


def proposer_protocol(config: DrZeroConfig) -> Protocol:
    """How the proposer is spoken to."""
    return find_dialect("tool-call", "proposer").open(style=config.prompts)


def solver_protocol(config: DrZeroConfig) -> Protocol:
    """How the solver is spoken to, in both phases and in evaluation."""
    return open_protocol(config.solver.dialect, style=config.prompts, settings=config.solver.evaluation)
