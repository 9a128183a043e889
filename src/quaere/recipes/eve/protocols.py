"""Protocols of EVE's roles, with evidence: tool-call for the proposer, the configured dialect for the solver."""

from __future__ import annotations

from quaere.chat.protocol import Protocol
from quaere.dialects.registry import find_dialect, open_protocol
from quaere.recipes.eve.config import EveConfig


def proposer_protocol(config: EveConfig) -> Protocol:
    """The proposer's protocol."""
    return find_dialect("tool-call", "proposer").open(style=config.prompts, evidence=config.evidence.cite)


def solver_protocol(config: EveConfig) -> Protocol:
    """The solver's protocol, in both phases and in evaluation."""
    solver = config.solver
    return open_protocol(
        solver.dialect, style=config.prompts, evidence=config.evidence.cite, settings=solver.evaluation
    )
