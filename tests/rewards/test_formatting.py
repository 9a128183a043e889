import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.rewards.answers import contains, find_alternative, gives_away, names_alternatives
from quaere.rewards.proposer import FormatScore, answer_score, format_score, think_score, tool_score

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
    assert format_score(**leaking) == FormatScore(think=1, tool=1, answer=1, valid=False, total=1, leaked=True)
    assert format_score(**leaking, invalid_rule="algorithm") == format_score(**GOOD)


# -------------------------------------------------------------------------------------------------------- comparisons

CHOICES = [
    ("Which is older, the Halm bridge or the Oss mill?", "Halm bridge", "the Oss mill"),
    ("Which bridge is older: Halm or Korrin?", "Halm", "Korrin"),
    ("Who was born first, Orsolya Venn, or Marta Oleen?", "Orsolya Venn", "Marta Oleen"),
    ("Was the Halm bridge built by Orsolya Venn or Brod?", "Orsolya Venn", "Brod"),
    ("Did Venn or Brod build the Halm bridge?", "Venn", "Brod"),
    ("Did Orsolya Venn or Marta Oleen live longer?", "Orsolya Venn", "Marta Oleen"),
    ("Is the Oss a river or a lake?", "river", "a lake"),
    ("In which year was it opened, 1702 or 1703?", "1702", "1703"),
    ("Was it opened in 1702 or 1703?", "1702", "1703"),
    ("Did Venn build Halm or Korrin?", "Halm", "Korrin"),
    ("Did Venn OR Brod build the Halm bridge?", "Venn", "Brod"),
    ("\tWas it opened in 1702 or 1703? \n", "1702", "1703"),
    ("Which film is older, 45 Bridges or The Oss Limited?", "45 Bridges", "The Oss Limited"),
    ("Who died first, Olm Venn, 2nd Earl of Oss or Marta Brod?", "Olm Venn, 2nd Earl of Oss", "Marta Brod"),
    (
        "Who was born later, the maker of the first film in the Halm bridge series or the author of Never Say Die?",
        "the maker of the first film in the Halm bridge series",
        "the author of Never Say Die",
    ),
]


@pytest.mark.parametrize(("question", "first", "second"), CHOICES)
def test_a_comparison_names_its_answer_and_gives_nothing_away(question, first, second):
    for number, answer in enumerate((first, second)):
        assert contains(question, answer) and names_alternatives(question, answer)
        assert find_alternative(question, answer) == number
        assert not gives_away(question, answer)
        assert format_score(**GOOD | dict(question=question, answer=answer), format_rule="released").valid


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Did Venn build Halm?", "Venn"),
        ("Was it built by Venn or not?", "Venn"),
        ("Was it built by Venn or by someone else?", "Venn"),
        ("Who built it, Venn or another man?", "Venn"),
        ("Who built it, Venn or nobody?", "Venn"),
        ("Who built it, Venn or Nobody?", "Venn"),
        ("Who built it, Venn or The Other?", "Venn"),
        ("Who built it, Venn or No-one?", "Venn"),
        ("Who built it, Venn or Mr Nobody?", "Venn"),
        ("Did Venn or Mr Nobody build it?", "Venn"),
        ("Who built it, Venn or Person Unknown?", "Venn"),
        ("Who built it, Venn or 2 Others?", "Venn"),
        ("Who built it, Venn or Nobody: say who?", "Venn"),
        ("Who built it, Venn or Brod; who was the first?", "Venn"),
        ("Who built it, Venn or Brod? The first is right.", "Venn"),
        ("Who built it, the man from Halm or somebody from the hills of Korrin?", "the man from Halm"),
        ("Who built it, the man from Halm or a man whom we shall call Nobody?", "the man from Halm"),
        ("Who built the bridge, Halm's only one and the longest in the county of Korrin, or Brod?", "Brod"),
        ("Which man of Halm, Korrin county, built it in 1702 with his own hands or Brod?", "Brod"),
        ("Who built it, Venn or Marta or someone?", "Venn"),
        ("When was it built, 1702 or Brod?", "1702"),  # not of one kind
        ("Who built it, Venn or Venn?", "Venn"),
        ("Who built it, Venn or Orsolya Venn?", "Venn"),
        ("Who built it, Venn or a bridge?", "Venn"),  # not of one kind
        ("Who built it in 1702, Venn or Brod or Hask?", "Venn"),
        ("Venn built Halm. Who built Halm, Venn or Brod?", "Venn"),  # given away elsewhere
        ("Did Venn or Brod build the Venn bridge?", "Venn"),
        ("Did Venn build Halm or Korrin?", "Venn"),
        ("Who built the bridge that Venn or Brod drew?", "Venn"),
        ("Which bridge of Venn or Brod is older?", "Venn"),
        ("Did Venn Halm or Brod Oss build it?", "Brod"),  # a longer name
        ("Did Brod or Venn Halm build it?", "Venn"),
        ("Was it wooden or stone?", "stone"),  # where "wooden" begins is not to be seen
        ("Is it old, yes or no?", "yes"),
        ("Is it old, yes or no?", "no"),
        ("Who built it, or Venn?", "Venn"),
        ("or Venn", "Venn"),
        ("Venn or", "Venn"),
    ],
)
def test_an_answer_beside_a_pretended_alternative_is_given_away(question, answer):
    assert gives_away(question, answer) and not names_alternatives(question, answer)


