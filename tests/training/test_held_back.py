"""Questions held back by document: `warmup/documents/held_back.py`."""

from quaere.records import Evidence
from quaere.warmup.documents.checked_question import CheckedQuestion
from quaere.warmup.documents.held_back import choose_documents, list_documents, split_by_document


def ask(number, *documents):
    spans = tuple(Evidence(name, 0, 4, "text") for name in documents)
    return CheckedQuestion(f"{documents[0] if documents else ''}#{number}", "Who?", ("Venn",), "single", 1, 1, 1, spans)


def make_questions(num_documents=20):
    return [ask(number, f"page-{number % num_documents}") for number in range(4 * num_documents)]


def test_no_document_is_on_both_sides():
    both = ask(99, "page-0", "page-1")
    held = choose_documents(make_questions(), 20)
    practice, exam, num_left_out = split_by_document([*make_questions(), ask(98)], list_documents, held.__contains__)
    sides = [{name for question in side for name in list_documents(question)} for side in (practice, exam)]
    assert not sides[0] & sides[1] and sides[1] == held and (len(practice), len(exam), num_left_out) == (60, 20, 1)
    assert split_by_document([both], list_documents, {"page-0"}.__contains__) == ([], [], 1)
    assert split_by_document([both], list_documents, {"page-0", "page-1"}.__contains__) == ([], [both], 0)


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
