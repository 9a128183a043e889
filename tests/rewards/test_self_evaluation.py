import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.rewards.answers import exact_match_score, f1_score
from quaere.rewards.self_evaluation import (
    NotedReward,
    brier_reward,
    further_words,
    gated_f1_reward,
    is_grounded,
    noted_reward,
)

GOLD = ("Orsolya Venn", "O. Venn")


@pytest.mark.parametrize(
    ("answer", "notes", "normalised", "raw"),
    [
        # Eval-RAR: the answer is right, and what the notes hold does not matter.
        ("orsolya venn", [], (1, 0, 1), (1, 0, 1)),
        ("Orsolya Venn", ["Orsolya Venn built it."], (1, 0.1, 1), (1, 0.1, 1)),
        # It is wrong, but it was noted down.
        ("Halm", ["Orsolya Venn built it."], (0, 0.1, 0.1), (0, 0.1, 0.1)),
        ("Halm", ["Missing: the year.", "It was O. Venn."], (0, 0.1, 0.1), (0, 0.1, 0.1)),
        # No answer at all.
        ("", ["Orsolya Venn built it."], (0, 0.1, 0.1), (0, 0.1, 0.1)),
        # Other case, other punctuation, an article in between.
        ("Halm", ["orsolya venn built it"], (0, 0.1, 0.1), (0, 0, 0)),
        ("Halm", ["By Orsolya (Venn)!"], (0, 0.1, 0.1), (0, 0, 0)),
        ("Halm", ["Orsolya the Venn"], (0, 0.1, 0.1), (0, 0, 0)),
        # A part of a word counts by characters only; a part of the name never.
        ("Halm", ["the Orsolya Vennery"], (0, 0, 0), (0, 0.1, 0.1)),
        ("Halm", ["Orsolya built it for Venn."], (0, 0, 0), (0, 0, 0)),
        # All notes are one text: what is normalised does not see where one ends.
        ("Halm", ["a certain Orsolya", "Venn it was"], (0, 0.1, 0.1), (0, 0, 0)),
        ("Halm", [], (0, 0, 0), (0, 0, 0)),
    ],
)
def test_evalrar_by_hand(answer, notes, normalised, raw):
    score = exact_match_score(answer, GOLD)
    assert noted_reward(score, notes, GOLD) == NotedReward(*normalised)
    assert noted_reward(score, notes, GOLD, contain="raw") == NotedReward(*raw)


def test_autorefine_by_hand():
    notes = ["Orsolya Venn built it."]
    # One of 39 words is shared with the two of "Orsolya Venn": 2 * 1 / (39 + 2), which is less than the bonus and wins.
    long = "Venn " + " ".join(f"w{number}" for number in range(38))
    assert noted_reward(f1_score(long, GOLD[:1]), notes, GOLD[:1]) == NotedReward(2 / 41, 0.1, 2 / 41)
    assert noted_reward(f1_score("Venn", GOLD[:1]), notes, GOLD[:1]).total == 2 / 3
    assert noted_reward(f1_score("Halm", GOLD), notes, GOLD).total == 0.1


@pytest.mark.parametrize("contain", ["normalised", "raw"])
@pytest.mark.parametrize("accepted", [(), ("",), (" ",), ("", "\n")])
def test_an_empty_answer_stands_nowhere(contain, accepted):
    assert noted_reward(0, ["anything at all"], accepted, contain=contain).total == 0


def test_an_article_alone_stands_nowhere_once_normalised():
    assert noted_reward(0, ["the bridge"], ["the", "?!"]).total == 0


def test_one_text_is_as_good_as_a_list():
    assert noted_reward(0, "by Orsolya Venn", GOLD) == noted_reward(0, ["by Orsolya Venn"], GOLD)
    assert noted_reward(0, "Orsolya Venn", GOLD).note == 0.1


def test_the_bonus_can_be_set_and_switched_off():
    assert noted_reward(0, ["Orsolya Venn"], GOLD, bonus=0.3) == NotedReward(0, 0.3, 0.3)
    assert noted_reward(0, ["Orsolya Venn"], GOLD, bonus=0).total == 0
    assert noted_reward(1, ["Orsolya Venn"], GOLD, bonus=0).total == 1


@pytest.mark.parametrize("wrong", [1.5, -0.1, float("nan")])
def test_what_is_no_score_is_refused(wrong):
    with pytest.raises(ValueError, match="from 0 to 1"):
        noted_reward(wrong, (), GOLD)


