"""Questions held back by document: `warmup/documents/held_back.py`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from quaere.grouping import group_by
from quaere.records import Evidence
from quaere.warmup.documents.checked_question import CheckedQuestion
from quaere.warmup.documents.held_back import (
    choose_documents,
    find_clusters,
    link,
    list_contents,
    list_documents,
    split_by_document,
)


def ask(number, *documents):
    spans = tuple(Evidence(name, 0, 4, f"The text of number {number}") for name in documents)
    name = f"{documents[0] if documents else ''}#{number}"
    return CheckedQuestion(name, f"Who built {number}?", ("Venn",), "single", 1, 1, 1, spans)


def split(questions, held):
    return split_by_document(questions, list_documents, list_contents, held.__contains__)


def make_questions(num_documents=20):
    return [ask(number, f"page-{number % num_documents}") for number in range(4 * num_documents)]


def test_no_document_is_on_both_sides():
    both = ask(99, "page-0", "page-1")
    held = choose_documents(make_questions(), 20)
    practice, exam, num_left_out = split([*make_questions(), ask(98)], held)
    sides = [{name for question in side for name in list_documents(question)} for side in (practice, exam)]
    assert not sides[0] & sides[1] and sides[1] == held and (len(practice), len(exam), num_left_out) == (60, 20, 1)
    assert split([both], {"page-0"}) == ([], [], 1)
    assert split([both], {"page-0", "page-1"}) == ([], [both], 0)


def test_what_is_held_back_is_not_practised_in_the_same_words():
    held, other = ask(1, "page-1"), ask(2, "page-2")
    same_text = structs.replace(ask(3, "page-2"), question="who built THE 1")
    same_sentence = structs.replace(ask(4, "page-2"), evidence=(Evidence("page-2", 9, 13, "Text of number 1."),))
    assert split([held, other, same_text, same_sentence], {"page-1"}) == ([other], [held], 2)
    short = [
        structs.replace(one, evidence=(Evidence(one.evidence[0].doc_id, 0, 4, "1 built it."),)) for one in (held, other)
    ]
    assert split(short, {"page-1"}) == (short[1:], short[:1], 0)  # it says not what was built


@pytest.mark.parametrize(
    ("held", "practised", "is_practised"),
    [
        (
            "ハルム橋はヴェンによって建てられた。",
            "ハルム橋はヴェンによって建てられた。",
            False,
        ),  # no spaces, but a sentence
        ("สะพานฮัลม์สร้างโดยเวนน์", "สะพานฮัลม์สร้างโดยเวนน์", False),
        ("彼が建てた。", "彼が建てた。", True),  # who, and what?
        ("- Halm Bridge, built by Venn", "Halm Bridge, built by Venner, was opened.", True),
        ("- Halm Bridge, built by Venn", "In 1702 the Halm Bridge, built by Venn, was opened.", False),
        ("In 1702 the Halm Bridge, built by Venn, was opened.", "* Halm Bridge, built by Venn", False),
        ("ハルム橋はヴェンによって建てられた。", "1702年、ハルム橋はヴェンによって建てられた。", False),
        ("Venn built it.", "Venn built it, and Brod paid for the bridge.", True),
    ],
)
def test_a_sentence_is_known_in_any_script_and_inside_another(held, practised, is_practised):
    questions = [
        structs.replace(ask(number, name), evidence=(Evidence(name, 0, 4, text),))
        for number, (name, text) in enumerate((("page-1", held), ("page-2", practised)))
    ]
    assert split(questions, {"page-1"})[0] == questions[1:] * is_practised


def test_what_all_documents_are_asked_is_held_back_with_some_of_them():
    """Only the repetitions are lost, and not the other questions about these documents."""
    alike = [structs.replace(ask(100 + number, f"page-{number}"), question="How old is it?") for number in range(20)]
    questions = [*make_questions(), *alike]
    held = choose_documents(questions, 20)
    assert len(held) == 4 and held == choose_documents(make_questions(), 16)
    practice, exam, num_left_out = split(questions, held)
    assert (len(practice), len(exam), num_left_out) == (64, 20, 16)


def test_links_are_followed():
    assert link([["a", "b"], ["c"], ["d", "c"], ["b", "d"], []]) == dict.fromkeys("abcd", "a")


def test_the_choice_depends_on_the_documents_alone():
    questions = make_questions()
    assert choose_documents(questions[::-1], 20) == choose_documents(questions, 20)
    assert choose_documents(questions, 8) < choose_documents(questions, 20)


def test_one_document_at_least_is_on_each_side():
    for num in (0, 1, 1000):
        assert len(choose_documents(make_questions(2), num)) == 1
    assert choose_documents(make_questions(1), 5) == choose_documents([], 5) == frozenset()


def test_a_question_without_words_is_a_cluster_of_its_own():
    found = find_clusters([structs.replace(ask(1), question="?"), structs.replace(ask(2), question="?!")])
    assert len(set(found.values())) == 2


def test_a_question_without_evidence_is_about_the_document_in_its_id():
    assert list_documents(CheckedQuestion("a#b.md#0:16-x", "Who?", (), "single", 1, 1, 1, ())) == ["a#b.md"]
    assert list_documents(CheckedQuestion("q1", "Who?", (), "single", 1, 1, 1, ())) == []


def test_questions_that_depend_on_each_other_are_of_one_cluster():
    chain, same = ask(3, "page-2", "page-3"), structs.replace(ask(4, "page-4"), question="who built 1?")
    found = find_clusters([ask(1, "page-1"), ask(2, "page-2"), chain, ask(5, "page-3"), same, ask(6, "page-6")])
    groups = group_by(found, found.__getitem__)
    assert sorted(map(sorted, groups.values())) == [
        ["page-1#1", "page-4#4"],
        ["page-2#2", "page-2#3", "page-3#5"],
        ["page-6#6"],
    ]


@given(st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=4), max_size=20))
def test_items_of_one_link_have_one_representative_and_only_they(links):
    groups = []
    for items in links:
        joined = set(items).union(*(group for group in groups if group & set(items)))
        groups = [group for group in groups if not group & set(items)] + [joined]
    found = link(links)
    assert {frozenset(item for item in found if found[item] == name) for name in found.values()} == set(
        map(frozenset, groups)
    )
    assert all(found[found[item]] == found[item] for item in found)
