import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.rewards.formatting import FormatScore, answer_score, contains, format_score, think_score, tool_score

SOURCE = "The Halm bridge was built by Orsolya Venn in 1950, the year of the great flood of the upper Oss valley."
GOOD = dict(
    question="Who built it?",
    answer="Orsolya Venn",
    hops=2,
    num_turns=2,
    num_planned_turns=2,
    num_valid_calls=1,
    num_responses=1,
    sources=[SOURCE],
)


def test_a_perfect_proposal():
    assert format_score(**GOOD) == FormatScore(think=1, tool=1, answer=1, valid=True, total=1)


def test_a_mixed_proposal_by_hand():
    mixed = GOOD | dict(hops=4, num_planned_turns=1, answer="great flood of the upper Oss valley")
    # Half the turns planned; 2 of 4 hops reached; "great flood of upper oss valley" is 6 words.
    assert format_score(**mixed) == FormatScore(think=0.5, tool=0.5, answer=0.5, valid=True, total=2.5 / 4)


@pytest.mark.parametrize("change", [dict(question=""), dict(answer=" "), dict(question="?!"), dict(answer="The")])
def test_nothing_is_earned_without_question_or_answer(change):
    score = format_score(**GOOD | change)
    assert (score.total, score.answer, score.valid) == (0, 0, False)
    assert (score.think, score.tool) == (1, 1)


def test_a_question_that_holds_its_answer_is_invalid_unless_the_algorithm_is_followed():
    leaking = GOOD | dict(question="Which bridge did Orsolya  VENN build?")
    assert format_score(**leaking) == FormatScore(think=1, tool=1, answer=1, valid=False, total=1)
    assert format_score(**leaking, invalid_rule="algorithm").valid


@pytest.mark.parametrize(
    ("change", "eve", "released"),
    [
        ({}, 1.0, 1.0),
        (dict(question="Which bridge did Orsolya Venn build?"), 1.0, 0.0),
        (dict(num_valid_calls=0, num_responses=0), (1 + 1 + 1 / 2 + 1) / 4, (1 + 1 + 0 + 1) / 4),
        (dict(hops=1, num_valid_calls=0, num_responses=0), 1.0, 1.0),
        (dict(hops=4), (1 + 1 + 2 / 4 + 1) / 4, (1 + 1 + 2 / 4 + 1) / 4),
        (dict(num_responses=0), 3 / 4, 3 / 4),
        (dict(answer=""), 0.0, 0.0),
    ],
)
def test_two_rules_by_hand(change, eve, released):
    """They differ in leaked answers, and in several hops without a search."""
    assert format_score(**GOOD | change).total == pytest.approx(eve)
    paid = format_score(**GOOD | change, format_rule="released")
    assert paid.total == pytest.approx(released)
    assert paid.valid == format_score(**GOOD | change).valid


@pytest.mark.parametrize(("planned", "turns", "score"), [(0, 0, 0), (0, 3, 0), (3, 4, 0.75), (2, 2, 1)])
def test_think_score(planned, turns, score):
    assert think_score(turns, planned) == score


@pytest.mark.parametrize(
    ("hops", "calls", "responses", "score"),
    [
        (1, 0, 0, 1),
        (1, 3, 0, 1),  # One hop needs no search, and what it did besides does not count.
        (2, 0, 0, 1 / 2),
        (3, 1, 1, 2 / 3),
        (4, 3, 3, 1),
        (2, 5, 5, 1),
        (4, 3, 2, 0),
        (4, 0, 1, 0),
    ],
)
def test_tool_score(hops, calls, responses, score):
    assert tool_score(hops, calls, responses) == pytest.approx(score)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("yes", 1),
        ("No.", 1),
        ("orsolya venn", 1),
        ("the Halm bridge was built by", 1),  # 5 words once the article is gone
        ("Halm bridge was built by Orsolya", 0.5),
        ("Halm bridge was built by Orsolya Venn in 1950, the year", 0.5),  # 10 words
        ("Halm bridge was built by Orsolya Venn in 1950, the year of", 0),
        ("Orsolya Halm", 0),
        ("195", 0),
        ("the", 0),
        ("", 0),
    ],
)
def test_answer_score(answer, score):
    assert answer_score(answer, ["Another page.", SOURCE]) == score


def test_an_answer_is_not_found_astride_two_sources():
    assert answer_score("Orsolya Venn", ["about Orsolya", "Venn and others"]) == 0
    assert answer_score("Orsolya Venn", []) == 0


def test_containment_by_words_and_by_characters():
    assert contains("Built in 1950.", "1950")
    assert not contains("Built in 1950.", "5")
    assert contains("Built in 1950.", "5", containment="characters")
    for containment in ("words", "characters"):
        assert not contains("the the", "the", containment=containment), "nothing stands nowhere"
    assert answer_score("橋", ["古い橋がある"], containment="characters") == 1
    assert answer_score("橋", ["古い橋がある"]) == 0


@given(
    st.text(max_size=20),
    st.text(max_size=20),
    st.integers(1, 5),
    st.integers(0, 6),
    st.integers(0, 6),
    st.integers(0, 6),
    st.integers(0, 6),
    st.lists(st.text(max_size=40), max_size=3),
    st.sampled_from(["released", "eve"]),
)
def test_scores_are_bounded(question, answer, hops, turns, unplanned, calls, responses, sources, rule):
    score = format_score(
        question=question,
        answer=answer,
        hops=hops,
        num_turns=turns + unplanned,
        num_planned_turns=turns,
        num_valid_calls=calls,
        num_responses=responses,
        sources=sources,
        format_rule=rule,
    )
    assert all(0 <= part <= 1 for part in (score.think, score.tool, score.answer))
    assert score.total == 0 or score.total == (1 + score.think + score.tool + score.answer) / 4
    if score.valid:
        assert score.total >= 0.25


@pytest.mark.parametrize(
    "change",
    [
        dict(hops=0),
        dict(num_planned_turns=3),
        dict(num_planned_turns=-1),
        dict(num_valid_calls=-1),
        dict(num_responses=-1),
        dict(invalid_rule="neither"),
        dict(format_rule="neither"),
        dict(containment="neither"),
    ],
)
def test_impossible_values_are_refused(change):
    with pytest.raises(ValueError, match=r"hop|planned|negative|neither"):
        format_score(**GOOD | change)
