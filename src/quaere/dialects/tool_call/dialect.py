"""Dr. Zero's solver as a dialect."""

from __future__ import annotations

from quaere.dialects.solver import Solver, SolverDialect, SolverOptions
from quaere.dialects.tool_call.protocol import ToolCallSolver


def open_solver(options: SolverOptions) -> Solver:
    """JSON calls, paid for the answer."""
    protocol = ToolCallSolver(guided=options.guided, style=options.style, evidence=options.evidence)
    return Solver(protocol, options.plain_pay)


TOOL_CALL = SolverDialect(open_solver, can_be_guided=True, taught_as=("drzero", "eve"))
