from pathlib import Path

import pytest
from hacking import ALSO_HONEST, HONEST, OPEN, TRICKS, is_paid, pay, table, triple_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from quaere.errors import BadInput
from quaere.rewards.guards import GUARDS, OURS, PAPER, Triple, count_earlier, guarded, refusals
from quaere.rewards.proposer import FormatScore
from quaere.worlds.world import generate_world

BY_NAME = {item.name: item for item in TRICKS}
HONEST_ITEMS = [*HONEST.values(), *ALSO_HONEST]


def name_of(item):
    return item.name


def test_there_are_forty_tricks():
    assert len(BY_NAME) == len(TRICKS) == 40


@pytest.mark.parametrize(
    ("name", "paid"),
    [
        # Format, difficulty, value and brevity by hand; 5 attempts, 5 samples each way.
        ("empty span", 0.5 + 0.5 + 0 + 0.1),
        ("fabricated quotation", 0.5 + 0.5 + 0.5 * 1 + 0.1 * (1 - 9 / 256)),
        ("answer alone as span", 0.5 + 0.5 + 0.5 * 1 + 0.1 * (1 - 2 / 256)),
        ("answer inside the question", 0.5),
        ("no question", 0),
        ("misleading sentence", 0.5 + 0.5 - 0.5 * 0.4 + 0.1 * (1 - 7 / 256)),
        ("yes or no by the toss of a coin", 0.5 + 0.75 - 0.5 * 0.2 + 0.1 * (1 - 10 / 256)),
        ("answer of small words", 0.5 + 1 + 0.5 * 0.8 + 0.1 * (1 - 11 / 256)),
    ],
)
def test_what_the_published_reward_pays(name, paid):
    assert pay(BY_NAME[name]).total == pytest.approx(paid)


@pytest.mark.parametrize("item", TRICKS, ids=name_of)
def test_holes_are_open_as_published_and_closed_by_the_guard_that_is_named(item):
    assert is_paid(pay(item)) == item.is_hole == bool(item.guard)
    for guards in [OURS, *([(item.guard,)] if item.guard else [])]:
        closed = pay(item, guards)
        assert not is_paid(closed)
        assert closed.format == pay(item).format, "the form is paid as before"


@pytest.mark.parametrize("span", ["", " ", " \n\t", "\u00a0"])
def test_blank_stands_in_every_text_and_is_no_evidence(span):
    blank = structs.replace(triple_of(HONEST_ITEMS[0]), document="It is\u00a0old. \n\tIt stands.", span=span)
    assert span in blank.document and refusals(blank, ["verbatim"]) == ("verbatim",)


@pytest.mark.parametrize(
    ("span", "text", "is_whole"),
    [
        ("finished in 170", "It was finished in 1702.", False),
        ("finished in 1702", "It was finished in 1702.", True),
        ("02", "1702", False),
        ("costs 3", "It costs 3.14 marks.", False),
        ("costs 3.14", "It costs 3.14 marks.", True),
        ("costs 3", "It costs 3. No more.", True),
        ("14 marks", "It costs 3.14 marks.", False),
        ("1,000", "It has 1,000,000 stones.", False),
        ("the bri", "the bridge", False),
        ("the bri", "the bridge; the bri was", True),  # it stands whole once
        ("東京", "東京都庁", True),  # no spaces between words
        ("Halm_", "Halm_bridge", True),
    ],
)
def test_a_span_that_ends_inside_a_word_or_number_is_not_verbatim(span, text, is_whole):
    triple = structs.replace(triple_of(HONEST_ITEMS[0]), document=text, returned=(), span=span)
    assert ("verbatim" not in refusals(triple, ["verbatim"])) == is_whole


@pytest.mark.parametrize("item", OPEN, ids=name_of)
def test_what_no_guard_sees_is_known(item):
    assert is_paid(pay(item)) and refusals(triple_of(item)) == ()


@pytest.mark.parametrize("item", HONEST_ITEMS, ids=name_of)
def test_honest_items_lose_nothing(item):
    assert refusals(triple_of(item)) == ()
    assert pay(item, OURS) == pay(item, OURS, "zero_value") == pay(item)


@pytest.mark.parametrize("family", ["evaluation", "warmup"])
def test_honest_questions_of_a_world_lose_nothing(family):
    world = generate_world(7, 200, family)
    num_checked = 0
    for question in world.questions(120):
        texts = [world.article(world.entity(doc_id)).text for doc_id in question.gold_ids]
        span = question.chain[-1].evidence.text
        # A sentence that says "she" or "it" for the answer is no evidence by itself.
        for answer in [answer for answer in question.answers if answer in span][:1]:
            triple = Triple(
                question=question.text,
                answer=answer,
                span=span,
                num_span_tokens=2 * len(span.split()),
                document=texts[0],
                hops=question.facts,
                returned=tuple(texts[1:]),
                queries=tuple(f"query {number}" for number in range(question.facts - 1)),
            )
            assert refusals(triple) == (), triple
            num_checked += 1
    assert num_checked > 100


@pytest.mark.parametrize("name", OURS)
def test_every_guard_closes_a_hole_that_no_other_does(name):
    assert GUARDS[name].__doc__
    assert [item for item in TRICKS if item.is_hole and refusals(triple_of(item)) == (name,)]


