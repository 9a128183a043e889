"""95 % confidence intervals of means over questions, and over seeds: percentile bootstrap, Wilson, Student.

    bootstrap_interval([1, 0, 0, 1]) -> Interval(mean=0.5, low=0.0, high=1.0, num=4)
    paired_difference([1, 1, 0], [0, 1, 0])  # the same three questions answered by two systems
    clustered_difference([1, 1, 0], [0, 1, 0], ["a", "a", "b"])  # the first two are about the same document
    mean_of_means([Interval(...), Interval(...)])  # over two sets of questions
    ratio_interval([3, 1], [4, 4])  # four of eight citations, in two reports
    smallest_difference([1, 1, 0], [0, 1, 0])  # the minimum detectable difference with three questions
    wilson_interval(8, 10) -> Interval(mean=0.8, low=0.490, high=0.943, num=10)  # a proportion
    seeded_difference([[1, 1], [1, 0]], [[0, 1], [0, 0]])  # two arms of two seeds each, the same two questions

The bootstrap resamples questions with replacement thousands of times and takes the central quantiles of the means. If
all values are equal, its interval has width zero, which overstates the certainty. `rate_interval` therefore uses
Wilson's interval for rates of 0 and 1, as does `ratio_interval`, and equal gains have an exact interval. With fewer
than 15 questions the bootstrap's interval is too narrow; a paired difference has Student's there.

An interval over questions covers the choice of questions for the same trained models, not the choice of the training
seed. For arms (models trained alike with several seeds) the hierarchical bootstrap draws seeds and questions; all seeds
answered the same questions, so each resample uses one draw of questions for all seeds. With two or three seeds the
bootstrap interval is too narrow, so Student's interval over the seeds' means is given as well.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from statistics import NormalDist, fmean
from typing import Literal

import numpy as np
from msgspec import Struct, structs

from quaere.grouping import grouped

_LEVEL, _POWER = 0.95, 0.8
_QUANTILES = (1 - _LEVEL) / 2, (1 + _LEVEL) / 2
_Z = NormalDist().inv_cdf(_QUANTILES[1])
_NUM_RESAMPLES = 10_000
_DETECTABLE = _Z + NormalDist().inv_cdf(_POWER)  # standard errors of a difference that is shown with a power of 80 %
# Student's t at 97.5 %, by degrees of freedom from 1.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
# Fewest clusters for the bootstrap: with 3 clusters its 95 % interval contains the true mean in 78 % of samples, with 8
# in 89 %; with single questions, most of which gain nothing, in 36 to 48 % and 65 to 88 %.
_LEAST_CLUSTERS = 15
_ROUNDING = 1e-12  # a smaller absolute value is 0 with a rounding error
_CHUNK = 1_000_000  # values resampled at once: bounds memory to about 16 MB for any number of questions

Values = Sequence[Sequence[float]]  # one row per seed, each with the same questions in the same order


class Bounded(Struct, frozen=True):
    """A mean between the bounds of its confidence interval; values that differ from 0 only by rounding are set to 0.

    Otherwise a bound of 3.7e-17 would exclude zero, and a mean of -3.2e-17 be printed as "-0.0".
    """

    mean: float
    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("mean", "low", "high"):
            if abs(getattr(self, name)) < _ROUNDING:
                structs.force_setattr(self, name, 0.0)

    @property
    def verdict(self) -> Literal["better", "worse", "not shown to be better"]:
        """What the interval of a difference says."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "not shown to be better"

    @property
    def is_clear(self) -> bool:
        """True if the interval of a difference excludes zero."""
        return self.low > 0 or self.high < 0


class Interval(Bounded, frozen=True):
    """The mean of `num` values with its confidence interval.

    Interval(mean=0.31, low=0.27, high=0.35, num=500)
    """

    num: int


