"""Evidence by gold passages: hand-computed rates, what counts as gold, and whose gold is complete."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from evaluated import answer, episode, passage, search
from properties import examples
from quaere.errors import BadInput
from quaere.evaluation.intervals import rate_interval
from quaere.evaluation.qa.differences import compare
from quaere.evaluation.qa.items import Item, keep_whole_gold, quotes_gold, read_items, score_evidence, write_items
from quaere.evaluation.qa.scores import Evaluation, read_scored, score_answering, score_episode
from quaere.records import Answer, Question

BRIDGE = passage("The Halm bridge is old. Orsolya Venn built it in 1702.", "bridge")
TOWN = passage("Orsolya Venn was born in Halmgate.", "town")
COPY = passage("Orsolya Venn built it in 1702.", "copy")
ASKED = Question("q1", "Who built the Halm bridge?", ("Orsolya Venn", "Venn"), gold_ids=("bridge",), set="popqa")
SPAN = "Orsolya Venn built it in 1702."


@pytest.mark.parametrize(
    ("span", "shown", "is_gold"),
    [
        (SPAN, [TOWN, BRIDGE], True),
        ("Orsolya  Venn built\nit in 1702.", [BRIDGE], True),
        (SPAN, [COPY, BRIDGE], True),  # where it is found first does not matter
        (SPAN, [COPY, TOWN], False),  # verbatim, but of another passage
        (SPAN, [], False),  # the gold passage was never shown
        ("Orsolya Venn was born in Halmgate.", [BRIDGE, TOWN], False),
        ("Orsolya Venn built it in 170", [BRIDGE], False),
        ("Orsolya Venn built it in 1703.", [BRIDGE], False),
        ("The Halm bridge is old.", [BRIDGE], False),  # it does not hold the answer
        ("Orsolya Venn", [BRIDGE], False),  # and the answer alone says nothing
        ("", [BRIDGE], False),
    ],
)
def test_gold(span, shown, is_gold):
    assert quotes_gold(span, ASKED, shown) is is_gold
    assert quotes_gold(span, structs.replace(ASKED, gold_ids=()), shown) is None


def test_an_answer_by_another_name_is_held_and_yes_never():
    assert quotes_gold("built it in 1702. Venn", structs.replace(ASKED, answers=("1702",)), [BRIDGE]) is False
    assert quotes_gold(SPAN, structs.replace(ASKED, answers=("1702",)), [BRIDGE]) is True
    assert quotes_gold(SPAN, structs.replace(ASKED, answers=("yes",)), [BRIDGE]) is False


def played(span, *passages, text="Venn", question=ASKED):
    made = episode(search(*passages), answer(text), question=question)
    return structs.replace(made, outcome=Answer(text, span))


def test_rates_by_hand(tmp_path):
    """Four questions with gold and one without: gold 2 of 4, exact match 3 of 5, both 1 of 4."""
    asked = [structs.replace(ASKED, id=f"q{number}") for number in range(5)]
    asked[4] = structs.replace(asked[4], gold_ids=(), set="nq")
    episodes = [
        played(SPAN, BRIDGE, question=asked[0]),  # right, and proven by gold
        played(SPAN, BRIDGE, text="Korr", question=asked[1]),  # wrong, with a gold span
        played(SPAN, COPY, question=asked[2]),  # right, quoted from elsewhere
        played("", BRIDGE, text="Korr", question=asked[3]),  # nothing quoted
        played(SPAN, BRIDGE, question=asked[4]),  # right; no gold to compare with
    ]
    scores = [score_episode(one, evidence=True) for one in episodes]
    assert [score.gold for score in scores] == [True, True, False, False, None]
    total = score_answering(scores)
    assert (total.exact_match.mean, total.evidence.verbatim.mean) == (0.6, 0.8)
    assert total.evidence.gold == rate_interval([1, 1, 0, 0]) and total.evidence.gold.num == 4
    assert total.evidence.gold_joint == rate_interval([1, 0, 0, 0])
    write_items([score.item for score in scores], tmp_path / "a.items.jsonl.gz")
    again = read_items(tmp_path / "a.items.jsonl.gz")
    assert score_answering(again) == total and [item.gold_joint for item in again] == [True, False, False, False, False]


def test_without_evidence_or_gold_there_is_no_such_rate():
    assert score_episode(played(SPAN, BRIDGE)).gold is None
    assert score_answering([score_episode(played(SPAN, BRIDGE))]).evidence is None
    bare = score_episode(played(SPAN, BRIDGE, question=structs.replace(ASKED, gold_ids=())), evidence=True)
    assert score_evidence([bare.item]).gold is score_evidence([bare.item]).gold_joint is None


def test_paired_differences_are_over_questions_whose_gold_both_know(tmp_path):
    def evaluation(name, *flags):
        found = [
            structs.replace(
                score_episode(played(SPAN, BRIDGE, question=structs.replace(ASKED, id=f"q{number}")), evidence=True),
                gold=flag,
            )
            for number, flag in enumerate(flags)
        ]
        return Evaluation(name, "m", {}, score_answering(found), tuple(found))

    ours, base = evaluation("ours", True, True, True, None), evaluation("base", False, True, False, True)
    write_items(base.items, tmp_path / "base.items.jsonl.gz")
    for other in (base, read_scored(tmp_path / "base.items.jsonl.gz")):
        found = compare(ours, other)
        assert (found.exact_match.num, found.gold_joint.num) == (4, 3)
        assert found.gold.mean == found.gold_joint.mean == pytest.approx(2 / 3)
        assert found.smallest["gold_joint"] > 0
    assert compare(ours, evaluation("none", None, None, None, None)).gold_joint is None


def test_sets_with_complete_gold():
    asked = [
        structs.replace(ASKED, id="a"),
        structs.replace(ASKED, id="b", set="2wiki"),
        structs.replace(ASKED, id="c", set="nq", gold_ids=()),
        structs.replace(ASKED, id="d", set="nq"),
    ]

    def kept(sets):
        return [question.id for question in keep_whole_gold(asked, sets) if question.gold_ids]

    assert kept(None) == ["a", "b"]  # one question of nq has no gold: its gold is not complete
    assert kept(["popqa"]) == ["a"] and kept([]) == []
    with pytest.raises(BadInput, match="no question is of the set 'hotpot'; there are 2wiki, nq, popqa"):
        kept(["hotpot"])
    with pytest.raises(BadInput, match="set nq lack gold_ids"):
        kept(["nq"])


WORDS = st.lists(st.sampled_from(["Venn", "built", "the", "Halm", "bridge", "1702", "in"]), max_size=8).map(" ".join)


@settings(max_examples=examples(200))
@given(WORDS, st.lists(WORDS, max_size=3), st.sets(st.integers(0, 2)))
def test_a_gold_span_is_verbatim_and_counts_only_with_its_passage(span, texts, gold):
    shown = [passage(text, f"d{number}") for number, text in enumerate(texts)]
    asked = structs.replace(ASKED, answers=("Venn",), gold_ids=tuple(f"d{number}" for number in gold) or ("absent",))
    made = score_episode(played(span, *shown, question=asked), evidence=True)
    if made.gold:
        assert made.verbatim and made.item.gold_joint
    elsewhere = structs.replace(asked, gold_ids=("absent",))
    assert quotes_gold(span, elsewhere, shown) is False


def test_an_item_of_an_earlier_version_has_no_gold():
    assert Item("q", "0", "a", 1.0, 1.0, "answered", 1, 1, 1).gold is None
