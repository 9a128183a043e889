"""Dr. Zero's tool calls, with a price for every search after the first."""

from functools import partial

from quaere.dialects.roles import DialectSettings, Solver, SolverDialect, solver_reward
from quaere.dialects.tool_call import ToolCallSolver, ToolCallTurns
from quaere.setting_types import NonNegativeFloat


class FrugalSettings(DialectSettings, frozen=True, forbid_unknown_fields=True):
    """Settings of a frugal solver.

    Attributes:
        price: Price of every search after the first. [Quaere]
    """

    price: NonNegativeFloat = 0.1


def pay_frugal(episode, price):
    right = solver_reward(episode)
    num_searches = sum(len(turn.results) for turn in episode.turns)
    return {"answer/exact_match": right, "reward/total": right - price * max(0, num_searches - 1)}


def open_solver(options):
    protocol = ToolCallSolver(style=options.style, evidence=options.evidence)
    return Solver(protocol, partial(pay_frugal, price=options.settings.price))


SOLVER = SolverDialect(open_solver, demonstration=ToolCallTurns(), settings=FrugalSettings)
