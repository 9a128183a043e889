"""PCAR (EvalAct, Eq. 5 to 10): what each step of an episode counts, by the policy's own scores.

A policy that scores each of its searches from 0 to 10 has said which of them it relied on. Each step's share of the
episode's advantage is made larger or smaller by how its score z stands among those of the same episode:

    z~     = (z - mean) / (std + epsilon)            the population's std, over the scores of one episode
    lam    = base + (most - base) * z / 10           high scores are taken more seriously than low ones
    factor = max(floor, 1 + lam * z~)                never 0 or less, so an advantage never changes its sign

With one score, or with scores that are all equal, nothing is said about any step: every factor is exactly 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt

MAX_SCORE = 10.0
BASE = 0.1
MOST = 0.5
FLOOR = 1e-6
EPSILON = 1e-6


def pcar_factors(
    scores: Sequence[float], *, base: float = BASE, most: float = MOST, floor: float = FLOOR, epsilon: float = EPSILON
) -> list[float]:
    """One factor per score of an episode.

    pcar_factors([0.0, 5.0, 10.0]) -> [0.878, 1.0, 1.612]
    """
    if base < 0 or most < 0:
        raise ValueError(f"a strength is not negative: base {base}, most {most}")
    if floor <= 0:
        raise ValueError(f"the floor is above 0, or an advantage could vanish or change its sign: {floor}")
    if any(not 0 <= score <= MAX_SCORE for score in scores):
        raise ValueError(f"a score lies in [0, {MAX_SCORE:g}]: got {list(scores)}")
    strengths = [base + (most - base) * score / MAX_SCORE for score in scores]
    places = standardise_scores(scores, epsilon=epsilon)
    return [max(floor, 1 + strength * place) for strength, place in zip(strengths, places, strict=True)]


def standardise_scores(scores: Sequence[float], *, epsilon: float = EPSILON) -> list[float]:
    """(z - mean) / (std + epsilon) with the population's std; of K scores none lies further out than sqrt(K - 1).

    standardise_scores([2.0, 4.0]) -> [-1.0, 1.0]
    """
    if epsilon < 0:
        raise ValueError(f"epsilon is not negative: {epsilon}")
    # Decided by comparing, not by the deviation: the mean of equal numbers may be off by a rounding.
    if len(set(scores)) <= 1:
        return [0.0] * len(scores)
    mean = fsum(scores) / len(scores)
    std = sqrt(fsum((score - mean) ** 2 for score in scores) / len(scores))
    # Scores so close that their squares are nothing differ in nothing.
    return [(score - mean) / (std + epsilon) if std else 0.0 for score in scores]


def importance_ratio(most: float, floor: float = FLOOR) -> float:
    """How much more the best step counts than the worst, if both lie one deviation out at full strength.

    A closed form to compare settings by: with more than two scores a step may lie further out than that.

        importance_ratio(0.5) -> 3.0
    """
    return (1 + most) / max(floor, 1 - most)
