"""Registers the solvers of Search-R1, Eval-RAR and AutoRefine as dialects."""

from __future__ import annotations

from functools import partial

from quaere.dialects.solver_dialect import Solver, SolverDialect, SolverOptions
from quaere.dialects.tagged.demonstration import TagTurns
from quaere.dialects.tagged.protocol import TagSolver
from quaere.dialects.tagged.reward import pay_noted


def open_search_r1(options: SolverOptions) -> Solver:
    """Search-R1's solver: queries in tags, reward for the answer."""
    return Solver(TagSolver("search-r1", style=options.style, evidence=options.evidence), options.plain_pay)


def open_evalrar(options: SolverOptions) -> Solver:
    """Eval-RAR's solver: a note after every search; reward for the answer, else a bonus for a note that contains it."""
    protocol = TagSolver("evalrar", style=options.style, evidence=options.evidence)
    return Solver(protocol, partial(pay_noted, score=options.score, settings=options.settings))


def open_autorefine(options: SolverOptions) -> Solver:
    """AutoRefine's solver: the facts found, after every search; rewarded like Eval-RAR's."""
    protocol = TagSolver("autorefine", style=options.style, evidence=options.evidence)
    return Solver(protocol, partial(pay_noted, score=options.score, settings=options.settings))


SEARCH_R1 = SolverDialect(open_search_r1, demonstration=TagTurns("search-r1"))
EVALRAR = SolverDialect(open_evalrar, demonstration=TagTurns("evalrar", "note"))
AUTOREFINE = SolverDialect(open_autorefine, score="f1", demonstration=TagTurns("autorefine", "facts"))
