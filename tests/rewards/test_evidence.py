import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.rewards.proposer import (
    FormatScore,
    TripleReward,
    brevity_score,
    format_score,
    proposer_reward,
    span_reward,
    triple_reward,
)

PERFECT = FormatScore(think=1.0, tool=1.0, answer=1.0, valid=True, total=1.0)
INVALID = FormatScore(think=1.0, tool=1.0, answer=1.0, valid=False, total=1.0)
MISSING = FormatScore(think=1.0, tool=1.0, answer=0.0, valid=False, total=0.0)
CHECKS = ("none", "zero_value", "invalid")
chances = st.floats(0, 1)

# ------------------------------------------------------------------------------------------------- brevity


@pytest.mark.parametrize(("num_tokens", "score"), [(0, 1), (1, 255 / 256), (64, 0.75), (256, 0), (257, 0), (9999, 0)])
def test_brevity_by_hand(num_tokens, score):
    assert brevity_score(num_tokens) == score


def test_brevity_of_another_limit():
    assert (brevity_score(0, 1), brevity_score(1, 1)) == (1, 0)
    assert brevity_score(25, limit=100) == 0.75


# ------------------------------------------------------------------------------------------------- proposer's reward


def test_a_triple_by_hand():
    paid = triple_reward(PERFECT, 2, 5, value=0.5, num_span_tokens=64, is_verbatim=True)
    assert paid == TripleReward(format=0.5, difficulty=0.75, value=0.25, brevity=0.1 * 0.75, total=1.575)
    hurt = triple_reward(PERFECT, 1, 5, value=-0.6, num_span_tokens=300, is_verbatim=True)
    assert hurt == TripleReward(format=0.5, difficulty=1, value=-0.3, brevity=0, total=1.2)
    assert triple_reward(PERFECT, 1, 5, value=-1, num_span_tokens=300, is_verbatim=True).total == 1  # 0.5 + 1 - 0.5
    other = triple_reward(
        PERFECT,
        2,
        4,
        value=1,
        num_span_tokens=5,
        is_verbatim=True,
        value_weight=2,
        brevity_weight=1,
        brevity_tokens=10,
        shape="parabola",
        format_weight=0,
    )
    assert other == TripleReward(format=0, difficulty=1, value=2, brevity=0.5, total=3.5)


def test_the_format_score_of_the_paper_by_hand():
    # Half the turns planned, one search of the two that three hops take, an answer of 6 words: (1 + 1/2 + 2/3 + 1/2)/4.
    score = format_score(
        question="What happened in 1702?",
        answer="the great flood of upper Oss valley",
        hops=3,
        num_turns=2,
        num_planned_turns=1,
        num_valid_calls=1,
        num_responses=1,
        sources=["", "1702 saw the great flood of upper Oss valley."],
    )
    assert score.total == pytest.approx(2 / 3)
    paid = triple_reward(score, 5, 5, value=0.2, num_span_tokens=128, is_verbatim=True)
    assert paid.total == pytest.approx(1 / 3 + 0 + 0.1 + 0.05)


@pytest.mark.parametrize("score", [INVALID, MISSING])
@pytest.mark.parametrize("check", CHECKS)
def test_an_invalid_proposal_earns_its_format_alone(score, check):
    paid = triple_reward(score, 1, 5, value=1, num_span_tokens=1, is_verbatim=True, evidence_check=check)
    assert paid == TripleReward(score.total / 2, 0, score.total / 2, 0, 0)


@pytest.mark.parametrize(
    ("check", "paid"),
    [
        ("none", TripleReward(0.5, 0.75, 1.55, 0.2, 0.1)),
        ("zero_value", TripleReward(0.5, 0.75, 1.25, 0, 0)),
        ("invalid", TripleReward(0.5, 0, 0.5, 0, 0)),
    ],
)
def test_a_span_that_is_empty_or_not_verbatim(check, paid):
    found = triple_reward(PERFECT, 2, 5, value=0.4, num_span_tokens=0, is_verbatim=False, evidence_check=check)
    assert found == paid
    against = triple_reward(PERFECT, 2, 5, value=-0.4, num_span_tokens=0, is_verbatim=False, evidence_check=check)
    assert against.value == -paid.value


