"""Search-R1's, Eval-RAR's and AutoRefine's solvers as dialects."""

from __future__ import annotations

from functools import partial

from quaere.dialects.solver import Solver, SolverDialect, SolverOptions
from quaere.dialects.tagged.demonstration import TagTurns
from quaere.dialects.tagged.protocol import TagSolver
from quaere.dialects.tagged.reward import pay_noted


def open_search_r1(options: SolverOptions) -> Solver:
    """Queries in tags, paid for the answer."""
    return Solver(TagSolver("search-r1", style=options.style, evidence=options.evidence), options.plain_pay)


def open_evalrar(options: SolverOptions) -> Solver:
    """An evaluation after every search, paid for the answer or, failing that, for an evaluation that holds it."""
    protocol = TagSolver("evalrar", style=options.style, evidence=options.evidence)
    return Solver(protocol, partial(pay_noted, score=options.score, settings=options.settings))


def open_autorefine(options: SolverOptions) -> Solver:
    """The facts that were found after every search, paid likewise."""
    protocol = TagSolver("autorefine", style=options.style, evidence=options.evidence)
    return Solver(protocol, partial(pay_noted, score=options.score, settings=options.settings))


SEARCH_R1 = SolverDialect(open_search_r1, demonstration=TagTurns("search-r1"))
EVALRAR = SolverDialect(open_evalrar, demonstration=TagTurns("evalrar", "note"))
AUTOREFINE = SolverDialect(open_autorefine, score="f1", demonstration=TagTurns("autorefine", "facts"))