def bootstrap_interval(values: Sequence[float], *, seed: int = 0, num_resamples: int = _NUM_RESAMPLES) -> Interval:
    """The mean of the values with its percentile bootstrap interval; deterministic for a given seed.

    bootstrap_interval([1.0, 1.0, 1.0]) -> Interval(mean=1.0, low=1.0, high=1.0, num=3)
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or not sample.size or not np.isfinite(sample).all():
        raise ValueError("a bootstrap interval needs at least one value, and all values must be finite")
    smallest, largest = float(sample.min()), float(sample.max())
    # Rounding can put the mean of equal values slightly outside their range.
    mean = float(np.clip(sample.mean(), smallest, largest))
    means = np.clip(_resampled_means(sample, seed, num_resamples), smallest, largest)
    return Interval(mean, *_bounds(mean, means), sample.size)


def rate_interval(values: Sequence[float]) -> Interval:
    """The mean of values in [0, 1] with Wilson's interval if all are 0 or all are 1, else with the bootstrap interval.

    Resampling "0 of 4 right" always gives 0 of 4, so the bootstrap would show no uncertainty.

        rate_interval([0, 0, 0, 0]) -> Interval(mean=0.0, low=0.0, high=0.490, num=4)
    """
    if values and all(value == values[0] for value in values) and values[0] in (0, 1):
        return wilson_interval(int(values[0]) * len(values), len(values))
    return bootstrap_interval(values)


def paired_difference(ours: Sequence[float], theirs: Sequence[float], *, most: float = 1.0) -> Interval:
    """Mean and interval of `ours - theirs` over the same questions in the same order; no gain is larger than `most`.

    Pairing removes the variance between easy and hard questions, so the interval is narrower than for unpaired samples.
    It is that of `clustered_difference`, with a cluster for every question.

        paired_difference([1, 1], [0, 0]) -> Interval(mean=1.0, low=-0.68, high=1.0, num=2)
    """
    if len(ours) != len(theirs):
        raise ValueError(f"a paired difference needs the same questions on both sides: {len(ours)} != {len(theirs)}")
    return clustered_difference(ours, theirs, range(len(ours)), most=most)


def clustered_difference(
    ours: Sequence[float], theirs: Sequence[float], clusters: Sequence[Hashable], *, most: float = 1.0
) -> Interval:
    """Mean and interval of `ours - theirs`, values from 0 to `most` on the same questions, some of which form clusters.

    Questions of one cluster depend on each other, so the bootstrap resamples whole clusters. With fewer than 15 its
    interval is too narrow; Student's is used instead, with k - 1 degrees of freedom for k clusters:

        t_0.975 sqrt(k / (k - 1) sum_c (sum of gains in c - mean * questions in c)^2) / questions

    A single cluster has no spread to estimate, so its interval is [-most, most]. If k clusters all gain g on average, a
    share of up to s = 1 - 0.025^(1 / k) of all clusters may gain something else: k draws would miss them in 2.5 % of
    samples. So the mean is in [g - s (g + most), g + s (most - g)]. Gains of 1 exclude zero from the sixth on, as in a
    sign test.

        clustered_difference([1, 1, 0], [0, 0, 0], ["a", "a", "b"]) -> Interval(mean=0.67, low=-1.0, high=1.0, num=3)
    """
    gains = [a - b for a, b in zip(ours, theirs, strict=True)]
    if not gains or not all(map(math.isfinite, gains)):
        raise ValueError("a difference needs at least one value on each side, and all values must be finite")
    found = [*grouped(zip(clusters, gains, strict=True)).values()]
    num, num_clusters, mean = len(gains), len(found), sum(gains) / len(gains)
    most = max(most, *map(abs, gains))  # where the caller's value is a guess
    squares = sum((sum(one) - mean * len(one)) ** 2 for one in found)
    if num_clusters == 1:
        return Interval(mean, -most, most, num)
    if squares < _ROUNDING:
        missed = 1 - (1 - _QUANTILES[1]) ** (1 / num_clusters)
        return Interval(mean, mean - missed * (mean + most), mean + missed * (most - mean), num)
    if num_clusters >= _LEAST_CLUSTERS:
        return structs.replace(ratio_interval([sum(one) for one in found], [len(one) for one in found]), num=num)
    half = _student(num_clusters - 1) * math.sqrt(num_clusters / (num_clusters - 1) * squares) / num
    return Interval(mean, max(-most, mean - half), min(most, mean + half), num)


def unpaired_difference(
    ours: Sequence[float], theirs: Sequence[float], *, num_resamples: int = _NUM_RESAMPLES
) -> Interval:
    """Mean and interval of `ours - theirs` over different questions; `num` is the number of values of both sides.

    Where all values of a side are 0 or all are 1, resampling it shows no uncertainty; the distances from the means to
    the bounds of both sides' rates are added in quadrature instead (Newcombe, 1998).

        unpaired_difference([1, 1], [0, 0, 0]) -> Interval(mean=1.0, low=0.14, high=1.0, num=5)
    """
    first, second = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    mean = float(first.mean() - second.mean())
    if any(len({*side}) == 1 for side in (ours, theirs)):
        one, other = rate_interval(ours), rate_interval(theirs)
        below, above = (one.mean - one.low, other.high - other.mean), (one.high - one.mean, other.mean - other.low)
        return Interval(mean, mean - math.hypot(*below), mean + math.hypot(*above), first.size + second.size)
    means = _resampled_means(first, 0, num_resamples) - _resampled_means(second, 1, num_resamples)
    return Interval(mean, *_bounds(mean, means), first.size + second.size)


def mean_of_means(means: Sequence[Interval]) -> Interval:
    """The mean of means over separate questions, each with the same weight, with an interval from theirs.

    A bound is as far from the mean as the root of the sum of their squared distances, over their number (MOVER, Zou and
    Donner 2008). Resampling the questions within each set gives the same up to its noise, but no width to a set in
    which all answers are right, or all are wrong.

        mean_of_means([Interval(0.3, 0.2, 0.4, 100), Interval(0.4, 0.3, 0.5, 100)])
        -> Interval(mean=0.35, low=0.279, high=0.421, num=200)
    """
    mean = fmean(one.mean for one in means)
    below = math.hypot(*(one.mean - one.low for one in means)) / len(means)
    above = math.hypot(*(one.high - one.mean for one in means)) / len(means)
    return Interval(mean, mean - below, mean + above, sum(one.num for one in means))


def ratio_interval(parts: Sequence[float], wholes: Sequence[float]) -> Interval:
    """sum(parts) / sum(wholes) with its bootstrap interval; questions are resampled with their part and whole.

    `num` is the number of questions. Resamples whose sum of wholes is 0 are skipped. If every part is 0, or every part
    its whole, the interval is Wilson's over the questions that have a whole; one question has no interval.

        ratio_interval([3, 1], [4, 4]).mean -> 0.5
    """
    tops, bottoms = np.asarray(parts, dtype=np.float64), np.asarray(wholes, dtype=np.float64)
    if tops.shape != bottoms.shape or tops.ndim != 1 or not bottoms.sum() > 0:
        raise ValueError("a ratio needs one part per whole, and the sum of the wholes must be above 0")
    if tops.size > 1 and (not tops.any() or np.array_equal(tops, bottoms)):
        found = wilson_interval(*(int(np.count_nonzero(values)) for values in (tops, bottoms)))
        return structs.replace(found, num=tops.size)
    # The same seed resamples the same questions for numerator and denominator.
    above, below = (_resampled_means(values, 0, _NUM_RESAMPLES) for values in (tops, bottoms))
    mean = float(tops.sum() / bottoms.sum())
    return Interval(mean, *_bounds(mean, above[below > 0] / below[below > 0]), tops.size)


def smallest_difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Minimum detectable difference: the true difference that these pairs would show with a power of 80 %.

    A difference is shown if its two-sided interval excludes zero. This requires

        (z_0.975 + z_0.8) * s / sqrt(n) = 2.80 s / sqrt(n)

    with s the standard deviation of the n differences. For fewer than 15, whose interval is Student's, that is
    too little: a sixth more is needed with 8. Two pseudo-observations, +1 and -1, of weight 1/2 each, are added to s:
    without them, two systems that agree on a few questions would have s = 0. Differences of rates never exceed 1, so a
    result above 1 means that no difference could have been shown.

        smallest_difference([1] * 150 + [0] * 250, [0] * 50 + [1] * 100 + [0] * 250) -> 0.047
    """
    if len(ours) != len(theirs) or len(ours) == 0:
        raise ValueError(f"a difference needs the same questions, at least one: {len(ours)} and {len(theirs)} given")
    gains = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    num = gains.size
    mean = gains.sum() / (num + 1)  # the pseudo-observations have a total weight of 1 and a mean of 0
    variance = (np.square(gains).sum() + 1) / (num + 1) - mean**2
    return float(_DETECTABLE * np.sqrt(variance / num))