words = st.sampled_from(["Orsolya", "Venn", "O.", "the", "bridge", "", "?"])
texts = st.lists(words, max_size=5).map(" ".join)
manner = st.sampled_from(["normalised", "raw"])
unit = st.floats(0, 1)


@given(unit, st.lists(texts, max_size=4), st.lists(texts, max_size=3), unit, manner)
def test_rewards_are_bounded_and_one_of_their_parts(score, notes, accepted, bonus, contain):
    reward = noted_reward(score, notes, accepted, bonus=bonus, contain=contain)
    assert 0 <= reward.total <= 1
    assert reward.note in (0, bonus)
    assert reward.total == (score if score > 0 else reward.note)


@given(st.lists(texts, max_size=3), texts, st.lists(texts, max_size=3), texts, unit, manner)
def test_more_notes_and_more_accepted_answers_never_pay_less(notes, also, accepted, alias, score, contain):
    paid = noted_reward(score, notes, accepted, contain=contain).total
    assert noted_reward(score, [*notes, also], accepted, contain=contain).total >= paid
    assert noted_reward(score, notes, [*accepted, alias], contain=contain).total >= paid


@given(unit, unit, st.lists(texts, max_size=3))
def test_a_better_answer_never_pays_less_unless_the_worse_one_had_none(one, other, notes):
    """The step down from the bonus to a small F1 is AutoRefine's own; exact match never meets it."""
    low, high = sorted((one, other))
    if low > 0 or high >= 0.1 or high == 0:
        assert noted_reward(low, notes, GOLD).total <= noted_reward(high, notes, GOLD).total


# ----------------------------------------------------------------------------------------------------- grounded notes

WHO = "Who built the Halm bridge?"
SHOWN = ["Halm\nOrsolya Venn built the Halm bridge with Marta Oleen in 1702."]


@pytest.mark.parametrize(
    ("note", "words"),
    [
        ("Passage names her: Orsolya Venn.", []),
        ("Orsolya Venn built the Halm bridge in 1702.", ["1702"]),  # the rest is in the question
        ("Orsolya Venn built the Halm bridge with Marta Oleen in 1702.", []),  # a sentence of the text shown
        ("Orsolya Venn built the Halm bridge with Marta Oleen in 1703.", ["marta", "oleen", "1703"]),
        ("Venn, Oleen, or Brod", ["venn", "oleen", "brod"]),
        ("There is no information about the year.", ["year"]),
        ("Orsolya Venn Orsolya Venn", []),
        ("", []),
    ],
)
def test_further_words_by_hand(note, words):
    assert further_words(note, WHO, "Orsolya Venn", SHOWN) == words


def is_paid(notes, question=WHO, shown=SHOWN, accepted=GOLD, **how):
    """Whether one note, or each of several, after the same texts is grounded."""
    return is_grounded(
        [(note, shown) for note in ([notes] if isinstance(notes, str) else notes)], question, accepted, **how
    )


@pytest.mark.parametrize(
    ("note", "shown", "paid"),
    [
        ("Passage 1: Orsolya Venn built it.", SHOWN, True),
        ("Orsolya Venn, in 1702.", SHOWN, True),
        ("orsolya venn built it", SHOWN, True),
        ("Orsolya Venn or Marta Oleen", SHOWN, True),  # as many words as the answer
        ("Orsolya Venn, Marta Oleen or Brod", SHOWN, False),
        ("Passage 1: Orsolya Venn built it.", [], False),  # before any search
        ("Passage 1: Orsolya Venn built it.", ["Halm is a town."], False),
        ("Marta Oleen built it.", SHOWN, False),
        ("Orsolya Venn Marta Oleen Jon Brod Ada Hask", SHOWN, False),
        ("it was orsolya venn. it was marta oleen. it was jon brod.", SHOWN, False),
        ("Orsolya Venn built it. Marta Oleen built it. Jon Brod built it.", SHOWN, False),
    ],
)
def test_a_grounded_note_by_hand(note, shown, paid):
    assert is_paid(note, shown=shown) is paid


