"""Who speaks how: the tool-call dialect for both roles, with evidence."""

from __future__ import annotations

from quaere.chat.toolcall import ToolCallProposer, ToolCallSolver
from quaere.recipes.eve.config import EveConfig


def proposer_protocol(config: EveConfig) -> ToolCallProposer:
    """How the proposer is spoken to."""
    return ToolCallProposer(style=config.prompts, evidence=config.evidence.protocol)


def solver_protocol(config: EveConfig) -> ToolCallSolver:
    """How the solver is spoken to, in both phases and in evaluation."""
    return ToolCallSolver(style=config.prompts, evidence=config.evidence.protocol)
