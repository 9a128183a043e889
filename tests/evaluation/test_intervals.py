"""Bootstrap intervals: hand cases, coverage, properties, and scipy's answer."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from properties import examples
from quaere.evaluation.intervals import (
    Interval,
    bootstrap_interval,
    clustered_difference,
    mean_of_means,
    paired_difference,
    rate_interval,
    seed_interval,
    seeded_difference,
    seeded_interval,
    smallest_difference,
    wilson_interval,
)

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3.7])
@pytest.mark.parametrize("num", [1, 3, 1000])
def test_equal_values_leave_no_width(value, num):
    assert bootstrap_interval([value] * num) == Interval(value, value, value, num)


def test_a_rate_of_none_or_all_has_a_width():
    z2 = 1.959964**2  # by hand, Wilson's interval of none of n ends at z^2 / (n + z^2)
    assert structs.astuple(rate_interval([0, 0, 0, 0])) == pytest.approx((0.0, 0.0, z2 / (4 + z2), 4))
    assert structs.astuple(rate_interval([1.0] * 4)) == pytest.approx((1.0, 4 / (4 + z2), 1.0, 4))
    with pytest.raises(ValueError, match="at least one value"):
        rate_interval([])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_a_rate_lies_in_its_interval_and_elsewhere_it_is_the_bootstraps(sample):
    found = rate_interval(sample)
    assert 0 <= found.low <= found.mean <= found.high <= 1
    if set(sample) - {0.0} and set(sample) - {1.0}:
        assert found == bootstrap_interval(sample)
    else:
        assert found.high - found.low > 0


def test_two_values():
    # Resampled means are 0, 1/2 and 1 with chances 1/4, 1/2 and 1/4.
    assert bootstrap_interval([0, 1]) == Interval(0.5, 0.0, 1.0, 2)


def test_more_questions_make_it_narrower():
    widths = [(lambda found: found.high - found.low)(bootstrap_interval([0, 1] * num)) for num in (10, 100, 1000)]
    # Width falls with the root of the number: 2 * 1.96 * 0.5 / sqrt(n).
    assert widths == pytest.approx([1.96 / np.sqrt(2 * num) for num in (10, 100, 1000)], rel=0.15)


def test_a_large_set_is_drawn_in_chunks_that_agree_with_one_draw(monkeypatch):
    sample = list(np.random.default_rng(5).random(300))
    whole = bootstrap_interval(sample, num_resamples=500)
    monkeypatch.setattr("quaere.evaluation.intervals._CHUNK", 1000)
    assert bootstrap_interval(sample, num_resamples=500) == whole


def test_every_resample_is_drawn():
    # With one resample, both ends are its mean: of -1 and 1 that is -1, 0 or 1, whatever memory held before.
    ends = {bootstrap_interval([-1, 1], seed=seed, num_resamples=1).low for seed in range(20)}
    assert ends == {-1.0, 0.0}  # the lower end is never above the mean, 0


@settings(max_examples=examples(60))
@given(values, st.integers(0, 5))
def test_it_holds_the_mean_lies_within_the_values_and_repeats(sample, seed):
    found = bootstrap_interval(sample, seed=seed, num_resamples=400)
    # What is 0 but for rounding is 0.
    assert min(sample) - 1e-12 <= found.low <= found.mean <= found.high <= max(sample) + 1e-12
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


@settings(max_examples=examples(30))
@given(values)
def test_a_difference_with_itself_is_nothing_shown(sample):
    found = paired_difference(sample, sample)
    assert (found.mean, found.num, found.low) == (0.0, len(sample), -found.high)
    assert found.high == pytest.approx(1.0 if len(sample) == 1 else 1 - 0.025 ** (1 / len(sample)))


@pytest.mark.parametrize("num", [1, 2, 5, 6, 30])
def test_equal_gains_prove_as_much_as_in_a_sign_test(num):
    """By hand: of five gains, a share of 1 - 0.025^(1/5) = 0.5218 may be missed, so the mean may be 1 - 2 * 0.5218."""
    stats = pytest.importorskip("scipy.stats")
    ours, theirs = [1.0] * num, [0.0] * num
    found = paired_difference(ours, theirs)
    assert found.verdict == ("better" if num >= 6 else "not shown to be better") and found.high == 1.0
    assert (stats.binomtest(num, num).pvalue < 0.05) == found.is_clear
    if num == 5:
        assert found.low == pytest.approx(-0.0436, abs=1e-4)
    graded = paired_difference([10.0 * one for one in ours], theirs, most=10.0)
    assert (graded.mean, graded.low, graded.high) == pytest.approx((10.0, 10 * found.low, 10.0))


@pytest.mark.parametrize("num", [3, 5, 8, 12])
@pytest.mark.parametrize("chances", [(0.15, 0.65, 0.2), (0.05, 0.8, 0.15)])
def test_the_interval_of_a_few_questions_has_the_true_gain_in_95_of_100_samples(num, chances):
    """Most questions gain nothing, and a few samples nothing at all: the bootstrap's has it in 36 to 88 of 100."""
    draw = np.random.default_rng(num)
    samples = draw.choice([-1.0, 0.0, 1.0], p=chances, size=(300, num))
    found = [paired_difference(gains.tolist(), [0.0] * num) for gains in samples]
    truth = chances[2] - chances[0]
    assert sum(one.low <= truth <= one.high for one in found) >= 0.93 * len(found)