NAMES = st.sampled_from(["Venn", "Brod", "Orsolya Venn", "Marta Oleen", "the Halm bridge", "Korrin"])


@given(NAMES, NAMES, st.sampled_from(["Which is older, {} or {}?", "Who came first: {}, or {}?"]))
def test_both_alternatives_are_treated_alike(first, second, form):
    question = form.format(first, second)
    assert names_alternatives(question, first) == names_alternatives(question, second)


@given(st.text(max_size=30), st.text(max_size=12))
def test_what_is_not_in_a_question_is_no_alternative_of_it(question, answer):
    if names_alternatives(question, answer):
        assert contains(question, answer)


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


@pytest.mark.parametrize(
    ("first", "num_words", "named"),
    [("Guild", 8, True), ("Guild", 9, False), ("guild", 16, True), ("guild", 17, False)],
)
def test_a_name_has_at_most_eight_words_and_a_description_sixteen(first, num_words, named):
    long, answer = " ".join([first, *["Of"] * (num_words - 1)]), "Venn" if first == "Guild" else "the man"
    assert names_alternatives(f"Who built it, {answer} or {long}?", answer) == named


def test_a_proposal_is_scored_by_the_containment_that_was_set():
    """In a script without spaces the answer is found, and given away, by characters alone."""
    asked = {"question": "誰が橋を造ったか", "answer": "造", "sources": ["古い橋を造った"]}
    by_words, by_characters = (format_score(**GOOD | asked | {"containment": how}) for how in ("words", "characters"))
    assert (by_words.answer, by_words.leaked) == (0, False)
    assert (by_characters.answer, by_characters.leaked) == (1, True)
    assert not gives_away(asked["question"], "造") and gives_away(asked["question"], "造", containment="characters")


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
    ],
)
def test_impossible_values_are_refused(change):
    with pytest.raises(ValueError, match=r"hop|planned|0 or more"):
        format_score(**GOOD | change)


# --------------------------------------------------------------------------------- the published rules, written anew

# "ten" is in "often" and "5" in "1950"; "the" and "." normalise to nothing.
_PIECES = st.sampled_from("ten often 5 1950 the . Venn venns yes no built bridge".split())
_TEXTS = st.lists(_PIECES, max_size=12).map(" ".join)


def published_score(rule, question, answer, hops, thought, turns, calls, responses, source):
    """(total, valid) by EVE's appendix D, and with "released" by what Dr. Zero's released code does otherwise."""

    def norm(text):
        plain = "".join(letter for letter in text.lower() if letter not in string.punctuation)
        return " ".join(word for word in plain.split() if word not in ("a", "an", "the"))

    said, asked = norm(answer), norm(question)
    leaks = said in asked
    if not said or not asked:
        return 0.0, False
    tool = 1.0
    if hops > 1:
        tool = min((1 + calls) / hops, 1) if calls == responses and (calls or rule == "eve") else 0.0
    num_words = len(said.split())
    support = (
        1.0 if said in ("yes", "no") else (said in norm(source)) * (1 if num_words <= 5 else (num_words <= 10) / 2)
    )
    total = (1 + thought / max(1, turns) + tool + support) / 4
    return (0.0 if leaks and rule == "released" else total), not leaks


@given(
    rule=st.sampled_from(["released", "eve"]),
    question=_TEXTS,
    answer=_TEXTS,
    source=_TEXTS,
    hops=st.integers(1, 4),
    turns=st.integers(0, 3),
    unplanned=st.integers(0, 2),
    calls=st.integers(0, 3),
    lost=st.integers(0, 1),
)
def test_preset_paper_scores_as_published(rule, question, answer, source, hops, turns, unplanned, calls, lost):
    counts = {"num_turns": turns + unplanned, "num_planned_turns": turns, "num_valid_calls": calls}
    score = format_score(
        question=question,
        answer=answer,
        hops=hops,
        **counts,
        num_responses=max(0, calls - lost),
        sources=[source],
        format_rule=rule,
        containment="characters",
        choices=False,
    )
    expected = published_score(
        rule, question, answer, hops, turns, turns + unplanned, calls, max(0, calls - lost), source
    )
    assert (score.total, score.valid) == (pytest.approx(expected[0]), expected[1])


def test_a_choice_is_a_leak_only_where_choices_are_not_exempt():
    """Neither paper exempts "A or B?", so preset `paper` does not either."""
    proposal = {"question": "Who built Halm, Venn or Brod?", "answer": "Venn", "hops": 1, "num_turns": 1}
    counts = {"num_planned_turns": 1, "num_valid_calls": 0, "num_responses": 0, "sources": ["Venn built Halm."]}
    for choices, rule, total in [(True, "released", 1.0), (False, "released", 0.0), (False, "eve", 1.0)]:
        score = format_score(**proposal, **counts, format_rule=rule, choices=choices)
        assert (score.valid, score.leaked, score.total) == (choices, not choices, total)
