"""How well scores tell good from bad: by hand, beside scikit-learn, and what must hold for any scores."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.rewards.self_evaluation import auroc, auroc_within, expected_calibration_error

TENTHS = st.integers(0, 10).map(lambda score: score / 10)
CLAIMS = st.lists(st.tuples(st.one_of(TENTHS, st.floats(0, 1)), st.booleans()), max_size=30)


def unzip(claims):
    return [value for value, _ in claims], [label for _, label in claims]


def test_auroc_by_hand():
    assert auroc([1.0, 2.0, 3.0], [False, True, True]) == 1.0
    assert auroc([3.0, 2.0, 1.0], [False, True, True]) == 0.0
    assert auroc([5.0] * 4, [False, True, True, False]) == 0.5
    # Of 2 x 2 pairs: 9 beats 2, 9 ties with 9, 4 beats 2, 4 loses to 9.
    assert auroc([2.0, 9.0, 9.0, 4.0], [False, True, False, True]) == (1 + 0.5 + 1 + 0) / 4


@pytest.mark.parametrize("labels", [[], [True], [False] * 3, [True] * 3])
def test_without_both_kinds_there_is_nothing_to_tell_apart(labels):
    assert auroc([1.0] * len(labels), labels) is None


@given(CLAIMS)
def test_auroc_is_scikit_learns(claims):
    metrics = pytest.importorskip("sklearn.metrics")
    scores, labels = unzip(claims)
    if len(set(labels)) == 2:
        assert auroc(scores, labels) == pytest.approx(metrics.roc_auc_score(labels, scores))


def test_auroc_within_groups_by_hand():
    # The first group is in the wrong order, the second in the right one, the third has no pair; 1 + 2 pairs.
    scores, labels = [1.0, 2.0, 8.0, 9.0, 7.0, 5.0], [True, False, False, True, False, True]
    assert auroc_within(scores, labels, [0, 0, 1, 1, 1, 2]) == 2 / 3
    assert auroc_within(scores[:2], [True, False], [0, 1]) is None


@given(st.lists(st.tuples(TENTHS, st.booleans(), st.integers(0, 2)), max_size=30))
def test_auroc_within_groups_is_counted_pair_by_pair(claims):
    pairs = [
        1.0 if good > bad else 0.5 if good == bad else 0.0
        for good, is_good, group in claims
        for bad, is_bad, other in claims
        if is_good and not is_bad and group == other
    ]
    found = auroc_within(*([list(part) for part in zip(*claims, strict=True)] or [[], [], []]))
    assert found == (pytest.approx(sum(pairs) / len(pairs)) if pairs else None)


@given(CLAIMS)
def test_auroc_turns_over_with_its_scores_and_knows_order_alone(claims):
    scores, labels = unzip(claims)
    found = auroc(scores, labels)
    if found is None:
        assert len(set(labels)) < 2
        return
    assert 0 <= found <= 1
    assert auroc([-score for score in scores], labels) == pytest.approx(1 - found)
    ranks = [sorted(set(scores)).index(score) for score in scores]
    assert auroc(ranks, labels) == found


def test_ece_by_hand():
    # Bin 8: claims 0.8 and 0.85, one good, gap |1.65 - 1|; bin 2: one claim of 0.2, bad; bin 9: 0.9 and 1.0, both good.
    found = expected_calibration_error([0.8, 0.2, 0.85, 0.9, 1.0], [True, False, False, True, True])
    assert found == pytest.approx((0.65 + 0.2 + 0.1) / 5)


def test_ece_of_extremes():
    assert expected_calibration_error([1.0, 0.0, 1.0], [True, False, True]) == 0.0
    assert expected_calibration_error([1.0, 0.0], [False, True]) == 1.0
    # A claim of a half is right if half of them are good, and claims in one bin may make up for one another.
    assert expected_calibration_error([0.5, 0.5], [False, True]) == 0.0
    assert expected_calibration_error([0.4, 0.6], [False, True]) == pytest.approx(0.4)
    assert expected_calibration_error([], []) is None


def test_every_whole_score_has_a_bin_of_its_own():
    """3 / 10 is no exact number; 0 to 9 fall into ten bins all the same, and 10 joins 9."""
    chances = [score / 10 for score in range(11)]
    apart = sum(chances[:9]) + (0.9 + 1.0)
    assert expected_calibration_error(chances, [False] * 11) == pytest.approx(apart / 11)
    # If 2 shared a bin with 3, their gaps would cancel out in part.
    assert expected_calibration_error([0.2, 0.3], [True, False]) == pytest.approx((0.8 + 0.3) / 2)
    assert expected_calibration_error([0.6, 0.7], [True, False]) == pytest.approx((0.4 + 0.7) / 2)


@given(CLAIMS)
def test_ece_lies_between_the_mean_gap_and_one(claims):
    chances, labels = unzip(claims)
    found = expected_calibration_error(chances, labels)
    if not claims:
        assert found is None
        return
    whole = abs(math.fsum(chances) / len(chances) - sum(labels) / len(labels))
    assert whole - 1e-9 <= found <= 1


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="same length"):
        auroc([1.0], [])
    with pytest.raises(ValueError, match="finite"):
        auroc([math.nan, 1.0], [True, False])
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        expected_calibration_error([1.5], [True])