@pytest.mark.parametrize(
    ("note", "question", "text", "answer", "paid"),
    [
        ("1701 1702 1703 1704 1705 1706", "When was it built?", "It was built in 1702.", "1702", False),
        ("passages 1701, 1702 and 1703", "When was it built?", "It was built in 1702.", "1702", False),
        ("red green blue yellow black", "What colour is it?", "It is red.", "red", False),
        ("red; green; blue", "What colour is it?", "It is red.", "red", False),
        ("Émile built it. Élise built it. Éric built it.", WHO, "Émile built it.", "Émile", False),
        ("Émile built it.", WHO, "In 1702, Émile built it.", "Émile", True),
        ("born on May 12, 1702, in Halm", "When was she born?", "She was born on May 12, 1702.", "May 12, 1702", True),
        ("Passage 1: born on 12 May 1702.", "When was she born?", "born on 12 May 1702", "12 May 1702", True),
        ("12 May 1702, 13 May 1702, 14 May 1702", "When was she born?", "born 12 May 1702", "12 May 1702", False),
        ("1,200", "How many people?", "Some 1,200 people", "1,200", True),
        ("St. Mary's in Halm", "Where is she buried?", "In St. Mary's.", "St. Mary's", True),
        # What the question offers can be written without reading.
        (
            "The Oss mill.",
            "Which is older, the Halm bridge or the Oss mill?",
            "The Oss mill is old.",
            "Oss mill",
            False,
        ),
    ],
)
def test_lists_are_refused_in_every_spelling(note, question, text, answer, paid):
    assert is_paid(note, question, [text], [answer]) is paid


def test_all_notes_count_together_and_each_search_gives_room():
    several = ["Marta Oleen or Jon Brod", "Ada Hask or Orsolya Venn"]
    assert not is_paid(several, num_searches=2)  # six further words, where the answer has two
    assert is_paid(["It is in Korrin.", "Orsolya Venn"])
    assert not is_paid(["Marta Oleen of Korrin", "Orsolya Venn"])
    assert is_paid(["Marta Oleen of Korrin", "Orsolya Venn"], num_searches=2)


def test_no_in_no_information_is_not_an_answer():
    assert not is_paid("There is no information.", "Is it old?", ["There is no bridge."], ["no"])
    assert not is_paid("Yes.", "Is it old?", ["Yes, it is."], ["yes"])


@given(st.lists(texts, max_size=3).map(". ".join), st.lists(texts, max_size=3), st.lists(texts, max_size=2), manner)
def test_a_grounded_note_would_be_paid_as_published_and_its_answer_was_shown(note, shown, accepted, contain):
    if is_paid(note, WHO, shown, accepted, contain=contain):
        assert noted_reward(0, [note], accepted, contain=contain).note > 0
        assert noted_reward(0, shown, accepted).note > 0
    assert not is_paid(note, WHO, [], accepted, contain=contain)


# ---------------------------------------------------------------------------------------------------------- the Brier


def test_brier_by_hand():
    assert brier_reward(0.9, True, 0.2) == pytest.approx(-0.002)
    assert brier_reward(0.9, False, 0.2) == pytest.approx(-0.162)
    assert brier_reward(1.0, True) == brier_reward(0.0, False) == 0


@given(unit, unit)
def test_no_score_pays_more_on_average_than_the_true_chance(chance, said):
    def expected(score):
        return chance * brier_reward(score, True) + (1 - chance) * brier_reward(score, False)

    # The gap is exactly the squared distance: the rule is strictly proper.
    assert expected(chance) - expected(said) == pytest.approx((chance - said) ** 2, abs=1e-12)


# ------------------------------------------------------------------------------------------------------- gated F1


@pytest.mark.parametrize(
    ("answer", "accepted", "fault", "reward"),
    [
        ("Orsolya Venn", GOLD, "", 1),
        ("Halm bridge", ["old Halm bridge"], "", 0.8),
        ("Halm bridge", ["old Halm bridge"], "a search was not evaluated", 0),
        ("Halm", GOLD, "", 0),
        ("", GOLD, "", 0),
        ("", [""], "", 0),
        (" ", ["the"], "", 0),
        ("Orsolya Venn", [], "", 0),
    ],
)
def test_gated_f1_by_hand(answer, accepted, fault, reward):
    assert gated_f1_reward(answer, accepted, fault) == pytest.approx(reward)


@given(texts, st.lists(texts, max_size=3), st.sampled_from(["", "no answer"]))
def test_gated_f1_is_f1_or_nothing(answer, accepted, fault):
    reward = gated_f1_reward(answer, accepted, fault)
    assert reward in (0, f1_score(answer, accepted)) and 0 <= reward <= 1
    assert not (fault and reward)
