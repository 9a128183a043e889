import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.rewards.proposer import (
    FormatScore,
    ProposerReward,
    difficulty_reward,
    parabola_reward,
    proposer_reward,
)

attempts = st.integers(2, 40)
GOOD = FormatScore(think=1.0, tool=1.0, answer=0.5, valid=True, total=0.875)
INVALID = FormatScore(think=1.0, tool=1.0, answer=0.5, valid=False, total=0.875)
MISSING = FormatScore(think=1.0, tool=1.0, answer=0.0, valid=False, total=0.0)


@pytest.mark.parametrize(("num_right", "reward"), [(0, 0), (1, 1), (2, 0.75), (3, 0.5), (4, 0.25), (5, 0)])
def test_difficulty_of_five_attempts(num_right, reward):
    assert difficulty_reward(num_right, 5) == reward


@pytest.mark.parametrize(("num_right", "reward"), [(0, 0), (1, 0.75), (2, 1), (3, 0.75), (4, 0)])
def test_parabola_of_four_attempts(num_right, reward):
    assert parabola_reward(num_right, 4) == reward


# Five attempts, by hand: right with the searches needed, right with fewer, and what they earn. "single" is wrong / 4,
# the parabola 4 x (right / 5) x (wrong / 5).
EASY = [
    ((0, 0), (0, 0)),
    ((0, 4), (0, 0)),  # none needed its searches
    ((1, 0), (1, 0.64)),
    ((1, 1), (0.75, 0.48)),
    ((1, 3), (0.25, 0.16)),
    ((1, 4), (0, 0)),  # nobody fails
    ((2, 1), (0.5, 0.64)),
    ((2, 3), (0, 0)),
    ((5, 0), (0, 0)),
]


@pytest.mark.parametrize(("counts", "paid"), EASY)
def test_attempts_with_too_few_searches_make_no_question_hard(counts, paid):
    num_right, num_easy = counts
    found = difficulty_reward(num_right, 5, num_easy), parabola_reward(num_right, 5, num_easy)
    assert found == (paid[0], pytest.approx(paid[1]))


@given(attempts, st.data())
def test_no_reward_rises_when_a_wrong_attempt_becomes_an_easy_right_one(num_attempts, data):
    num_right = data.draw(st.integers(0, num_attempts - 1))
    num_easy = data.draw(st.integers(0, num_attempts - num_right - 1))
    for reward in (difficulty_reward, parabola_reward):
        assert reward(num_right, num_attempts, num_easy + 1) <= reward(num_right, num_attempts, num_easy) <= 1
        assert reward(num_right, num_attempts, num_attempts - num_right) == 0
        assert reward(num_right, num_attempts, 0) == reward(num_right, num_attempts)  # Dr. Zero's, to the bit


@given(attempts, st.data())
def test_rewards_are_bounded_and_nothing_is_paid_for_all_or_none(num_attempts, data):
    num_right = data.draw(st.integers(0, num_attempts))
    for reward in (difficulty_reward, parabola_reward):
        paid = reward(num_right, num_attempts)
        assert 0 <= paid <= 1
        assert (paid == 0) == (num_right in (0, num_attempts))
    # The parabola does not care which half is right; the difficulty reward does.
    assert parabola_reward(num_right, num_attempts) == pytest.approx(
        parabola_reward(num_attempts - num_right, num_attempts)
    )
    if num_attempts > 2:
        assert difficulty_reward(1, num_attempts) > difficulty_reward(2, num_attempts)


def test_a_proposer_is_paid_for_difficulty_and_half_its_format():
    assert proposer_reward(GOOD, 2, 5) == ProposerReward(format=0.4375, difficulty=0.75, total=1.1875)
    assert proposer_reward(GOOD, 2, 4, shape="parabola") == ProposerReward(format=0.4375, difficulty=1, total=1.4375)
    assert proposer_reward(GOOD, 1, 5, format_weight=0) == ProposerReward(format=0, difficulty=1, total=1)


def test_an_invalid_proposal_earns_its_format_alone():
    assert proposer_reward(INVALID, 1, 5) == ProposerReward(format=0.4375, difficulty=0, total=0.4375)
    assert proposer_reward(MISSING, 1, 5).total == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: difficulty_reward(1, 1),
        lambda: difficulty_reward(6, 5),
        lambda: difficulty_reward(-1, 5),
        lambda: parabola_reward(0, 0),
        lambda: difficulty_reward(3, 5, 3),
        lambda: parabola_reward(1, 5, -1),
        lambda: proposer_reward(INVALID, 0, 1),
    ],
)
def test_impossible_counts_are_refused(call):
    with pytest.raises(ValueError, match=r"\d"):
        call()