def test_few_paired_questions_have_students_interval():
    """By hand: gains 1, 0, 1, 0 have the standard deviation 0.5774, and t is 3.182: 0.5 +- 3.182 * 0.5774 / 2."""
    found = paired_difference([1, 0, 1, 1], [0, 0, 0, 1])
    assert (found.mean, found.num) == (0.5, 4)
    assert (found.low, found.high) == pytest.approx((0.5 - 3.182 * 0.57735 / 2, 1.0), abs=1e-5)
    graded = paired_difference([9.0, 5.0, 9.0, 5.0], [5.0] * 4, most=10.0)
    assert graded.high == pytest.approx(2 + 4 * 3.182 * 0.57735 / 2, abs=1e-4)
    words = paired_difference([210.0, 190.0], [100.0, 120.0], most=50)  # more than was thought to be most
    assert words.low == -110 and (words.mean, words.high) == (90.0, 110.0)  # 90 +- 12.706 * 20
    endless = paired_difference([3.0, 3.0], [1.0, 1.0], most=math.inf)
    assert (endless.mean, endless.low, endless.high) == (2.0, -math.inf, math.inf)
    with pytest.raises(ValueError, match="at least one value"):
        paired_difference([], [])


def test_rounding_makes_no_difference_clear():
    """0.1 + 0.2 exceeds 0.3 by rounding; also what a file of an earlier version holds is rounded."""
    for ours, theirs in (([0.1 + 0.2], [0.3]), ([0.3], [0.1 + 0.2])):
        paired, seeded = paired_difference(ours, theirs), seeded_difference([ours] * 2, [theirs] * 2)
        for found in (paired, seeded):
            assert found.mean == 0
            assert (found.is_clear, found.verdict) == (False, "not shown to be better")
            assert f"{found.mean:+.3f}" == "+0.000"
    read = msgspec.json.decode(b'{"mean":0.1,"low":3.7e-17,"high":0.2,"num":9}', type=Interval)
    assert not read.is_clear and Interval(-0.1, -0.2, -3.2e-17, 9).verdict == "not shown to be better"
    assert Interval(0.1, 1e-6, 0.2, 9).is_clear and Interval(-0.1, -0.2, -1e-6, 9).verdict == "worse"


@pytest.mark.parametrize("bad", [[], [float("nan")], [1.0, float("inf")]])
def test_values_without_a_mean_are_refused(bad):
    with pytest.raises(ValueError, match="at least one value"):
        bootstrap_interval(bad)


