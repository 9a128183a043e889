"""Who speaks how: the tool-call dialect for both roles, explained in full or in brief."""

from __future__ import annotations

from quaere.chat.toolcall import ToolCallProposer, ToolCallSolver
from quaere.recipes.drzero.config import DrZeroConfig


def proposer_protocol(config: DrZeroConfig) -> ToolCallProposer:
    """How the proposer is spoken to."""
    return ToolCallProposer(style=config.prompts)


def solver_protocol(config: DrZeroConfig) -> ToolCallSolver:
    """How the solver is spoken to, in both phases and in evaluation."""
    return ToolCallSolver(style=config.prompts)
