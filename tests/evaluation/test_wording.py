"""Numbers with rounding, names, words and denials: what rules can see in a sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.evaluation.reports.lexical import (
    content_words,
    find_names,
    name_runs,
    num_negations,
    number_runs,
    read_numbers,
    rounds_to,
    split_clauses,
    split_sentences,
    strip_marks,
)


@pytest.mark.parametrize(
    ("said", "known", "is_same"),
    [
        ("1702", "1702", True),
        ("1700", "1702", False),  # four bare digits are a year, and years are not rounded
        ("1,700", "1,702", True),
        ("1.7 million", "1,702,000", True),
        ("1.8 million", "1,702,000", False),
        ("3", "3.4", True),
        ("3", "3.6", False),
        ("90", "86", True),
        ("100", "140", False),  # within half a hundred, but too far off
        ("48,000", "48,350", True),
        ("48,350", "48,000", False),  # more exact than its source
        ("twelve", "12", True),
        ("3.5万", "35,000", True),
        ("0", "0.4", True),
    ],
)
def test_a_number_may_be_rounded(said, known, is_same):
    (one,), (other,) = read_numbers(said), read_numbers(known)
    assert rounds_to(one, other) is is_same


def test_numbers_by_hand():
    found = read_numbers("In 1702 some 1.7 million, 3.5 % of 1,200, and three more; model X7 and v2 are names")
    assert [number.value for number in found] == [1702.0, 1.7e6, 3.5, 1200.0, 3.0]
    assert [number.is_year for number in found] == [True, False, False, False, False]
    assert found[1].unit == pytest.approx(1e5) and found[2].unit == pytest.approx(0.1) and found[3].unit == 100
    assert number_runs("in 1,702 or 3.5.") == [(3, 8), (12, 15)]


def test_names_are_capitals_that_do_not_merely_begin_a_sentence():
    assert find_names("However, Orsolya Venn built it.", frozenset()) == ["orsolya", "venn"]
    assert find_names("Brod built it. Boats came to Tallow.", frozenset()) == ["brod", "tallow"]
    assert find_names("Boat traffic is old.", frozenset({"boat"})) == []
    assert find_names("Historians agree. Clearly so.", frozenset()) == []
    text = "The builder Orsolya Venn of Halm died."
    assert [text[start:end] for start, end in name_runs(text)] == ["Orsolya Venn", "Halm"]


def test_words_clauses_and_denials():
    assert content_words("The bridges were quickly built of 12 stones.") == ["bridg", "quick", "built", "ston"]
    assert content_words("bridge") == content_words("bridges")
    assert content_words("东京都") == ["东京", "京都"]
    assert num_negations("It was never built, and he didn't know. Notable knots.") == 2
    assert split_clauses("It stands, and it is old; so they say.") == ["It stands", "it is old", "so they say"]
    assert split_sentences("One. Two!\nThree") == ["One.", "Two!", "Three"]
    assert strip_marks("- The Oss rises [2], they say [1, 3].") == "The Oss rises, they say."
    assert strip_marks("see [note] and [x1]") == "see [note] and [x1]"


@given(st.text(max_size=400))
def test_any_text_can_be_read(text):
    content_words(text)
    find_names(text, frozenset())
    for start, end in [*name_runs(text), *number_runs(text)]:
        assert text[start:end].strip()
    assert all(rounds_to(number, number) for number in read_numbers(text))


@given(st.integers(1, 10**12), st.integers(0, 6))
def test_a_number_rounded_to_its_leading_digits_is_recognised(value, places):
    rounded = round(value, -places)
    if rounded and abs(rounded - value) <= 0.05 * rounded:
        (said,), (known,) = read_numbers(f"{rounded:,}"), read_numbers(f"{value:,}")
        assert rounds_to(said, known) or (said.is_year and known.is_year)