def test_a_mean_of_means_has_the_interval_of_questions_resampled_within_their_sets():
    random = np.random.default_rng(7)
    sets = [(random.random(num) < share).astype(float) for num, share in ((80, 0.2), (300, 0.5), (150, 0.9))]
    found = mean_of_means([rate_interval(values.tolist()) for values in sets])
    drawn = [values[random.integers(len(values), size=(20_000, len(values)))].mean(axis=1) for values in sets]
    low, high = np.quantile(np.mean(drawn, axis=0), (0.025, 0.975))
    assert found.mean == pytest.approx(np.mean([values.mean() for values in sets])) and found.num == 530
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.003) and high - low > 0.06


def test_sets_that_are_all_right_leave_a_mean_of_means_a_width():
    one = rate_interval([1.0] * 8)
    found = mean_of_means([one, one])
    assert (found.mean, found.high) == (1, 1) and found.low == pytest.approx(1 - (1 - one.low) / math.sqrt(2))


def test_a_difference_of_other_questions_is_refused():
    with pytest.raises(ValueError, match="the same questions on both sides: 1 != 2"):
        paired_difference([1], [1, 2])


def test_the_smallest_difference_is_shown_about_as_often_as_it_says():
    """Pairs of right and wrong answers, drawn with a true difference of just that size, as the interval sees them."""
    draw = np.random.default_rng(3)
    num, disagree = 400, 0.3
    truth = 0.0
    for _ in range(20):  # the size depends on the spread, and the spread a little on the size
        truth = 2.8016 * np.sqrt((disagree - truth**2) / num)
    chances = [(disagree + truth) / 2, 1 - disagree, (disagree - truth) / 2]
    num_shown, told = 0, []
    for _ in range(500):
        gains = draw.choice([1.0, 0.0, -1.0], size=num, p=chances)
        told.append(smallest_difference(gains, np.zeros(num)))
        found = bootstrap_interval(gains, num_resamples=200)
        num_shown += found.low > 0 or found.high < 0
    assert np.mean(told) == pytest.approx(truth, rel=0.02)
    # Expected 400 of 500, standard deviation 9; half that difference would be shown 144 times.
    assert 365 <= num_shown <= 435


def test_systems_that_agreed_on_a_few_questions_could_still_have_differed():
    assert smallest_difference([1], [1]) > 1
    assert smallest_difference([1, 0] * 5, [1, 0] * 5) == pytest.approx(2.8016 * np.sqrt(1 / 11 / 10), rel=1e-4)
    assert smallest_difference([1] * 150 + [0] * 250, [0] * 50 + [1] * 100 + [0] * 250) == pytest.approx(
        0.047, abs=1e-3
    )


@given(st.lists(st.sampled_from([0, 1]), min_size=2, max_size=60))
def test_more_questions_ask_for_less(sample):
    other = sample[1:] + sample[:1]
    size = smallest_difference(sample, other)
    assert smallest_difference(other, sample) == pytest.approx(size)
    assert smallest_difference(sample * 4, other * 4) < size


def test_a_smallest_difference_of_nothing_is_refused():
    for ours, theirs in (([], []), ([1], [1, 0])):
        with pytest.raises(ValueError, match="same questions"):
            smallest_difference(ours, theirs)


# ------------------------------------------------------------------------------------------------------------- Wilson


def test_wilson_by_hand():
    """z^2 = 3.8415. 8 of 10: (.8 + .1921 -+ 1.96 sqrt(.016 + .0096)) / 1.3841. 0 of 10: high = 3.8415 / 13.8415."""
    found = wilson_interval(8, 10)
    assert (found.mean, found.num) == (0.8, 10)
    assert (found.low, found.high) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson_interval(0, 10).low == 0.0
    assert wilson_interval(0, 10).high == pytest.approx(3.8415 / 13.8415, abs=1e-4)


