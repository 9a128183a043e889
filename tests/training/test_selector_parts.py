"""The selector's formulas: worked examples, and what holds for all statistics."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.dialects.tool_call import QUESTION_TYPES, TYPE_NAMES
from quaere.recipes.passage_clusters import (
    Clustering,
    choose_passages,
    count_clusters,
    draw_weighted,
    nearest,
    weigh_passages,
)
from quaere.recipes.selector import (
    Arms,
    batch_probabilities,
    inherit,
    judge_quality,
    learn_pulls,
    learn_yields,
    pull,
    raw_rewards,
    run_score,
    score_arms,
)
from quaere.records import Candidate


def make_arms(pulls, rewards, raw=None):
    rewards = np.array(rewards, float)
    return Arms(np.array(pulls, np.int64), rewards, np.zeros(len(rewards)) if raw is None else np.array(raw, float))


def chance(seed=0):
    return np.random.default_rng(seed)


rewards = st.floats(-1e100, 1e100)
statistics = st.lists(st.tuples(st.integers(0, 10**9), rewards, rewards), min_size=1, max_size=30).map(
    lambda rows: make_arms(*zip(*rows, strict=True))
)


# ------------------------------------------------------------------------------------------------------------- bandits


def test_score_is_mean_plus_bonus():
    scores = score_arms(make_arms([1, 4], [0.0, 2.0]))
    assert scores == pytest.approx([math.sqrt(math.log(5)), 0.5 + math.sqrt(math.log(5) / 4)])
    assert score_arms(make_arms([1, 4], [0.0, 2.0]), exploration=0) == pytest.approx([0.0, 0.5])


def test_fresh_arms_have_one_virtual_pull_and_score_alike():
    arms = Arms.fresh(10)
    assert arms.pulls.tolist() == [1] * 10 and not arms.rewards.any() and not arms.raw_rewards.any()
    assert score_arms(arms) == pytest.approx([math.sqrt(math.log(10))] * 10)
    assert batch_probabilities(score_arms(arms)).tolist() == [0.1] * 10


def test_batch_is_a_softmax_in_units_of_the_standard_deviation():
    unit = math.sqrt(2 / 3)  # of 1, 2, 3
    weights = [math.exp(score / unit) for score in (1, 2, 3)]
    expected = [weight / sum(weights) for weight in weights]
    assert batch_probabilities(np.array([1.0, 2.0, 3.0])) == pytest.approx(expected)
    # So neither the scale nor the level of the scores matters.
    assert batch_probabilities(np.array([1.0, 2.0, 3.0]) * 1e6 - 5) == pytest.approx(expected)


def test_batch_is_drawn_by_these_chances():
    arms = make_arms([10, 10, 10], [10.0, 20.0, 30.0])
    share = np.bincount(pull(arms, 20_000, chance()), minlength=3) / 20_000
    assert share == pytest.approx(batch_probabilities(score_arms(arms)), abs=0.015)


def test_single_arm_is_the_best_one_and_the_first_among_equals():
    assert pull(make_arms([5, 5, 5], [1.0, 3.0, 2.0]), 1, chance()).tolist() == [1]
    assert {int(pull(Arms.fresh(4), 1, chance(seed))[0]) for seed in range(20)} == {0}


def test_scores_that_differ_by_rounding_only_are_drawn_alike():
    almost = np.array([0.3, 0.1 + 0.2, 0.3])
    assert almost[0] != almost[1]
    assert batch_probabilities(almost).tolist() == [1 / 3] * 3


def test_arm_reward_is_rarity_plus_half_the_gain():
    arms = make_arms([2, 6], [4.0, 3.0], raw=[1.0, 1.2])
    learned = learn_pulls(arms, np.array([0, 1, 1]), np.array([0.9, 0.4, 0.1]))
    first = -math.log(2 / 8 + 1e-8) + 0.5 * (0.9 - 0.5)
    second = [-math.log(6 / 8 + 1e-8) + 0.5 * (reward - 0.2) for reward in (0.4, 0.1)]
    assert learned.pulls.tolist() == [3, 8]
    assert learned.rewards == pytest.approx([4.0 + first, 3.0 + sum(second)])
    assert learned.raw_rewards == pytest.approx([1.9, 1.7])


def test_previous_mean_may_be_that_of_what_the_arm_was_paid():
    arms = make_arms([2, 6], [4.0, 3.0], raw=[1.0, 1.2])
    learned = learn_pulls(arms, np.array([0]), np.array([0.9]), "arm mean")
    assert learned.rewards[0] == pytest.approx(4.0 - math.log(0.25 + 1e-8) + 0.5 * (0.9 - 4.0 / 2))


@given(statistics, st.integers(1, 40), st.integers(0, 10))
def test_chances_are_chances_for_any_statistics(arms, num, seed):
    chances = batch_probabilities(score_arms(arms))
    assert np.isfinite(chances).all() and (chances >= 0).all()
    assert chances.sum() == pytest.approx(1)
    drawn = pull(arms, num, chance(seed))
    assert len(drawn) == num and 0 <= drawn.min() <= drawn.max() < len(arms)


@given(statistics, st.lists(st.tuples(st.integers(0, 29), st.floats(0, 1)), max_size=40), st.randoms())
def test_learning_counts_every_pull_in_any_order(arms, pulls, order):
    pulls = [(arm % len(arms), earned) for arm, earned in pulls]
    shuffled = order.sample(pulls, len(pulls))
    for previous_mean in ("raw reward", "arm mean"):
        once, again = (
            learn_pulls(arms, np.array([a for a, _ in rows], np.int64), np.array([e for _, e in rows]), previous_mean)
            for rows in (pulls, shuffled)
        )
        assert once.pulls.sum() == arms.pulls.sum() + len(pulls)
        assert np.isfinite(once.rewards).all() and np.isfinite(once.raw_rewards).all()
        assert once.rewards == pytest.approx(again.rewards, rel=1e-6, abs=1e-6)
        assert once.pulls.tolist() == again.pulls.tolist()


@pytest.mark.parametrize(
    ("pulled", "earned"), [([0], [math.nan]), ([2], [0.5]), ([-1], [0.5]), ([0, 1], [0.5])], ids=str
)
def test_what_cannot_be_learned_from_is_refused(pulled, earned):
    with pytest.raises(ValueError, match=r"must be finite|must be below|one reward"):
        learn_pulls(Arms.fresh(2), np.array(pulled), np.array(earned))


@given(st.lists(st.sampled_from([0.0, 1e-300, 0.5, 1.0, 1e300]), min_size=1, max_size=8), st.integers(0, 50))
def test_nothing_without_weight_is_drawn_unless_nothing_has_weight(weights, seed):
    places = draw_weighted(np.array(weights), 20, chance(seed))
    assert any(weights) is False or all(weights[place] > 0 for place in places)


# ------------------------------------------------------------------------------------------------------------ clusters


def test_number_of_clusters_grows_by_the_floor():
    assert [count_clusters(10, 0.5, iteration) for iteration in range(5)] == [10, 10, 11, 11, 12]
    assert count_clusters(10, 0.0, 99) == 10
    assert count_clusters(10, 0.29, 100) == 39  # 0.29 * 100 < 29 in floating point


def test_nearest_is_euclidean_and_exact_at_the_centroid():
    labels, distances = nearest(
        np.array([[0, 0], [3, 4], [9, 9]], np.float32), np.array([[0, 0], [9, 9], [0, 0]], np.float32)
    )
    assert labels.tolist() == [0, 0, 1]
    assert distances.tolist() == [0.0, 5.0, 0.0]


def test_children_share_what_their_parent_had():
    old = np.array([[0, 0], [10, 0]], np.float32)
    new = np.array([[0, 1], [10, 1], [1, 0], [0, -1]], np.float32)  # parents 0, 1, 0, 0
    heirs = inherit(make_arms([7, 4], [6.0, 5.0], raw=[3.0, 2.0]), old, new)
    assert heirs.pulls.tolist() == [2, 4, 2, 2]
    assert heirs.rewards.tolist() == [2.0, 5.0, 2.0, 2.0]
    assert heirs.raw_rewards.tolist() == [1.0, 2.0, 1.0, 1.0]


def test_a_child_has_at_least_one_pull():
    heirs = inherit(make_arms([2], [1.5]), np.zeros((1, 2), np.float32), np.eye(3, 2, dtype=np.float32))
    assert heirs.pulls.tolist() == [1, 1, 1] and heirs.rewards.tolist() == [0.5, 0.5, 0.5]


def test_a_cluster_without_children_leaves_all_to_the_nearest():
    old = np.array([[0, 0], [4, 0], [10, 0]], np.float32)
    new = np.array([[0, 0], [0, 1], [0, 2], [9, 0]], np.float32)  # nobody's parent is 1; it is nearest to 0
    heirs = inherit(make_arms([6, 5, 2], [3.0, 4.0, 1.0]), old, new)
    assert heirs.pulls.tolist() == [2 + 5, 2, 2, 2]
    assert heirs.rewards.tolist() == [1.0 + 4.0, 1.0, 1.0, 1.0]


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.floats(-1e6, 1e6)), min_size=1, max_size=12),
    st.integers(0, 12),
    st.integers(0, 10**6),
)
def test_growth_loses_no_reward_and_resets_no_arm(rows, more, seed):
    arms = make_arms([pulls for pulls, _ in rows], [reward for _, reward in rows], raw=[1.0] * len(rows))
    points = chance(seed).normal(size=(2 * len(rows) + more, 3)).astype(np.float32)
    old, new = points[: len(rows)], points[len(rows) :]
    heirs = inherit(arms, old, new)
    assert len(heirs) == len(new)
    assert (heirs.pulls >= 1).all()
    assert heirs.rewards.sum() == pytest.approx(arms.rewards.sum(), rel=1e-9, abs=1e-4)
    assert heirs.raw_rewards.sum() == pytest.approx(len(rows))
    # Each parent loses less than one pull a child, or gains what lifts its children to one.
    assert arms.pulls.sum() - len(new) < heirs.pulls.sum() <= arms.pulls.sum() + len(new)


# ------------------------------------------------------------------------------------------------------------ passages


def clustering(labels, distances, num_clusters):
    centroids = np.zeros((num_clusters, 2), np.float32)
    return Clustering(centroids, np.array(labels, np.int32), np.array(distances, np.float32))


def test_a_passage_counts_as_used_for_the_rest_of_its_batch():
    """Second draws follow the formula with the use counts after the first ones."""
    topics = clustering([0, 0, 1], [0.5, 0.5, 1.0], 2)
    again = 0
    for seed in range(3_000):
        uses = np.zeros(3, np.int32)
        first, second = choose_passages(np.array([0, 0]), topics, uses, chance(seed))
        assert uses.tolist() == [(first == 0) + (second == 0), (first == 1) + (second == 1), 0]
        again += first == second
    assert again / 3_000 == pytest.approx(1 / 3, abs=0.03)  # 0.5 / 2 against 0.5


@pytest.mark.parametrize("num", [2000, pytest.param(8000, marks=pytest.mark.slow)])
def test_many_draws_of_a_batch_follow_the_formula_step_by_step(num):
    """The share of each passage among fifth draws is what enumerating all courses of four draws gives."""
    distances = np.array([0.1, 1.0])

    def chances(uses):
        weights = weigh_passages(distances, uses)
        return weights / weights.sum()

    exact = np.zeros(2)
    for course in product(range(2), repeat=4):
        uses, likelihood = np.zeros(2, np.int32), 1.0
        for place in course:
            likelihood *= chances(uses)[place]
            uses[place] += 1
        exact += likelihood * chances(uses)
    topics, dice = clustering([0, 0], distances, 1), chance()
    fifth = [choose_passages(np.zeros(5, np.int64), topics, np.zeros(2, np.int32), dice)[4] for _ in range(num)]
    error = (exact[0] * exact[1] / num) ** 0.5
    assert np.bincount(fifth) / num == pytest.approx(exact, abs=3.5 * error)


def test_an_empty_cluster_is_answered_by_any_passage():
    uses = np.zeros(3, np.int32)
    drawn = choose_passages(np.full(3_000, 1), clustering([0, 0, 2], [0.9, 0.0, 0.1], 3), uses, chance())
    assert np.bincount(drawn) / 3_000 == pytest.approx([1 / 3] * 3, abs=0.03)
    assert uses.sum() == 3_000


def test_only_passages_of_the_shard_are_drawn():
    topics = clustering([0, 0, 1, 1], [0.9, 0.1, 0.5, 0.5], 2)
    among = np.array([False, True, False, True])
    assert choose_passages(np.array([0, 1, 0]), topics, np.zeros(4, np.int32), chance(), among) == [1, 3, 1]
    only_first = np.array([True, False, False, False])
    assert choose_passages(np.array([1, 1]), topics, np.zeros(4, np.int32), chance(), only_first) == [0, 0]


# ------------------------------------------------------------------------------------------------------------ feedback


@pytest.mark.parametrize(
    ("question", "answer", "copies", "quality"),
    [
        ("q" * 20, "a", 1, 1.0),
        ("q" * 220, "a" * 80, 1, 1.0),
        ("q" * 19, "a", 1, 0.65),
        ("q" * 221, "a", 1, 0.65),
        ("q" * 20, "", 1, 0.55),
        ("q" * 20, "a" * 81, 1, 0.55),
        ("q" * 19, "a" * 81, 4, 0.65 * 0.55 / 2),
        ("q" * 20, "a", 0, 1.0),
    ],
)
def test_quality(question, answer, copies, quality):
    assert judge_quality(question, answer, copies) == pytest.approx(quality)


def test_run_score_is_cut_off_or_rescaled():
    assert run_score(0.8, 0.4) == pytest.approx(0.6)
    assert run_score(1.5, 0.9) == 1.0
    assert run_score(-0.5, 0.1) == 0.0
    assert run_score(0.8, 0.65, "rescale") == pytest.approx(0.5)
    assert run_score(2.1, 1.3, "rescale") == 1.0 and run_score(-0.5, 0.0, "rescale") == 0.0
    dr_zero = {"proposer_range": (0.0, 1.5), "solver_range": (0.0, 1.0)}
    assert run_score(0.75, 0.5, "rescale", **dr_zero) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="finite"):
        run_score(math.nan, 0.5)


def test_raw_reward_is_score_times_quality_and_copies_share():
    rows = [("q" * 30, "a"), ("Why?", "a"), ("q" * 30, "another")]
    earned = raw_rewards([Candidate("a", 1, 0, "a", "", 1, *row) for row in rows], 0.8)
    assert earned == pytest.approx([0.8 / math.sqrt(2), 0.8 * 0.65, 0.8 / math.sqrt(2)])
    assert raw_rewards([], 0.8).shape == (0,)


def test_there_are_five_question_types_with_a_line_each():
    assert TYPE_NAMES == ("factual", "comparison", "causal", "temporal", "aggregation")
    assert len(set(QUESTION_TYPES.values())) == 5 and all("\n" not in line for line in QUESTION_TYPES.values())


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30))
def test_yields_are_counted_as_they_come(pulls):
    pulled = np.array([arm for arm, _ in pulls], dtype=np.int64)
    arms = learn_yields(Arms.fresh(4), pulled, np.array([float(useful) for _, useful in pulls]))
    for arm in range(4):  # the same, one after another
        own = [useful for other, useful in pulls if other == arm]
        assert arms.pulls[arm] == 1 + len(own)
        assert arms.rewards[arm] == arms.raw_rewards[arm] == sum(own)


def test_an_arm_that_yields_more_is_drawn_more():
    """The failure that this mends: paid for being rare, the arm that yields least would be drawn most."""
    chance, arms = np.random.default_rng(0), Arms.fresh(5)
    chances = np.array([0.1, 0.5, 0.5, 0.5, 0.9])
    for _ in range(20):
        pulled = pull(arms, 64, chance)
        arms = learn_yields(arms, pulled, (chance.random(64) < chances[pulled]).astype(float))
    assert arms.pulls.argmax() == 4 and arms.pulls.argmin() == 0
    assert arms.rewards.sum() / (arms.pulls.sum() - 5) > chances.mean()
