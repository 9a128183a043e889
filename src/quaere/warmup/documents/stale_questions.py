"""Checks kept questions again after documents have changed: is the evidence still there, and the answer still right?

    located = locate_evidence(questions, touched={"halm.md"}, index)
    located.retired[0]      # Retired(id="halm.md#0:16", ..., reason="its evidence is gone")
    rechecked = await reread(located, examiner)     # the model reads the changed pages

Only questions about touched documents are checked. Evidence that has moved within its document gets its new place.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct, structs

from quaere.grouping import group_by
from quaere.records import Evidence, Passage
from quaere.search.index import Index
from quaere.warmup.documents.askable_facts import Fact
from quaere.warmup.documents.checked_question import CheckedQuestion, Draft, Worded
from quaere.warmup.documents.checks import UNREAD, Examiner
from quaere.warmup.documents.held_back import list_documents
from quaere.warmup.documents.unanswerable import FAILED, find_answered

NO_DOCUMENT, NO_EVIDENCE, SAME_EVIDENCE = "its document is gone", "its evidence is gone", "its evidence is outdated"
OUTAGE = 4  # lost answers; the few questions that are left may be what the model always fails at


class Retired(Struct, frozen=True):
    """A question that is no longer asked, and why.

    Retired("halm.md#0:16", "Who built Halm?", "Orsolya Venn", "halm.md", "its evidence is gone")
    """

    id: str
    question: str
    answer: str
    document: str
    reason: str


class Rechecked(Struct, frozen=True):
    """Questions by result: `untouched` and `checked` ones are kept, `retired` ones are not.

    Rechecked(untouched=[CheckedQuestion(...)], checked=[], retired=[Retired(...)])
    """

    untouched: list[CheckedQuestion]
    checked: list[CheckedQuestion]
    retired: list[Retired]


class _Known(Worded, frozen=True):
    """A question of a file: its answers are those of the file."""

    @property
    def answers(self) -> tuple[str, ...]:
        return self.draft.answers


def locate_evidence(questions: Sequence[CheckedQuestion], touched: Collection[str], index: Index) -> Rechecked:
    """Retire the questions whose document is gone, or whose evidence is no longer verbatim in it; uses no model."""
    found, there = Rechecked([], [], []), set(index.document_ids())
    for question in questions:
        names = list_documents(question)
        if not any(name in touched for name in names):
            found.untouched.append(question)
        elif gone := next((name for name in names if name not in there), ""):
            found.retired.append(_retire(question, NO_DOCUMENT, gone))
        else:
            places = [_find_place(span, index) for span in question.evidence]
            lost = [span.doc_id for span, place in zip(question.evidence, places, strict=True) if place is None]
            if lost:
                found.retired.append(_retire(question, NO_EVIDENCE, lost[0]))
            else:
                evidence = tuple(place for place in places if place)
                found.checked.append(structs.replace(question, evidence=evidence))
    return found


async def reread(located: Rechecked, examiner: Examiner) -> Rechecked:
    """Retire the questions that the model no longer answers as before with the present text of their pages.

    Comparisons and choices are not answered, because half of all guesses are right. A question of any kind is retired
    if a single fact with the same evidence is. An answer that was lost, as in an outage, retires none: it counts as
    right.
    """
    await examiner.search([question.question for question in located.checked])
    by_kind = group_by([_recall(question, examiner) for question in located.checked], lambda item: item.draft.kind)
    faults: dict[str, str] = {}  # by id
    for kind in ("single", "chain"):
        asked = by_kind.get(kind, [])
        shares = await examiner.read(f"{kind}, checked again", asked, needed=int(kind == "chain"), lost=1)
        faults |= {item.draft.id: UNREAD for item, share in zip(asked, shares, strict=True) if not share}
    unsaid = by_kind.get("unanswerable", [])
    answered = await find_answered(examiner, "checked again", unsaid)
    faults |= {item.draft.id: fault for item, fault in zip(unsaid, answered, strict=True) if fault not in ("", FAILED)}
    # Only a single fact shows which sentence is outdated: a chain may fail for either.
    singles = [one for one in located.checked if one.kind == "single" and one.id in faults]
    outdated = {(span.doc_id, span.text) for one in singles for span in one.evidence}
    result = Rechecked(located.untouched, [], list(located.retired))
    for question in located.checked:
        is_outdated = any((span.doc_id, span.text) in outdated for span in question.evidence)
        if fault := faults.get(question.id) or (SAME_EVIDENCE if is_outdated else ""):
            result.retired.append(_retire(question, fault))
        else:
            result.checked.append(question)
    return result


def _retire(question: CheckedQuestion, reason: str, document: str = "") -> Retired:
    answer = question.answers[0] if question.answers else ""
    return Retired(question.id, question.question, answer, document or list_documents(question)[-1], reason)


def _find_place(span: Evidence, index: Index) -> Evidence | None:
    """The evidence at the place nearest to its earlier one; None if its document no longer contains it."""
    text, places, at = index.document(span.doc_id), list[int](), -1
    while span.text and (at := text.find(span.text, at + 1)) >= 0:
        places.append(at)
    if not places:
        return None
    start = min(places, key=lambda place: abs(place - span.start))
    return Evidence(span.doc_id, start, start + len(span.text), span.text)


def _recall(question: CheckedQuestion, examiner: Examiner) -> Worded:
    """The question as the examiner takes it: with the passages of its evidence, or of its document if it has none."""
    facts = [_make_fact(question, _find_passage(span, examiner.index), span.text) for span in question.evidence]
    if not facts:
        name = list_documents(question)[0]
        numbers = examiner.index.passage_numbers(examiner.index.find_document(name))
        found = (passage for passage in examiner.hits[question.question] if passage.doc_id == name)
        page = next(found, None) or examiner.index.passage(numbers[0])
        facts = [_make_fact(question, page, page.text)]
    return _Known(Draft(question.id, question.kind, tuple(facts), question.answers), question.question)


def _find_passage(span: Evidence, index: Index) -> Passage:
    """The passage that contains the evidence, or its beginning."""
    number = index.find_document(span.doc_id)
    ends = (span.end, span.start + 1)
    found = (index.find_passage(number, span.start, end) for end in ends)
    return next(filter(None, found), None) or index.passage(index.passage_numbers(number)[0])


def _make_fact(question: CheckedQuestion, passage: Passage, sentence: str) -> Fact:
    """A fact without the span of its answer, which the examiner does not look at."""
    return Fact(question.id, passage, "", sentence, 0, 0, 0, "name")
