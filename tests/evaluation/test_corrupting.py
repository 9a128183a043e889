"""Corruptions: each changes what it says it changes and nothing else, and the report stays a report."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from properties import examples
from quaere.evaluation.judges.corruptions import KINDS, SPOILING_CITATIONS, SPOILING_TEXT, corrupt, negate, rewrite
from quaere.evaluation.reports.lexical import MARK, num_negations, read_numbers
from quaere.records import Source
from reported import GOOD, SOURCES, make_report, passage


def check_whole(report):
    """Statements stand where they say, in order, and the conclusion in the text."""
    assert all(report.text[one.start : one.end] == one.text for one in report.statements)
    assert all(one.end <= other.start for one, other in zip(report.statements, report.statements[1:], strict=False))
    assert report.conclusion in report.text


def check_corrupted(report, found):
    """What the kind promises, on any report."""
    check_whole(found.report)
    assert found.report.text != report.text
    assert (found.statement is not None) == (found.kind in SPOILING_CITATIONS)
    if found.statement is not None:
        assert len(found.report.statements) == len(report.statements)
        before, after = report.statements[found.statement], found.report.statements[found.statement]
        others = [
            (one.text, other.text)
            for place, (one, other) in enumerate(zip(report.statements, found.report.statements, strict=True))
            if place != found.statement
        ]
        assert all(one == other for one, other in others)
        assert before.text != after.text
        if found.kind == "citation of another passage":
            assert before.citations != after.citations
            assert MARK.sub("", before.text) == MARK.sub("", after.text)
        else:
            assert before.citations == after.citations
    if found.kind == "number changed":
        numbers = [sorted(one.value for one in read_numbers(MARK.sub("", text))) for text in (before.text, after.text)]
        assert numbers[0] != numbers[1]
    if found.kind == "claim added":
        assert MARK.sub("", after.text).startswith(MARK.sub("", before.text).rstrip(".!?"))
    if found.kind == "sentence negated":
        assert abs(num_negations(before.text) - num_negations(after.text)) == 1
    if found.kind == "citations dropped":
        assert found.report.citations == () and not any(MARK.search(one.text) for one in found.report.statements)
    if found.kind == "paragraph repeated":
        assert len(found.report.statements) > len(report.statements)
        assert {one.text for one in found.report.statements} == {one.text for one in report.statements}
        assert found.report.conclusion == report.conclusion
    if found.kind == "conclusion contradicted":
        assert found.report.conclusion != report.conclusion


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_report_can_be_spoiled_in_every_way(kind):
    report = make_report()
    for seed in range(20):
        found = corrupt(kind, report, random.Random(seed))
        assert found.kind == kind
        check_corrupted(report, found)
    assert corrupt(kind, report, random.Random(3)) == corrupt(kind, report, random.Random(3))


def spoiled_place(report, spoiled):
    pairs = zip(report.statements, spoiled.statements, strict=True)
    return next(place for place, (one, other) in enumerate(pairs) if one.text != other.text)


def test_by_hand():
    report = make_report("It was built by Venn in 1702 [1].\n\nThe Oss is long [2].\n\nConclusion: It was built [1].")
    spoiled = {kind: corrupt(kind, report, random.Random(1)).report for kind in KINDS}
    assert spoiled["citations dropped"].text == (
        "It was built by Venn in 1702.\n\nThe Oss is long.\n\nConclusion: It was built."
    )
    assert spoiled["claim added"].statements[spoiled_place(report, spoiled["claim added"])].text in (
        "It was built by Venn in 1702; The Oss is long [1].",
        "The Oss is long; It was built by Venn in 1702 [2].",
        "The Oss is long; It was built [2].",
        "It was built; The Oss is long [1].",
    )
    assert spoiled["conclusion contradicted"].text.endswith("Conclusion: It was not built [1].")
    assert spoiled["conclusion contradicted"].conclusion == "It was not built [1]."
    assert spoiled["paragraph repeated"].text.count("The Oss is long") in (1, 3)
    assert spoiled["paragraph repeated"].text.endswith(report.text[-20:])
    assert "1702" not in spoiled["number changed"].text and " [1]." in spoiled["number changed"].text


def test_a_sentence_without_an_end_is_replaced_too():
    report = make_report("The Oss is long [2].")
    text = "Venn built it in 1702 [1]\n\nThe Oss is long [2]"
    one, other = (
        structs.replace(report.statements[0], text=line, start=text.index(line), end=text.index(line) + len(line),
                        citations=cited)
        for line, cited in zip(text.split("\n\n"), [(1,), (2,)], strict=True)
    )  # fmt: skip
    report = structs.replace(report, text=text, statements=(one, other))
    found = {corrupt("sentence replaced by another", report, random.Random(seed)).report.text for seed in range(9)}
    assert found == {
        "The Oss is long [1]\n\nThe Oss is long [2]",
        "Venn built it in 1702 [1]\n\nVenn built it in 1702 [2]",
    }


def test_a_conclusion_without_statements_is_contradicted():
    report = make_report("The Oss is long [2].\n\nConclusion: It was built. Venn built it.")
    bare = structs.replace(report, statements=report.statements[:1])
    found = corrupt("conclusion contradicted", bare, random.Random(0)).report
    assert found.conclusion == "It was not built. It is not true that Venn built it."
    assert found.text == f"The Oss is long [2].\n\nConclusion: {found.conclusion}"
    assert corrupt("conclusion contradicted", report, random.Random(0)).report.conclusion == found.conclusion


def test_negating():
    assert negate("It was built [1].") == "It was not built [1]."
    assert negate("It was not built [1].") == "It was built [1]."
    assert negate("Venn built it.") == "It is not true that Venn built it."


def test_rewriting_moves_what_follows():
    report = make_report("One is [1]. Two is [2]. Conclusion: Three is [1].")
    found = rewrite(report, {0: ("One was and ever will be [3].", (3,)), 2: ("No [1].", (1,))})
    assert found.text == "One was and ever will be [3]. Two is [2]. Conclusion: No [1]."
    assert found.conclusion == "No [1]." and found.citations == (3, 2, 1)
    check_whole(found)


def test_what_has_no_place_is_none():
    bare = make_report("Nothing is cited here.", sources=())
    assert all(corrupt(kind, bare, random.Random(0)) is None for kind in SPOILING_CITATIONS)
    assert corrupt("citations dropped", bare, random.Random(0)) is None
    empty = make_report("", sources=())
    assert all(corrupt(kind, empty, random.Random(0)) is None for kind in KINDS)
    assert set(SPOILING_CITATIONS) | set(SPOILING_TEXT) == set(KINDS) and len(KINDS) == 9


def test_the_word_conclusion_is_never_moved():
    text = "The Oss is long.\n\nConclusion: It was built [1]."
    inside = make_report(text)
    assert corrupt("sentence negated", inside, random.Random(0)).report.text.endswith(
        "Conclusion: It was not built [1]."
    )
    first, last = inside.statements
    across = structs.replace(last, text=text[18:], start=18)  # as a reader splits it that knows no labels
    assert corrupt("sentence negated", structs.replace(inside, statements=(first, across)), random.Random(0)) is None


WORDS = st.sampled_from(
    ["Venn", "built", "was", "is", "the", "bridge", "1702", "12", "3.5", "1,200", "never", "not", "Oss", "東京", "é"]
)
SENTENCES = st.builds(
    lambda words, marks: " ".join([*words, *(f"[{mark}]" for mark in marks)]) + ".",
    st.lists(WORDS, min_size=1, max_size=8),
    st.lists(st.integers(1, 5), max_size=2),
)
REPORTS = st.builds(
    lambda paragraphs, conclusion: make_report(
        "\n\n".join(" ".join(one) for one in paragraphs) + (f"\n\nConclusion: {conclusion}" if conclusion else ""),
        (*SOURCES, Source(4, passage("oss.md", "The Oss", "More of the Oss."))),
    ),
    st.lists(st.lists(SENTENCES, min_size=1, max_size=3), max_size=4),
    st.one_of(st.just(""), SENTENCES),
)


@settings(max_examples=examples(150), deadline=None)
@given(REPORTS, st.sampled_from(KINDS), st.integers(0, 99))
def test_a_corruption_changes_what_it_says_or_is_none(report, kind, seed):
    check_whole(report)
    found = corrupt(kind, report, random.Random(seed))
    if found is not None:
        check_corrupted(report, found)


def test_good_is_good():
    check_whole(make_report(GOOD))
