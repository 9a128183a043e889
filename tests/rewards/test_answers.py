import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.rewards.answers import exact_match_score, f1_score, match_as_written, normalise_answer


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Halm Bridge!", "halm bridge"),
        ("An apple a day", "apple day"),
        ("theatre", "theatre"),
        ("U.S.A.", "usa"),
        ("  ", ""),
        ("Čelik—most", "čelik—most"),
    ],
)
def test_normaliser(text, normal):
    assert normalise_answer(text) == normal


def test_exact_match_takes_any_alias():
    assert exact_match_score("the Halm bridge", ["Oss", "Halm Bridge."]) == 1
    assert exact_match_score("Halm", ["Halm Bridge"]) == 0
    assert exact_match_score("x", []) == 0


def test_f1_by_hand():
    # Two shared tokens; 2 of ours, 3 of theirs: 2 * 2 / 5.
    assert f1_score("Halm bridge", ["old Halm bridge"]) == pytest.approx(0.8)
    # A repeated token counts as often as both have it: 1 shared, 3 and 1 tokens: 2 / 4.
    assert f1_score("oss oss oss", ["oss"]) == pytest.approx(0.5)
    assert f1_score("x", ["y", "x z"]) == pytest.approx(2 / 3)
    assert f1_score("x", ["the"]) == 0


@pytest.mark.parametrize(
    ("answer", "accepted", "expected"),
    [
        ("yes no", ["yes"], 0),
        ("yes", ["yes it is"], 0),  # either side
        ("No, she did", ["no"], 0),
        ("noanswer at all", ["noanswer"], 0),
        ("Yes.", ["yes"], 1),
        ("yes no", ["yes", "yes no maybe"], 0.8),  # 2 * 2 / 5 with an answer that is not one of the three
        ("yes indeed", ["yes sir"], 0.5),
    ],
)
def test_yes_and_no_get_no_partial_credit(answer, accepted, expected):
    assert f1_score(answer, accepted) == pytest.approx(expected)


def test_an_answer_as_written_is_found_as_whole_words_and_an_empty_one_nowhere():
    assert match_as_written("Orsolya Venn").search("Orsolya\nVenn's bridge") and match_as_written("9").search("9, 8")
    assert not match_as_written("9").search("3.9") and not match_as_written("9").search("19")
    assert match_as_written("京都").search("京都府にある") and not match_as_written("Oss").search("Osséo")
    assert match_as_written("O’Brien").search("O'Brien's") and not match_as_written("1990-1995").search("1990 1995")
    assert not any(match_as_written(empty).search(text) for empty in ("", " \n") for text in ("", "Some text."))


words = st.lists(st.sampled_from(["yes", "no", "noanswer", "Yes!", "x", "the"]), max_size=4).map(" ".join)


@given(words, st.sampled_from(["yes", "no", "noanswer"]))
def test_f1_with_a_closed_answer_is_exact_match_on_either_side(text, closed):
    exact = exact_match_score(text, [closed])
    assert f1_score(text, [closed]) == f1_score(closed, [text]) == exact


articles = st.lists(st.sampled_from(["a", "The", "an", "!", " ", "."]), max_size=4).map(" ".join)


@given(articles, st.lists(st.one_of(articles, st.text(max_size=9)), max_size=3))
def test_an_answer_that_normalises_to_nothing_matches_nothing(answer, accepted):
    assert normalise_answer(answer) == ""
    assert exact_match_score(answer, [*accepted, answer]) == f1_score(answer, [*accepted, answer]) == 0


@given(st.text(max_size=30), st.lists(st.text(max_size=30), max_size=3))
def test_scores_are_bounded_and_exact_match_implies_full_f1(answer, accepted):
    exact, f1 = exact_match_score(answer, accepted), f1_score(answer, accepted)
    assert exact in (0, 1)
    assert 0 <= f1 <= 1
    if exact:
        assert f1 == 1
