"""Calibration metrics of scores against binary labels: AUROC and expected calibration error (ECE).

auroc([2.0, 9.0, 9.0], [False, True, False]) -> 0.75
"""

import math
from collections.abc import Sequence
from itertools import groupby

from quaere.grouping import group_by


def auroc(scores: Sequence[float], labels: Sequence[bool]) -> float | None:
    """Area under the ROC curve, with ties counted as one half; None unless both labels occur.

    auroc([1.0, 2.0, 3.0], [False, True, True]) -> 1.0
    auroc([5.0, 5.0], [False, True]) -> 0.5
    """
    return auroc_within(scores, labels, [0] * len(scores))


def auroc_within(scores: Sequence[float], labels: Sequence[bool], groups: Sequence[int]) -> float | None:
    """Area under the ROC curve over the pairs of a positive and a negative of one group; None if there is no such pair.

    auroc_within([1.0, 2.0, 8.0, 9.0], [True, False, True, False], groups=[0, 0, 1, 1]) -> 0.0
    """
    _check(scores, labels)
    members = group_by(zip(scores, labels, groups, strict=True), lambda item: item[2])
    counted = [_count_wins([(score, bool(label)) for score, label, _ in some]) for some in members.values()]
    num_pairs = sum(pairs for _, pairs in counted)
    return sum(wins for wins, _ in counted) / num_pairs if num_pairs else None


def _count_wins(items: Sequence[tuple[float, bool]]) -> tuple[float, int]:
    """Pairs whose positive has the higher score, ties counted as one half, and the number of pairs."""
    wins, num_good, num_bad = 0.0, 0, 0
    for _, tied in groupby(sorted(items), key=lambda item: item[0]):
        flags = [label for _, label in tied]
        good, bad = flags.count(True), flags.count(False)
        wins += good * (num_bad + bad / 2)
        num_good, num_bad = num_good + good, num_bad + bad
    return wins, num_good * num_bad


def expected_calibration_error(chances: Sequence[float], labels: Sequence[bool], num_bins: int = 10) -> float | None:
    """Expected calibration error (ECE) with bins of equal width; None if there are no values.

    The mean over bins, weighted by size, of |mean predicted probability - share of positive labels|. A value on the
    edge of two bins belongs to the upper bin, and 1 to the last.

        expected_calibration_error([0.8, 0.8, 0.2], [True, False, False]) -> 0.267
    """
    _check(chances, labels)
    if num_bins < 1:
        raise ValueError(f"num_bins must be at least 1, not {num_bins}")
    if any(not 0 <= chance <= 1 for chance in chances):
        raise ValueError("every probability must be in [0, 1]")
    if not chances:
        return None
    pairs = zip(chances, map(bool, labels), strict=True)
    bins = group_by(pairs, lambda pair: min(int(pair[0] * num_bins), num_bins - 1))
    # Bin size times |mean probability - share of positives| equals |sum of probabilities - number of positives|.
    gaps = [abs(math.fsum(chance - label for chance, label in members)) for members in bins.values()]
    return math.fsum(gaps) / len(chances)


def _check(values: Sequence[float], labels: Sequence[bool]) -> None:
    if len(values) != len(labels):
        raise ValueError(f"scores and labels must have the same length: got {len(values)} and {len(labels)}")
    if not all(map(math.isfinite, values)):
        raise ValueError("every score must be a finite number")
