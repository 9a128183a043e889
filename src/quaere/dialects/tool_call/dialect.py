"""Registers Dr. Zero's solver and proposer as a dialect."""

from __future__ import annotations

from quaere.dialects.roles import ProposerDialect
from quaere.dialects.solver_dialect import Solver, SolverDialect, SolverOptions
from quaere.dialects.tool_call.demonstration import ToolCallProposals, ToolCallTurns
from quaere.dialects.tool_call.protocol import ToolCallProposer, ToolCallSolver


def open_solver(options: SolverOptions) -> Solver:
    """Dr. Zero's solver: JSON calls, reward for the answer."""
    protocol = ToolCallSolver(guided=options.guided, style=options.style, evidence=options.evidence)
    return Solver(protocol, options.plain_pay)


SOLVER = SolverDialect(open_solver, can_be_guided=True, demonstration=ToolCallTurns())
PROPOSER = ProposerDialect(ToolCallProposer, demonstration=ToolCallProposals())
