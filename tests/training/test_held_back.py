"""Questions held back by document: `warmup/documents/held_back.py`."""

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


def test_documents_that_are_asked_the_same_are_chosen_together():
    pairs = {name: f"page-{int(name[5:]) ^ 1}" for name in (f"page-{number}" for number in range(20))}
    same = [
        structs.replace(one, question=f"Who built pair {number % 20 // 2}-{number // 20}?")
        for number, one in enumerate(make_questions())
    ]
    held = choose_documents(same, 20)
    assert len(held) == 6 and all(pairs[name] in held for name in held)
    practice, exam, num_left_out = split(same, held)
    assert (len(practice), len(exam), num_left_out) == (56, 24, 0)


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
