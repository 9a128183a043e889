"""How far a mean over questions can be trusted: percentile bootstrap intervals.

    bootstrap_interval([1, 0, 0, 1]) -> Interval(mean=0.5, low=0.0, high=1.0, num=4)
    paired_difference([1, 1, 0], [0, 1, 0])  # the same three questions answered by two systems
    ratio_interval([3, 1], [4, 4])  # four of eight citations, in two reports
    smallest_difference([1, 1, 0], [0, 1, 0])  # how large a difference had to be for three questions to show it
    wilson_interval(8, 10) -> Interval(mean=0.8, low=0.490, high=0.943, num=10)  # a share of counted things

The questions are drawn anew, with replacement, thousands of times; the interval is where the middle of those means
lies. Values that are all equal give an interval of no width: the bootstrap cannot imagine what it has not seen. So the
interval of a rate is Wilson's where it is 0 or 1 (`rate_interval`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from msgspec import Struct

_NUM_RESAMPLES = 10_000
_CHUNK = 1_000_000  # values drawn at once: some 16 MB with their indices, however many questions there are


class Interval(Struct, frozen=True):
    """A mean of `num` values and the interval around it.

    Interval(mean=0.31, low=0.27, high=0.35, num=500)
    """

    mean: float
    low: float
    high: float
    num: int


def bootstrap_interval(
    values: Sequence[float], *, level: float = 0.95, seed: int = 0, num_resamples: int = _NUM_RESAMPLES
) -> Interval:
    """The mean of the values with its percentile bootstrap interval; the same for the same seed.

    bootstrap_interval([1.0, 1.0, 1.0]) -> Interval(mean=1.0, low=1.0, high=1.0, num=3)
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or not sample.size or not np.isfinite(sample).all():
        raise ValueError("an interval needs at least one value, and all of them finite")
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, not {level}")
    smallest, largest = float(sample.min()), float(sample.max())
    # Rounding may carry the mean of equal values past them.
    mean = float(np.clip(sample.mean(), smallest, largest))
    means = np.clip(_resampled_means(sample, seed, num_resamples), smallest, largest)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(mean, min(float(low), mean), max(float(high), mean), sample.size)


def rate_interval(values: Sequence[float], *, level: float = 0.95, seed: int = 0) -> Interval:
    """The mean of values from 0 to 1 with its interval: Wilson's where all are 0 or all are 1, else the bootstrap.

    Resampling none right of four gives none right of four, as if there were no doubt.

        rate_interval([0, 0, 0, 0]) -> Interval(mean=0.0, low=0.0, high=0.490, num=4)
    """
    if values and all(value == values[0] for value in values) and values[0] in (0, 1):
        return wilson_interval(int(values[0]) * len(values), len(values), level=level)
    return bootstrap_interval(values, level=level, seed=seed)


def paired_difference(
    ours: Sequence[float], theirs: Sequence[float], *, level: float = 0.95, seed: int = 0
) -> Interval:
    """Mean and interval of `ours - theirs` over the same questions in the same order.

    Pairing takes out what both find hard or easy, so it is narrower than two intervals laid side by side.

        paired_difference([1, 1], [0, 0]) -> Interval(mean=1.0, low=1.0, high=1.0, num=2)
    """
    if len(ours) != len(theirs):
        raise ValueError(f"a paired difference needs the same questions: {len(ours)} against {len(theirs)}")
    return bootstrap_interval([a - b for a, b in zip(ours, theirs, strict=True)], level=level, seed=seed)


def ratio_interval(parts: Sequence[float], wholes: Sequence[float], *, level: float = 0.95, seed: int = 0) -> Interval:
    """All parts over all wholes, with its interval: questions are drawn anew, each with its part and its whole.

    `num` counts the questions. A draw in which there is nothing to divide by is left out.

        ratio_interval([3, 1], [4, 4]).mean -> 0.5
    """
    tops, bottoms = np.asarray(parts, dtype=np.float64), np.asarray(wholes, dtype=np.float64)
    if tops.shape != bottoms.shape or tops.ndim != 1 or not bottoms.sum() > 0:
        raise ValueError("a ratio needs a part for every whole, and something to divide by")
    # The same seed draws the same questions for both.
    above, below = (_resampled_means(values, seed, _NUM_RESAMPLES) for values in (tops, bottoms))
    ratios = above[below > 0] / below[below > 0]
    mean = float(tops.sum() / bottoms.sum())
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    return Interval(mean, min(float(low), mean), max(float(high), mean), tops.size)


def smallest_difference(
    ours: Sequence[float], theirs: Sequence[float], *, level: float = 0.95, power: float = 0.8
) -> float:
    """The smallest true difference that so many pairs, as noisy as these, would show with a chance of `power`.

    To show a difference is to have its two-sided interval (`level`) leave out zero. That takes

        (z_(1 - (1 - level) / 2) + z_power) * s / sqrt(n)      # 2.80 s / sqrt(n) as it stands

    with s the standard deviation of the n differences. One imagined pair in which ours is better by 1 and one in which
    theirs is, of half a pair's weight each, are added to s: two systems that happened to agree on a few questions could
    still have differed. Differences of rates never exceed 1, so a result above 1 says that no difference could have
    been shown.

        smallest_difference([1] * 150 + [0] * 250, [0] * 50 + [1] * 100 + [0] * 250) -> 0.047
    """
    if len(ours) != len(theirs) or len(ours) == 0:
        raise ValueError(f"a difference needs the same questions, at least one: {len(ours)} against {len(theirs)}")
    if not 0 < level < 1 or not 0 < power < 1:
        raise ValueError(f"level and power lie between 0 and 1, not {level} and {power}")
    gains = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    num = gains.size
    mean = gains.sum() / (num + 1)  # the imagined pairs weigh 1 together, and their mean is 0
    variance = (np.square(gains).sum() + 1) / (num + 1) - mean**2
    z = NormalDist().inv_cdf((1 + level) / 2) + NormalDist().inv_cdf(power)
    return float(z * np.sqrt(variance / num))


def wilson_interval(num_hits: int, num: int, *, level: float = 0.95) -> Interval:
    """A share with its Wilson score interval, which has a width even where all or none are hits.

        (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    wilson_interval(0, 10) -> Interval(mean=0.0, low=0.0, high=0.278, num=10)
    """
    if not 0 <= num_hits <= num or num < 1:
        raise ValueError(f"a share needs at least one thing and no more hits than things: {num_hits} of {num}")
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, not {level}")
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, scale = num_hits / num, 1 + z * z / num
    middle = (share + z * z / (2 * num)) / scale
    half = z * math.sqrt(share * (1 - share) / num + (z / (2 * num)) ** 2) / scale
    # Rounding may carry an end past the share where that is 0 or 1.
    return Interval(share, max(0.0, min(middle - half, share)), min(1.0, max(middle + half, share)), num)


def _resampled_means(sample: np.ndarray, seed: int, num_resamples: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    means = np.empty(num_resamples)
    rows = max(1, _CHUNK // sample.size)
    for first in range(0, num_resamples, rows):
        count = min(rows, num_resamples - first)
        drawn = generator.integers(0, sample.size, size=(count, sample.size))
        means[first : first + count] = sample[drawn].mean(axis=1)
    return means
