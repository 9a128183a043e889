"""PCAR, process-calibrated advantage rescaling: advantage factors from the policy's search scores (EvalAct, Eq. 5-10).

A policy that scores each of its searches from 0 to 10 says which of them it relied on. The advantage of each step is
multiplied by a factor that depends on the score z relative to the other scores of the episode:

    z~     = (z - mean) / (std + epsilon)            population std over the scores of one episode
    lam    = base + (most - base) * z / 10           high scores change the factor more than low ones
    factor = max(floor, 1 + lam * z~)                always above 0, so an advantage never changes its sign

With one score, or with equal scores, every factor is exactly 1.
"""

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
    """PCAR factors of an episode, one per score.

    pcar_factors([0.0, 5.0, 10.0]) -> [0.878, 1.0, 1.612]
    """
    if any(not 0 <= score <= MAX_SCORE for score in scores):
        raise ValueError(f"every score must be in [0, {MAX_SCORE:g}]: got {list(scores)}")
    strengths = [base + (most - base) * score / MAX_SCORE for score in scores]
    places = standardise_scores(scores, epsilon=epsilon)
    return [max(floor, 1 + strength * place) for strength, place in zip(strengths, places, strict=True)]


def standardise_scores(scores: Sequence[float], *, epsilon: float = EPSILON) -> list[float]:
    """(z - mean) / (std + epsilon) with the population std; for K scores, absolute values are at most sqrt(K - 1).

    standardise_scores([2.0, 4.0]) -> [-1.0, 1.0]
    """
    # Compares the scores instead of testing std == 0: the mean of equal numbers may be off by a rounding.
    if len(set(scores)) <= 1:
        return [0.0] * len(scores)
    mean = fsum(scores) / len(scores)
    std = sqrt(fsum((score - mean) ** 2 for score in scores) / len(scores))
    # Where the squared deviations underflow to 0, the scores count as equal.
    return [(score - mean) / (std + epsilon) if std else 0.0 for score in scores]
