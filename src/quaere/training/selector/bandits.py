"""UCB1 bandits: arms, how good each may be, and what pulling them taught.

arms = Arms.fresh(3)
pulled = pull(arms, num=8, chance=np.random.default_rng(7))      # eight arms, drawn by how promising they are
arms = learn_pulls(arms, pulled, earned=np.full(8, 0.4))         # a new record; the old one stays as it was
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
PreviousMean = Literal["raw reward", "arm mean"]

UTILITY_WEIGHT = 0.5
_NEVER = 1e-8  # keeps the logarithm of a share finite
# Scores that lie closer than this (as a share of the largest) differ by rounding only.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Arms:
    """Per arm: how often it was pulled, the sum of its arm rewards, and the sum of the raw rewards these came from.

    Arms(pulls=[1, 5], rewards=[0.0, 4.1], raw_rewards=[0.0, 1.6])
    """

    pulls: Integers
    rewards: Floats
    raw_rewards: Floats

    @staticmethod
    def fresh(num_arms: int) -> Arms:
        """Arms with one virtual pull that earned nothing, so that no score is infinite."""
        return Arms(np.ones(num_arms, np.int64), np.zeros(num_arms), np.zeros(num_arms))

    def __len__(self) -> int:
        return len(self.pulls)


def score_arms(arms: Arms, exploration: float = 1.0) -> Floats:
    """The upper confidence bound of each arm: U = S / N + exploration * sqrt(log N_tot / N).

    score_arms(Arms(pulls=[1, 4], rewards=[0.0, 2.0], ...)) -> [sqrt(log 5), 0.5 + sqrt(log 5 / 4)]
    """
    pulls = np.maximum(arms.pulls, 1)
    bonus = np.sqrt(np.log(max(int(arms.pulls.sum()), 1)) / pulls)
    return np.asarray(arms.rewards / pulls + exploration * bonus)


def batch_probabilities(scores: Floats) -> Floats:
    """The chance of each arm in a batch: softmax of the scores in units of their own standard deviation.

    batch_probabilities([1, 2, 3]) -> softmax([1, 2, 3] / 0.8165) = [0.0595, 0.2024, 0.7381]

    Arms that score alike are drawn alike.
    """
    below_best = scores - scores.max()
    widest = float(-below_best.min())
    if widest <= _ROUNDING * float(np.abs(scores).max()):
        return np.full(len(scores), 1 / len(scores))
    below_best = below_best / widest  # first into [-1, 0], so that no statistics are too large to be squared
    weights = np.exp(below_best / below_best.std())
    return np.asarray(weights / weights.sum())


def pull(arms: Arms, num: int, chance: np.random.Generator, exploration: float = 1.0) -> Integers:
    """Which arms to pull: the best one if one is wanted (the first among equals), else a batch drawn by softmax.

    pull(Arms.fresh(5), 256, np.random.default_rng(7)) -> about 51 times each arm
    """
    scores = score_arms(arms, exploration)
    if num == 1:
        return np.array([int(scores.argmax())])
    return draw_weighted(batch_probabilities(scores), num, chance)


def learn_pulls(arms: Arms, pulled: Integers, earned: Floats, previous_mean: PreviousMean = "raw reward") -> Arms:
    """The arms after these pulls, each with the raw reward it earned.

    An arm is paid for being rare and for earning more than it used to:
    `-log(N_k / N_tot) + 0.5 * (earned - previous mean)`. Counts and means are those before this update, for all of
    its pulls, so their order does not matter. The previous mean is that of the raw rewards, or that of what the arm
    was paid; both count the virtual pull.

        learn_pulls(Arms.fresh(2), [0, 0], [0.5, 0.25])
        -> Arms(pulls=[3, 1], rewards=[2 log 2 + 0.375, 0], raw_rewards=[0.75, 0])
    """
    if len(pulled) != len(earned):
        raise ValueError(f"{len(pulled)} pulls earned {len(earned)} rewards")
    if not np.isfinite(earned).all():
        raise ValueError("a reward that is not finite cannot be learned from")
    if len(pulled) and not 0 <= pulled.min() <= pulled.max() < len(arms):
        raise ValueError(f"there are {len(arms)} arms, and arm {int(pulled.max())} or {int(pulled.min())} is not one")
    pulls = np.maximum(arms.pulls, 1)
    before = (arms.raw_rewards if previous_mean == "raw reward" else arms.rewards) / pulls
    rarity = -np.log(arms.pulls / max(int(arms.pulls.sum()), 1) + _NEVER)
    paid = rarity[pulled] + UTILITY_WEIGHT * (earned - before[pulled])
    return Arms(
        pulls=arms.pulls + np.bincount(pulled, minlength=len(arms)),
        rewards=arms.rewards + np.bincount(pulled, paid, minlength=len(arms)),
        raw_rewards=arms.raw_rewards + np.bincount(pulled, earned, minlength=len(arms)),
    )


def draw_weighted(weights: Floats, num: int, chance: np.random.Generator) -> Integers:
    """Places drawn with replacement, each with a chance in proportion to its weight; alike if all weights are zero.

    draw_weighted([0.0, 2.0, 0.0], 3, np.random.default_rng(7)) -> [1, 1, 1]
    """
    return draw_places(add_up(weights), num, chance)


def add_up(weights: Floats) -> Floats:
    """Running sums, for `draw_places`; weights that are all zero count as ones: `add_up([0, 0]) -> [1, 2]`."""
    sums = np.cumsum(weights)
    return sums if sums[-1] > 0 else np.arange(1.0, len(weights) + 1)


def draw_places(sums: Floats, num: int, chance: np.random.Generator) -> Integers:
    """Places drawn with replacement from the running sums of their weights."""
    places = np.searchsorted(sums, chance.random(num) * sums[-1], side="right")
    # A product that rounds up to the total would lie behind the last place that has a weight.
    return np.asarray(np.minimum(places, np.searchsorted(sums, sums[-1])), dtype=np.int64)
