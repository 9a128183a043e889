"""Bootstrap intervals: hand cases, coverage, properties, and scipy's answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quaere.evaluation.intervals import Interval, bootstrap_interval, paired_difference

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3.7])
@pytest.mark.parametrize("num", [1, 3, 1000])
def test_equal_values_leave_no_width(value, num):
    assert bootstrap_interval([value] * num) == Interval(value, value, value, num)


def test_two_values():
    # Resampled means are 0, 1/2 and 1 with chances 1/4, 1/2 and 1/4.
    assert bootstrap_interval([0, 1]) == Interval(0.5, 0.0, 1.0, 2)
    assert bootstrap_interval([0, 1], level=0.4) == Interval(0.5, 0.5, 0.5, 2)


def test_more_questions_make_it_narrower():
    widths = [(lambda found: found.high - found.low)(bootstrap_interval([0, 1] * num)) for num in (10, 100, 1000)]
    # Width falls with the root of the number: 2 * 1.96 * 0.5 / sqrt(n).
    assert widths == pytest.approx([1.96 / np.sqrt(2 * num) for num in (10, 100, 1000)], rel=0.15)


def test_a_large_set_is_drawn_in_chunks_that_agree_with_one_draw(monkeypatch):
    sample = list(np.random.default_rng(5).random(300))
    whole = bootstrap_interval(sample, num_resamples=500)
    monkeypatch.setattr("quaere.evaluation.intervals._CHUNK", 1000)
    assert bootstrap_interval(sample, num_resamples=500) == whole


@settings(max_examples=60)
@given(values, st.integers(0, 5))
def test_it_holds_the_mean_lies_within_the_values_and_repeats(sample, seed):
    found = bootstrap_interval(sample, seed=seed, num_resamples=400)
    assert min(sample) <= found.low <= found.mean <= found.high <= max(sample)
    assert found.mean == pytest.approx(np.mean(sample), rel=1e-12, abs=1e-9)
    assert found == bootstrap_interval(sample, seed=seed, num_resamples=400)


def test_another_seed_draws_otherwise():
    sample = list(np.random.default_rng(1).random(50))
    assert bootstrap_interval(sample, seed=1) != bootstrap_interval(sample, seed=2)


def test_it_covers_the_truth_about_as_often_as_it_says():
    draw = np.random.default_rng(7)
    truth, num_covered = 0.3, 0
    for _ in range(300):
        found = bootstrap_interval(draw.random(120) < truth, num_resamples=1000)
        num_covered += found.low <= truth <= found.high
    # Expected 285 of 300, standard deviation 4; percentile intervals cover slightly less than they say.
    assert 270 <= num_covered <= 297


def test_it_agrees_with_scipy():
    stats = pytest.importorskip("scipy.stats")
    sample = np.random.default_rng(3).gamma(2.0, size=80)
    theirs = stats.bootstrap(
        (sample,), np.mean, n_resamples=10_000, method="percentile", rng=np.random.default_rng(11), vectorized=True
    ).confidence_interval
    ours = bootstrap_interval(sample)
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.03 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.03 * width)


def test_pairing_sees_a_small_steady_gain():
    draw = np.random.default_rng(9)
    hard = draw.random(200) < 0.5
    ours = hard | (draw.random(200) < 0.1)  # never worse
    paired = paired_difference(list(ours.astype(float)), list(hard.astype(float)))
    assert paired.low > 0
    assert paired.num == 200
    apart = bootstrap_interval(list(ours.astype(float)))
    assert paired.high - paired.low < apart.high - apart.low


@settings(max_examples=30)
@given(values, st.integers(0, 5))
def test_a_difference_with_itself_is_nothing(sample, seed):
    assert paired_difference(sample, sample, seed=seed) == Interval(0.0, 0.0, 0.0, len(sample))


@pytest.mark.parametrize("bad", [[], [float("nan")], [1.0, float("inf")]])
def test_values_without_a_mean_are_refused(bad):
    with pytest.raises(ValueError, match="at least one value"):
        bootstrap_interval(bad)


def test_other_misuse_is_refused():
    with pytest.raises(ValueError, match="the same questions: 1 against 2"):
        paired_difference([1], [1, 2])
    with pytest.raises(ValueError, match="between 0 and 1"):
        bootstrap_interval([1], level=95)
