"""Factors against values worked out by hand, and what must hold for any scores."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.objectives.pcar import pcar_factors, standardise_scores

SCORE = st.one_of(st.floats(0, 10), st.integers(0, 10).map(float))
SCORES = st.lists(SCORE, max_size=12)
STRENGTHS = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)


def test_three_steps_by_hand():
    # Mean 5 and variance 50 / 3; the strengths are 0.1, 0.3 and 0.5.
    place = 5 / math.sqrt(50 / 3)
    factors = pcar_factors([0.0, 5.0, 10.0], epsilon=0)
    assert factors == pytest.approx([1 - 0.1 * place, 1.0, 1 + 0.5 * place])
    # Mean 6, deviations -4, 1, 3, variance 26 / 3; the strengths are 0.18, 0.38 and 0.46.
    std = math.sqrt(26 / 3)
    factors = pcar_factors([2.0, 7.0, 9.0], epsilon=0)
    assert factors == pytest.approx([1 - 0.18 * 4 / std, 1 + 0.38 / std, 1 + 0.46 * 3 / std])


def test_epsilon_stands_beside_the_deviation():
    # By default a millionth: of scores a ten-thousandth apart it takes a fiftieth.
    apart = standardise_scores([2.0, 2.0001])[1]
    assert apart == pytest.approx(5e-5 / (5e-5 + 1e-6), rel=1e-6)
    assert standardise_scores([2.0, 4.0], epsilon=1.0) == [-0.5, 0.5]


@pytest.mark.parametrize("scores", [[], [0.0], [7.3], [10.0]])
def test_a_lone_score_says_nothing(scores):
    assert pcar_factors(scores) == [1.0] * len(scores)


@given(SCORE, st.integers(2, 9), st.floats(0, 1e-3))
def test_equal_scores_change_nothing_at_all(score, number, epsilon):
    assert pcar_factors([score] * number, epsilon=epsilon) == [1.0] * number


def test_scores_that_differ_by_a_rounding_change_next_to_nothing():
    assert pcar_factors([0.3, 0.1 + 0.2, 0.3]) == pytest.approx([1.0] * 3, abs=1e-9)


def test_the_floor_holds():
    # Of 9 scores the odd one lies sqrt(8) deviations out, at full strength below 0.
    scores = [1.0] + [2.0] * 8
    factors = pcar_factors(scores, base=1.0, most=1.0)
    assert factors[0] == 1e-6
    assert factors[1:] == pytest.approx([1 + 1 / math.sqrt(8)] * 8, abs=1e-4)
    assert pcar_factors(scores, base=1.0, most=1.0, floor=0.01)[0] == 0.01


@pytest.mark.parametrize(
    ("most", "floor", "ratio"), [(0.25, 1e-6, 1.25 / 0.75), (0.5, 1e-6, 3.0), (1.0, 0.01, 200.0), (1.0, 1e-6, 2e6)]
)
def test_the_papers_importance_ratios(most, floor, ratio):
    # Two scores lie one deviation out each; with one strength for all, the ratio is (1 + most) / max(floor, 1 - most).
    worst, best = pcar_factors([3.0, 8.0], base=most, most=most, floor=floor, epsilon=0)
    assert best / worst == pytest.approx(ratio)


@given(SCORES)
def test_no_score_lies_further_out_than_the_root_of_the_others(scores):
    places = standardise_scores(scores)
    assert all(abs(place) <= math.sqrt(len(scores) - 1) + 1e-9 for place in places)
    assert math.fsum(places) == pytest.approx(0, abs=1e-6)


def test_the_bound_is_met():
    assert standardise_scores([10.0] + [0.0] * 16, epsilon=0)[0] == pytest.approx(4.0)


@given(SCORES, STRENGTHS, st.floats(1e-9, 1), st.floats(-10, 10))
def test_an_advantage_keeps_its_sign(scores, strengths, floor, advantage):
    base, most = strengths
    factors = pcar_factors(scores, base=base, most=most, floor=floor)
    assert len(factors) == len(scores)
    for factor in factors:
        assert factor >= floor > 0
        assert factor <= 1 + most * math.sqrt(len(scores)) + 1e-9
        if abs(advantage) > 1e-200:
            assert math.copysign(1, factor * advantage) == math.copysign(1, advantage)


@given(SCORES, STRENGTHS)
def test_a_score_above_the_mean_counts_for_more(scores, strengths):
    base, most = strengths
    places = standardise_scores(scores)
    for place, factor in zip(places, pcar_factors(scores, base=base, most=most), strict=True):
        assert factor >= 1 if place >= 0 else factor <= 1


@given(SCORES)
def test_without_strength_nothing_changes(scores):
    assert pcar_factors(scores, base=0.0, most=0.0) == [1.0] * len(scores)


@pytest.mark.parametrize("scores", [[11.0], [5.0, -0.1], [math.nan, 1.0]])
def test_nonsense_is_refused(scores):
    with pytest.raises(ValueError, match="score"):
        pcar_factors(scores)