def wilson_interval(num_hits: int, num: int) -> Interval:
    """A proportion with its Wilson score interval, which has a width even for 0 and 1.

        (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    wilson_interval(0, 10) -> Interval(mean=0.0, low=0.0, high=0.278, num=10)
    """
    if not 0 <= num_hits <= num or num < 1:
        raise ValueError(f"a proportion needs 0 <= num_hits <= num and num >= 1, not {num_hits} of {num}")
    share, scale = num_hits / num, 1 + _Z * _Z / num
    middle = (share + _Z * _Z / (2 * num)) / scale
    half = _Z * math.sqrt(share * (1 - share) / num + (_Z / (2 * num)) ** 2) / scale
    # Rounding can put an end past the proportion where that is 0 or 1.
    return Interval(share, max(0.0, min(middle - half, share)), min(1.0, max(middle + half, share)), num)


# --------------------------------------------------------------------------------------------------------------- seeds


class SeededInterval(Bounded, frozen=True):
    """A mean over `num_seeds` seeds and `num` questions with its interval over both.

    `by_seed` is Student's interval over the means of the seeds, None for one seed, whose interval is over questions
    only. `smallest` is the minimum detectable difference.

        SeededInterval(mean=0.059, low=0.042, high=0.076, num=2032, num_seeds=3, smallest=0.025,
                       by_seed=Interval(mean=0.059, low=0.035, high=0.083, num=3))
    """

    num: int
    num_seeds: int
    smallest: float
    by_seed: Interval | None = None


