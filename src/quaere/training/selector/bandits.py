"""UCB1 bandits: statistics per arm, drawing arms, and updating them with rewards.

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
# Scores whose relative difference is below this differ only by rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Arms:
    """Per arm: number of pulls, sum of arm rewards, and sum of the raw rewards they were computed from.

    Arms(pulls=[1, 5], rewards=[0.0, 4.1], raw_rewards=[0.0, 1.6])
    """

    pulls: Integers
    rewards: Floats
    raw_rewards: Floats

    @staticmethod
    def fresh(num_arms: int) -> Arms:
        """Arms with one virtual pull of reward 0, so that no score is infinite."""
        return Arms(np.ones(num_arms, np.int64), np.zeros(num_arms), np.zeros(num_arms))

    def __len__(self) -> int:
        return len(self.pulls)


def score_arms(arms: Arms, exploration: float = 1.0) -> Floats:
    """Upper confidence bound of each arm: U = S / N + exploration * sqrt(log N_tot / N).

    score_arms(Arms(pulls=[1, 4], rewards=[0.0, 2.0], ...)) -> [sqrt(log 5), 0.5 + sqrt(log 5 / 4)]
    """
    pulls = np.maximum(arms.pulls, 1)
    bonus = np.sqrt(np.log(max(int(arms.pulls.sum()), 1)) / pulls)
    return np.asarray(arms.rewards / pulls + exploration * bonus)


def batch_probabilities(scores: Floats) -> Floats:
    """Probability of each arm in a batch: softmax of the scores divided by their standard deviation.

    batch_probabilities([1, 2, 3]) -> softmax([1, 2, 3] / 0.8165) = [0.0595, 0.2024, 0.7381]

    Arms with equal scores get equal probabilities.
    """
    below_best = scores - scores.max()
    widest = float(-below_best.min())
    if widest <= _ROUNDING * float(np.abs(scores).max()):
        return np.full(len(scores), 1 / len(scores))
    below_best = below_best / widest  # scaled to [-1, 0] first, so that squaring cannot overflow
    weights = np.exp(below_best / below_best.std())
    return np.asarray(weights / weights.sum())


def pull(arms: Arms, num: int, chance: np.random.Generator, exploration: float = 1.0) -> Integers:
    """Arms to pull: the best one if `num` is 1 (the first among equals), else a batch drawn by softmax.

    pull(Arms.fresh(5), 256, np.random.default_rng(7)) -> about 51 times each arm
    """
    scores = score_arms(arms, exploration)
    if num == 1:
        return np.array([int(scores.argmax())])
    return draw_weighted(batch_probabilities(scores), num, chance)


def learn_pulls(arms: Arms, pulled: Integers, earned: Floats, previous_mean: PreviousMean = "raw reward") -> Arms:
    """The arms updated with these pulls and the raw reward of each.

    An arm's reward is higher for rare arms and for a raw reward above the previous mean: `-log(N_k / N_tot) + 0.5 *
    (earned - previous mean)`. Counts and means are those before the update for all its pulls, so their order does not
    matter. The previous mean is that of the raw rewards or of the arm rewards; both include the virtual pull.

        learn_pulls(Arms.fresh(2), [0, 0], [0.5, 0.25])
        -> Arms(pulls=[3, 1], rewards=[2 log 2 + 0.375, 0], raw_rewards=[0.75, 0])
    """
    if len(pulled) != len(earned):
        raise ValueError(f"each pull needs one reward: {len(pulled)} pulls, {len(earned)} rewards")
    if not np.isfinite(earned).all():
        raise ValueError("rewards of pulls must be finite")
    if len(pulled) and not 0 <= pulled.min() <= pulled.max() < len(arms):
        raise ValueError(f"arms must be below {len(arms)}, not {int(pulled.min())} to {int(pulled.max())}")
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
    """Indices drawn with replacement in proportion to their weights; uniformly if all weights are zero.

    draw_weighted([0.0, 2.0, 0.0], 3, np.random.default_rng(7)) -> [1, 1, 1]
    """
    return draw_places(add_up(weights), num, chance)


def add_up(weights: Floats) -> Floats:
    """Cumulative sums for `draw_places`; weights that are all zero count as ones: `add_up([0, 0]) -> [1, 2]`."""
    sums = np.cumsum(weights)
    return sums if sums[-1] > 0 else np.arange(1.0, len(weights) + 1)


def draw_places(sums: Floats, num: int, chance: np.random.Generator) -> Integers:
    """Indices drawn with replacement from the cumulative sums of their weights."""
    places = np.searchsorted(sums, chance.random(num) * sums[-1], side="right")
    # A product that rounds up to the total would give an index after the last one with a weight.
    return np.asarray(np.minimum(places, np.searchsorted(sums, sums[-1])), dtype=np.int64)