@given(num=st.integers(1, 5000), data=st.data())
def test_wilson_ends_are_where_the_score_test_just_rejects(num, data):
    hits = data.draw(st.integers(0, num))
    found = wilson_interval(hits, num)
    assert 0 <= found.low <= found.mean <= found.high <= 1
    mirrored = wilson_interval(num - hits, num)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((found.low, found.high), abs=1e-9)
    for end in (found.low, found.high):
        if 1e-6 < end < 1 - 1e-6:
            z = abs(hits / num - end) / np.sqrt(end * (1 - end) / num)
            assert z == pytest.approx(1.959964, abs=1e-4)


@pytest.mark.parametrize(("hits", "num"), [(1, 0), (-1, 3), (4, 3)])
def test_wilson_refuses_what_is_no_share(hits, num):
    with pytest.raises(ValueError, match="a proportion needs"):
        wilson_interval(hits, num)


# --------------------------------------------------------------------------------------------------------------- seeds


def test_seeds_by_hand():
    """Two seeds that are right in all and in none: seeds drawn are 00, 01, 10, 11, so means are 0, 1/2, 1/2, 1."""
    found = seeded_interval([[1, 1, 1], [0, 0, 0]])
    assert (found.mean, found.low, found.high, found.num, found.num_seeds) == (0.5, 0.0, 1.0, 3, 2)
    # t with one degree of freedom: 12.706 * sd / sqrt(2), and the deviation of 0 and 1 is sqrt(1 / 2).
    assert structs.astuple(found.by_seed) == pytest.approx((0.5, 0.5 - 12.706 / 2, 0.5 + 12.706 / 2, 2))
    # Over questions the mean of the two seeds is 1/2 everywhere: no width at all.
    assert bootstrap_interval([0.5] * 3) == Interval(0.5, 0.5, 0.5, 3)


def test_student_by_hand():
    """Three published gains in points: 5.36, 5.27 and 6.99 have the mean 5.87 and t over seeds [3.5, 8.3]."""
    found = seed_interval([5.364, 5.266, 6.988])
    assert (round(found.mean, 2), round(found.low, 1), round(found.high, 1)) == (5.87, 3.5, 8.3)
    with pytest.raises(ValueError, match="at least two"):
        seed_interval([1.0])