def seeded_interval(values: Values) -> SeededInterval:
    """The mean over seeds and questions with its interval over both."""
    rows = _as_matrix(values)
    return _over_both(rows, np.zeros_like(rows[:1]), rate_interval(rows.mean(axis=0).tolist()))


def seeded_difference(ours: Values, theirs: Values, *, same_start: bool = False) -> SeededInterval:
    """`ours - theirs`, paired by question, with its interval over questions and seeds.

    Each row has the values of one seed. With `same_start`, the n-th model of `ours` was trained from the n-th of
    `theirs`: both are resampled together, and Student's interval is over the differences per seed. Otherwise the seeds
    of each side are resampled independently. The interval includes that of `paired_difference` over the means of the
    seeds where the bootstrap is too narrow: with fewer than 15 questions, and if all resamples are equal.

        seeded_difference([[1, 1], [1, 1]], [[0, 0]]).mean -> 1.0
    """
    mine, others = _as_matrix(ours), _as_matrix(theirs)
    if mine.shape[1] != others.shape[1]:
        raise ValueError(f"a paired difference needs the same questions: {mine.shape[1]} != {others.shape[1]}")
    if same_start:
        if len(mine) != len(others):
            raise ValueError(f"seeds of the same start come in pairs: {len(mine)} != {len(others)}")
        mine, others = mine - others, np.zeros_like(others[:1])
    return _over_both(mine, others, paired_difference(mine.mean(axis=0).tolist(), others.mean(axis=0).tolist()))