@pytest.mark.parametrize(
    ("guard", "kept", "refused"),
    [
        ("focused", dict(num_span_tokens=128), dict(num_span_tokens=129)),
        (
            "partial",
            dict(span="word " * 40 + "end", document="word " * 40 + "end" + " more" * 41),
            dict(span="word " * 40 + "end", document="word " * 40 + "end" + " more" * 40),
        ),
        (  # forty words may be all of a text
            "partial",
            dict(span="word " * 39 + "end", document="word " * 39 + "end"),
            dict(span="word " * 40 + "end", document="word " * 40 + "end"),
        ),
        (  # of the texts that hold the span each counts, and no other
            "partial",
            dict(span="word " * 40 + "end", document="word " * 40 + "end" + " more" * 41, returned=("short",)),
            dict(span="word " * 40 + "end", document="word " * 99 + "end", returned=("word " * 40 + "end",)),
        ),
        (  # small words are in every text
            "grounded",
            dict(question="Is the Oss a river?", document="It is the river."),
            dict(question="Is the Oss a lake?", document="It is the river."),
        ),
        (
            "own_words",
            dict(question="Who built the Halm bridge?", document="Orsolya Venn built the Halm bridge."),
            dict(question="Venn built the Halm bridge?", document="Venn built the Halm bridge.", returned=("Oss",)),
        ),
        (  # in any order
            "unspoken",
            dict(question="Who built it, Zora Abel or Brod?", answer="Zora Abel"),
            dict(question="Did Zora Abel build it?", answer="Zora Abel"),
        ),
        (
            "unspoken",
            dict(question="Did the fall destroy it?", answer="The Halm"),
            dict(question="Did Halm fall?", answer="The Halm"),
        ),
        ("says_more", dict(span="Orsolya Venn built it there"), dict(span="there Orsolya Venn built")),
        ("holds_answer", dict(span="by ORSOLYA Venn's own hand"), dict(span="by Orsolya Vennison")),
        ("specific", dict(question="Who built that bridge?"), dict(question="Who built Halm?")),
        (
            "unspoken",
            dict(question="Did Orsolya, or Venn, build it?"),
            dict(question="Did the house of VENN-Orsolya build it?"),
        ),
        ("thoughtful", dict(thoughts=("one two three",)), dict(thoughts=("one two three", "one two two"))),
        ("searched", dict(hops=3, queries=("a", "b")), dict(hops=3, queries=("a", "A?", " "))),
        (
            "needed",
            dict(chance_with=0.6, chance_without=0.4),
            dict(chance_with=0.4, chance_without=0.4),
        ),
        ("untagged", dict(span="if x <y> z | w > v"), dict(span="a </think> b")),
        ("stands_alone", dict(question="Which article of the treaty?"), dict(question="Who wrote this article?")),
        ("new", dict(num_earlier=0), dict(num_earlier=1)),
        ("verbatim", dict(span="Halm bridge"), dict(span="halm bridge")),
    ],
)
def test_where_the_line_is(guard, kept, refused):
    triple = triple_of(HONEST[1])
    assert refusals(structs.replace(triple, **kept), [guard]) == ()
    assert refusals(structs.replace(triple, **refused), [guard]) == (guard,)


def test_the_paper_has_no_guards_and_unknown_ones_are_refused():
    empty = Triple("", "", "", num_span_tokens=0, document="", hops=1)
    assert PAPER == () and refusals(empty, PAPER) == ()
    with pytest.raises(BadInput, match="no guard 'honesty'; choose from verbatim"):
        refusals(empty, ["honesty"])


def test_a_refused_triple_is_invalid_and_keeps_its_form():
    score = FormatScore(1.0, 0.5, 1.0, True, total=0.875)
    assert guarded(score, ()) == score
    assert guarded(score, ("new",)) == structs.replace(score, valid=False)
    invalid = structs.replace(score, valid=False)
    assert guarded(invalid, ()) == invalid


@given(*[st.text(max_size=30)] * 4, st.integers(1, 4))
def test_guards_answer_whatever_they_are_given(question, answer, span, document, hops):
    triple = Triple(question, answer, span, len(span), document, hops, (document,), (question,), (span,))
    assert set(refusals(triple)) <= set(OURS)
    assert ("verbatim" in refusals(triple)) == (not span.strip() or span not in document)


@given(st.lists(st.sampled_from(["Who built it?", "who  built it", "When?", "when", "", "橋は？"]), max_size=12))
def test_repeats_are_counted(questions):
    counts = count_earlier(questions)
    assert len(counts) == len(questions)
    kinds = [question.casefold().rstrip("?？").replace("  ", " ") for question in questions]
    assert counts == [kinds[:number].count(kind) for number, kind in enumerate(kinds)]


def test_the_table_in_the_docs_is_the_one_that_is_printed():
    docs = Path(__file__).parents[2] / "docs" / "evidence.md"
    assert table() in docs.read_text(encoding="utf-8")


def test_the_table_has_a_row_for_every_trick():
    header, _, *rows = table().splitlines()
    assert header.startswith("| trick | hops | published | honest | hole")
    assert len(rows) == len(TRICKS) + len(OPEN)
    assert rows[0] == "| empty span | 1 | 1.100 | 1.496 | yes | no | 1.000 | verbatim | 0.500 |"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0f73"])  # of two classes, and one that stands for two
def test_a_letter_with_a_megabyte_of_marks(marks):
    """Normalisation sorts them by comparing all with one another, which is hours; the limit only ends a hang."""
    honest = triple_of(HONEST[1])
    marked = structs.replace(honest, document=honest.document + " e" + marks * (1 << 19) + "s")
    assert refusals(marked) == ()
