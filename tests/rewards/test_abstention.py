"""The phrase that abstains, and questions whose answers are hidden from their searches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from quaere.records import Evidence, Question
from quaere.rewards.abstention import ABSTENTION, hide_answers, is_abstention, is_hidden

QUESTION = Question(
    "q1",
    "Who built the Halm bridge?",
    ("Orsolya Venn", "O. Venn"),
    evidence=(Evidence("d0", 0, 12, "Orsolya Venn"),),
    gold_ids=("d0",),
    facts=1,
    searches=1,
)


@pytest.mark.parametrize("text", [ABSTENTION, "Not in these documents.", "  NOT in these\ndocuments!"])
def test_the_phrase_abstains_in_any_case_and_punctuation(text):
    assert is_abstention(text)


@pytest.mark.parametrize("text", ["", "not in", "Venn, not in these documents", "not in those documents"])
def test_other_answers_do_not_abstain(text):
    assert not is_abstention(text)


def test_a_hidden_copy_has_no_answer_and_no_proof():
    hidden = hide_answers(QUESTION)
    assert hidden == Question("q1-hidden", QUESTION.text, (), hidden=("Orsolya Venn", "O. Venn"), facts=1, searches=1)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("Is Halm older than Oss?", ("yes",)),
        ("Is Halm older than Oss?", ("No.",)),
        ("Which is older, Halm or Oss?", ("Halm",)),
        ("Who built it?", ()),
        ("Who built it?", ("Venn", "The")),  # nothing is left of "The": it would hide nothing
    ],
)
def test_answers_that_are_everywhere_cannot_be_hidden(text, answers):
    assert hide_answers(Question("q", text, answers)) is None


@pytest.mark.parametrize(
    ("text", "title", "expected"),
    [
        ("Orsolya Venn built it.", "Halm", True),
        ("She built it.", "Orsolya Venn", True),
        ("It was built by O. Venn in 1702.", "Halm", True),
        ("Orsolya paid for it. Venn did not.", "Halm", False),
        ("Bela Orsolya Vennerby built it.", "Halm", False),
        ("Orsolya Venn's bridge was opened in 1702.", "Halm", True),
        ("They were Brod/Orsolya\u00a0Venn.", "Halm", True),
    ],
)
def test_a_passage_is_hidden_if_it_or_its_title_has_an_answer(text, title, expected):
    assert is_hidden(tiny.passage(text, title), hide_answers(QUESTION)) is expected
    assert not is_hidden(tiny.passage(text, title), QUESTION)


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("1000", "Set minimum_size=1000 in the file.", True),
        ("1702", "It stood there 1702\u20131760.", True),
        ("--refresh", "quaere view [--refresh|--once]", True),
        ("cron", "cron(8) runs it", True),
        ("9", "version 3.9", False),
        ("cron", "crontab(5) says when", False),
    ],
)
def test_an_answer_next_to_punctuation_is_hidden_too(answer, text, expected):
    hidden = hide_answers(Question("q", "Which?", (answer,)))
    assert bool(is_hidden(tiny.passage(text, "Halm"), hidden)) is expected


@given(st.lists(st.text(min_size=1), max_size=3), st.text())
def test_hiding_is_all_or_nothing(answers, text):
    hidden = hide_answers(Question("q", text, tuple(answers)))
    assert hidden is None or (hidden.hidden == tuple(answers) and hidden.answers == () and hidden.text == text)