def _over_both(mine: np.ndarray, others: np.ndarray, over: Interval) -> SeededInterval:
    """The difference with its interval over questions and seeds; `over` is that over questions of the seeds' means."""
    num, num_seeds = mine.shape[1], max(len(mine), len(others))
    least = smallest_difference(mine.mean(axis=0).tolist(), others.mean(axis=0).tolist())
    if num_seeds == 1:
        return SeededInterval(over.mean, over.low, over.high, num, 1, least)
    draws = _resampled_differences(mine, others)
    mean = float(mine.mean() - others.mean())
    low, high = _bounds(mean, draws)
    if num < _LEAST_CLUSTERS or high - low < _ROUNDING:
        low, high = min(low, over.low), max(high, over.high)
    least = max(least, _DETECTABLE * float(draws.std()))
    return SeededInterval(mean, low, high, num, num_seeds, least, _by_seed(mine.mean(axis=1), others.mean(axis=1)))


def seed_interval(means: Sequence[float]) -> Interval:
    """The mean of the seeds' means with Student's interval over the seeds; the number of questions plays no part.

    seed_interval([1.0, 2.0, 3.0]) -> Interval(mean=2.0, low=-0.484, high=4.484, num=3)
    """
    sample = np.asarray(means, dtype=np.float64)
    if sample.size < 2:
        raise ValueError("an interval over seeds needs at least two of them")
    half = _student(sample.size - 1) * float(sample.std(ddof=1)) / math.sqrt(sample.size)
    return Interval(float(sample.mean()), float(sample.mean()) - half, float(sample.mean()) + half, sample.size)


def _by_seed(ours: np.ndarray, theirs: np.ndarray) -> Interval:
    """Student's interval of the difference between two sets of per-seed means; Welch's if both have several seeds."""
    if len(theirs) == 1:
        return seed_interval((ours - theirs[0]).tolist())
    if len(ours) == 1:
        return seed_interval((ours[0] - theirs).tolist())
    variances = [side.var(ddof=1) / len(side) for side in (ours, theirs)]
    error = math.sqrt(sum(variances))
    weights = sum(value**2 / (len(side) - 1) for value, side in zip(variances, (ours, theirs), strict=True))
    # Rounded down, which widens the interval, but 1.9999999999999998 is 2. Equal means leave no spread to divide by.
    freedom = int(sum(variances) ** 2 / weights + _ROUNDING) if weights else 1
    mean, half = float(ours.mean() - theirs.mean()), _student(max(1, freedom)) * error
    return Interval(mean, mean - half, mean + half, len(ours) + len(theirs))


def _student(freedom: int) -> float:
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96 + 2.6 / freedom  # within 0.005


def _as_matrix(values: Values) -> np.ndarray:
    if not values or len({len(row) for row in values}) > 1 or not len(values[0]):
        raise ValueError("seeds need the same questions, at least one, and there must be a seed")
    return np.asarray(values, dtype=np.float64)


def _resampled_differences(mine: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Bootstrap differences of means: each resample draws one set of questions, and seeds for each side."""
    generator = np.random.default_rng(0)
    num = mine.shape[1]
    found = []
    for count in _chunks(num):
        drawn = generator.integers(0, num, size=(count, num))
        sides = []
        for side in (mine, others):
            averages = np.stack([row[drawn].mean(axis=1) for row in side], axis=1)
            seeds = generator.integers(0, len(side), size=averages.shape)
            sides.append(np.take_along_axis(averages, seeds, axis=1).mean(axis=1))
        found.append(sides[0] - sides[1])
    return np.concatenate(found)


def _bounds(mean: float, draws: np.ndarray) -> tuple[float, float]:
    """The central 95 % quantiles of resampled values, widened if necessary to include the mean."""
    low, high = np.quantile(draws, _QUANTILES)
    return min(float(low), mean), max(float(high), mean)


def _chunks(num: int, num_resamples: int = _NUM_RESAMPLES) -> Iterator[int]:
    """Sizes of the batches in which `num_resamples` resamples of `num` values are drawn, to bound memory."""
    rows = max(1, _CHUNK // num)
    for first in range(0, num_resamples, rows):
        yield min(rows, num_resamples - first)


def _resampled_means(sample: np.ndarray, seed: int, num_resamples: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    sizes = ((count, sample.size) for count in _chunks(sample.size, num_resamples))
    return np.concatenate([sample[generator.integers(0, sample.size, size=size)].mean(axis=1) for size in sizes])
