"""Who speaks how, both with evidence: the tool-call dialect for the proposer, for the solver whichever is set."""

from __future__ import annotations

from quaere.chat.protocol import Protocol
from quaere.dialects.registry import find_dialect, open_protocol
from quaere.recipes.eve.config import EveConfig


def proposer_protocol(config: EveConfig) -> Protocol:
    """How the proposer is spoken to."""
    return find_dialect("tool-call", "proposer").open(style=config.prompts, evidence=config.evidence.protocol)


def solver_protocol(config: EveConfig) -> Protocol:
    """How the solver is spoken to, in both phases and in evaluation."""
    solver = config.solver
    return open_protocol(
        solver.dialect, style=config.prompts, evidence=config.evidence.protocol, settings=solver.evaluation
    )
