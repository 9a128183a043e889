"""A solver that learns on given questions to answer with few searches."""

from quaere.recipes.practice import practice_recipe
from quaere.training.given import PracticeConfig
from quaere.training.solver_phase import SolverConfig


class FrugalConfig(PracticeConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of a frugal run."""

    solver: SolverConfig = SolverConfig(dialect="frugal", steps=200, batch=64, attempts=8)


FRUGAL = practice_recipe("frugal", FrugalConfig, "a solver that pays for its searches")