def test_without_weights_the_reward_is_that_of_dr_zero_to_the_last_bit():
    dice = random.Random(5)
    for _ in range(5000):
        parts = [dice.random() for _ in range(3)]
        score = FormatScore(*parts, valid=dice.random() < 0.7, total=(1 + sum(parts)) / 4)
        num_attempts = dice.randint(2, 9)
        num_right = dice.randint(0, num_attempts)
        is_verbatim = dice.random() < 0.5
        options = dict(shape=dice.choice(["single", "parabola"]), format_weight=dice.choice([0.5, 0.3, 0]))
        paid = triple_reward(
            score,
            num_right,
            num_attempts,
            value=dice.uniform(-1, 1),
            num_span_tokens=dice.randint(0, 500),
            is_verbatim=is_verbatim,
            evidence_check=dice.choice(CHECKS if is_verbatim else CHECKS[:2]),
            value_weight=0,
            brevity_weight=0,
            **options,
        )
        published = proposer_reward(score, num_right, num_attempts, **options)
        assert (paid.format, paid.difficulty, paid.total) == (published.format, published.difficulty, published.total)
        assert paid.value == paid.brevity == 0


@given(
    st.tuples(chances, chances, chances, st.booleans()),
    st.integers(0, 5),
    st.floats(-1, 1),
    st.integers(0, 400),
    st.booleans(),
    st.sampled_from(CHECKS),
)
def test_rewards_of_proposers_are_bounded_and_add_up(parts, num_right, value, num_tokens, is_verbatim, check):
    score = FormatScore(*parts, total=(1 + sum(parts[:3])) / 4)
    paid = triple_reward(
        score, num_right, 5, value=value, num_span_tokens=num_tokens, is_verbatim=is_verbatim, evidence_check=check
    )
    assert -0.5 + 0.125 <= paid.total <= 0.5 + 1 + 0.5 + 0.1
    assert paid.total == pytest.approx(paid.format + paid.difficulty + paid.value + paid.brevity)
    assert abs(paid.value) <= 0.5 and 0 <= paid.brevity <= 0.1


# --------------------------------------------------------------------------------------------------- solver's reward


def test_the_reward_of_a_span_by_hand():
    assert span_reward("Venn built it", "Built it.") == 0.3 * 0.8  # 2 of 3 and 2 of 2 words shared: F1 = 4 / 5
    assert span_reward("Built it!", "the built it") == 0.3
    assert span_reward("x", "y") == 0
    assert span_reward("x", "x", 1) == 1


@pytest.mark.parametrize(("span", "gold"), [("", ""), ("the", "a"), ("", "Venn built it"), ("Venn built it", "")])
def test_a_span_of_nothing_earns_nothing(span, gold):
    assert span_reward(span, gold) == 0


@given(st.text(max_size=40), st.text(max_size=40))
def test_rewards_of_spans_are_bounded(span, gold_span):
    assert 0 <= span_reward(span, gold_span) <= 0.3


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "call",
    [
        lambda: brevity_score(-1),
        lambda: triple_reward(PERFECT, 1, 5, value=1.01, num_span_tokens=1, is_verbatim=True),
        lambda: triple_reward(PERFECT, 1, 5, value=-1.01, num_span_tokens=1, is_verbatim=True),
        lambda: triple_reward(PERFECT, 1, 5, value=float("nan"), num_span_tokens=1, is_verbatim=True),
        lambda: triple_reward(PERFECT, 6, 5, value=1, num_span_tokens=1, is_verbatim=True),
    ],
)
def test_impossible_values_are_refused(call):
    with pytest.raises(ValueError, match=r"\d|nan"):
        call()
