"""Protocols of Dr. Zero's roles: tool-call for the proposer, the configured dialect for the solver."""

from __future__ import annotations

from quaere.chat.protocol import Protocol
from quaere.dialects.registry import find_dialect, open_protocol
from quaere.recipes.drzero.config import DrZeroConfig


def proposer_protocol(config: DrZeroConfig) -> Protocol:
    """The proposer's protocol."""
    return find_dialect("tool-call", "proposer").open(style=config.prompts)


def solver_protocol(config: DrZeroConfig) -> Protocol:
    """The solver's protocol, in both phases and in evaluation."""
    return open_protocol(config.solver.dialect, style=config.prompts, settings=config.solver.evaluation)