def test_students_quantiles_are_scipys():
    stats = pytest.importorskip("scipy.stats")
    for num in (2, 3, 4, 10, 16, 17, 25, 60):
        half = seed_interval([0.0, 1.0] * (num // 2) + [0.0] * (num % 2)).high
        sample = np.array([0.0, 1.0] * (num // 2) + [0.0] * (num % 2))
        wanted = sample.mean() + stats.t.ppf(0.975, num - 1) * sample.std(ddof=1) / np.sqrt(num)
        assert half == pytest.approx(wanted, abs=3e-3)


def test_starts_are_drawn_together_or_apart():
    """Both seeds gain 0.2 over starts that differ by 0.5: from the same start nothing varies, else the starts do."""
    ours, theirs = [[0.2] * 20, [0.7] * 20], [[0.0] * 20, [0.5] * 20]
    together, apart = seeded_difference(ours, theirs, same_start=True), seeded_difference(ours, theirs)
    assert together.mean == pytest.approx(0.2) == apart.mean
    over_questions = paired_difference([0.2] * 20, [0.0] * 20)  # twenty equal gains, as of one seed
    assert (together.low, together.high) == pytest.approx((over_questions.low, over_questions.high))
    assert (apart.low, apart.high) == (pytest.approx(-0.3), pytest.approx(0.7))
    assert apart.smallest > together.smallest
    # Welch: variances 0.125 / 2 each, so the error is sqrt(0.125) with two degrees of freedom, t = 4.303.
    assert apart.by_seed.high == pytest.approx(0.2 + 4.303 * np.sqrt(0.125), rel=1e-3)


@pytest.mark.parametrize("num", [3, 5, 7, 20, 41])
@pytest.mark.parametrize("seeds", [2, 3, 4])
def test_equally_uncertain_arms_have_the_degrees_of_freedom_of_both(num, seeds):
    """2k - 2 for k seeds each, whatever the rounding of their means: one less would be t = 12.7 and not 4.3 for two."""
    stats = pytest.importorskip("scipy.stats")
    rows = [[0.1 + 0.3 * seed] * num for seed in range(seeds)]
    found = seeded_difference([[value + 0.2 for value in row] for row in rows], rows).by_seed
    error = np.std([row[0] for row in rows], ddof=1) * np.sqrt(2 / seeds)
    assert found.high - found.mean == pytest.approx(stats.t.ppf(0.975, 2 * seeds - 2) * error, rel=1e-3)


def test_one_seed_has_the_interval_over_questions():
    ours, theirs = [1, 1, 0, 1, 0, 0, 1, 1], [0, 1, 0, 0, 1, 0, 0, 1]
    found, plain = seeded_difference([ours], [theirs]), paired_difference(ours, theirs)
    assert (found.mean, found.low, found.high, found.num) == (plain.mean, plain.low, plain.high, plain.num)
    assert found.smallest == smallest_difference(ours, theirs) and found.by_seed is None
    for rates in ([0.0] * 4, [1.0, 0.0, 1.0]):  # of a mean itself, that of a rate: never below 0
        alone, rate = seeded_interval([rates]), rate_interval(rates)
        assert (alone.mean, alone.low, alone.high) == (rate.mean, rate.low, rate.high)


rates = st.integers(0, 4).map(lambda value: value / 4)
arms = st.integers(1, 8).flatmap(
    lambda num: st.tuples(
        *(st.lists(st.lists(rates, min_size=num, max_size=num), min_size=2, max_size=3) for _ in range(2))
    )
)


@settings(max_examples=examples(24))
@given(arms)
def test_a_seeded_difference_is_in_its_interval_and_turns_over_with_its_sides(pair):
    ours, theirs = pair
    found, back = seeded_difference(ours, theirs), seeded_difference(theirs, ours)
    assert -1 <= found.low <= found.mean <= found.high <= 1
    assert found.mean == pytest.approx(np.mean(ours) - np.mean(theirs), abs=1e-12) == -back.mean
    assert found.by_seed.low <= found.mean + 1e-12 and found.mean <= found.by_seed.high + 1e-12
    assert found.smallest >= smallest_difference(np.mean(ours, axis=0).tolist(), np.mean(theirs, axis=0).tolist())
    same = seeded_difference(ours, ours, same_start=True)
    # From the same start, a model that did not change has not gained on these questions; on others it may have.
    assert same.mean == 0 and same.low == -same.high and not same.is_clear


def test_seeds_widen_the_interval():
    """Seeds that differ by more than questions can explain: 0.2 and 0.8 of 400 questions."""
    rows = [[1] * 80 + [0] * 320, [1] * 320 + [0] * 80]
    over_both, over_questions = seeded_interval(rows), bootstrap_interval(np.mean(rows, axis=0).tolist())
    assert over_both.high - over_both.low > 5 * (over_questions.high - over_questions.low)


def test_seeds_that_agree_on_a_few_questions_prove_no_more_than_one():
    """Two seeds that gained the same three questions of four; a bootstrap over both begins at 0.25."""
    ours, theirs = [[1, 1, 1, 0]] * 2, [[0, 0, 0, 0]] * 2
    found, one = seeded_difference(ours, theirs), paired_difference(ours[0], theirs[0])
    assert (found.mean, found.low, found.high) == (0.75, one.low, one.high) and not found.is_clear
    many = seeded_difference([row * 20 for row in ours], [row * 20 for row in theirs])
    assert 0.6 < many.low < 0.7  # 0.75 - 1.96 * sqrt(0.1875 / 80)
    rate, alone = seeded_interval([[0.0] * 4] * 2), rate_interval([0.0] * 4)
    assert (rate.mean, rate.low, rate.high) == (alone.mean, alone.low, alone.high)


@pytest.mark.parametrize(
    ("ours", "theirs", "same_start", "said"),
    [
        ([], [[1]], False, "there must be a seed"),
        ([[]], [[1]], False, "at least one"),
        ([[1], [1, 0]], [[1]], False, "the same questions"),
        ([[1, 0]], [[1]], False, "2 != 1"),
        ([[1], [0]], [[1]], True, "in pairs"),
    ],
)
def test_seeds_that_do_not_fit_are_refused(ours, theirs, same_start, said):
    with pytest.raises(ValueError, match=said):
        seeded_difference(ours, theirs, same_start=same_start)


def test_questions_of_one_document_are_resampled_together():
    """Twenty documents of five equal questions say as much as twenty questions, and not as a hundred."""
    gains = [1.0] * 5 + [0.0] * 13 + [-1.0] * 2
    many = [gain for gain in gains for _ in range(5)]
    clusters = [f"{number // 5}.md" for number in range(100)]
    found = clustered_difference(many, [0.0] * 100, clusters)
    few, all_alone = bootstrap_interval(gains), clustered_difference(many, [0.0] * 100, range(100))
    assert (found.mean, found.num) == (0.15, 100)
    assert (found.low, found.high) == pytest.approx((few.low, few.high), abs=0.06)
    assert all_alone == paired_difference(many, [0.0] * 100) and all_alone.low > 0 > found.low


def test_few_documents_have_students_interval():
    """By hand: sums 2 and 0 of 2 and 1 questions, mean 2/3, off by 2/3 and -2/3: t 3.182 at four alike."""
    assert clustered_difference([1, 1, 0], [0, 0, 0], ["a", "a", "b"]) == Interval(2 / 3, -1.0, 1.0, 3)
    gains, clusters = [1, 1, 0, 0, 1, 0, 0, 0], "aabbccdd"  # off by 1.25, -0.75, 0.25 and -0.75
    half = 3.182 * math.sqrt(4 / 3 * (1.25**2 + 2 * 0.75**2 + 0.25**2)) / 8
    found = clustered_difference(gains, [0] * 8, clusters)
    assert (found.mean, found.low, found.high) == pytest.approx((0.375, 0.375 - half, 1.0))


@pytest.mark.parametrize("num", [2, 8, 14, 40])
def test_documents_that_gain_the_same_count_as_many_as_they_are(num):
    """However many questions there are about each; from 15 on the bootstrap would leave no width."""
    missed = 1 - 0.025 ** (1 / num)
    for gain in (1.0, 0.1, 0.0, -1.0):
        gains, clusters = [gain] * 3 * num, [number % num for number in range(3 * num)]
        found = clustered_difference(gains, [0.0] * 3 * num, clusters)
        assert (found.mean, found.num) == (pytest.approx(gain), 3 * num)
        assert (found.low, found.high) == pytest.approx((gain - missed * (1 + gain), gain + missed * (1 - gain)))


def test_questions_about_one_document_prove_nothing():
    assert clustered_difference([1.0] * 20, [0.0] * 20, ["a"] * 20) == Interval(1.0, -1.0, 1.0, 20)


@pytest.mark.parametrize("num_clusters", [3, 5, 8, 20])
@pytest.mark.parametrize("spread", [2.0, 1000.0])
def test_the_interval_over_documents_has_the_true_gain_in_95_of_100_samples(num_clusters, spread):
    """Documents of 3 to 12 questions whose chances differ (2) or hardly (1000); the true gain is 30 % minus 15 %."""
    num_samples, num_covered = 400, 0
    for seed in range(num_samples):
        generator = np.random.default_rng([seed, num_clusters])
        gains, clusters = [], []
        for cluster, size in enumerate(generator.integers(3, 13, num_clusters)):
            chance = 0.6 * generator.beta(spread, spread)
            drawn = generator.random(size)
            gains += np.select([drawn < chance, drawn < chance + 0.15], [1.0, -1.0], 0.0).tolist()
            clusters += [cluster] * size
        found = clustered_difference(gains, [0.0] * len(gains), clusters)
        num_covered += found.low <= 0.15 <= found.high
    assert 0.9 < num_covered / num_samples < 0.985
