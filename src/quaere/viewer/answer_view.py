"""An answer as pages show it: its state, the sentence that it rests on, and the address of that sentence.

view_answer(record, documents.read, "/document").chips[0] ->
Chip("halm.md, The Halm bridge", "Orsolya Venn built it.", "/document?id=halm.md&start=118&end=140#span")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

from quaere.api.answer import Answer
from quaere.records import Evidence, Passage, Turn
from quaere.viewer.ask_history import AskRecord, AskState
from quaere.viewer.document_page import document_address
from quaere.viewer.transcript import Quotation

_MAX_SEEN = 10  # passages listed where there is no answer

Chips = Literal["", "quoted", "support", "seen"]


class Chip(Struct, frozen=True):
    """A sentence or passage with the address of its document; `href` is "" where the document is not as it was.

    Chip("halm.md, The Halm bridge", "Orsolya Venn built it.", "/document?id=halm.md&start=118&end=140#span")
    """

    label: str
    text: str
    href: str


class AnswerView(Struct, frozen=True):
    """A question and, once it is over, its answer.

    `chips_are` says what the chips hold: the quoted sentence, a sentence that contains the answer, or, without an
    answer, the passages that were seen. `quotation` is "none" where nothing was quoted; `quotes` is whether the model
    was asked to, None if that is not known.
    """

    id: str
    question: str
    state: AskState
    answer: str
    problem: str
    quotes: bool | None
    span: str
    quotation: Quotation
    chips_are: Chips
    chips: list[Chip]


def view_answer(record: AskRecord, read_document: Callable[[str], str], base: str) -> AnswerView:
    """The answer of a record; `read_document` gives "" for a document that is not there, `base` is where they are."""
    kind, evidence = _choose(record)
    chips = [_chip(read_document, base, *each) for each in evidence]
    return AnswerView(
        id=record.id,
        question=record.question,
        state=record.state,
        answer=record.answer,
        problem=record.problem,
        quotes=record.quotes,
        span=record.span,
        quotation="verbatim" if record.evidence else "not found" if record.span.strip() else "none",
        chips_are=kind if chips else "",
        chips=chips,
    )


def describe_answer(answer: Answer) -> dict[str, Any]:
    """What a record says of an answer."""
    if answer.episode.end != "answered":
        said = f"it ended without an answer: {answer.episode.end.replace('_', ' ')}"
        return {"state": "unanswered", "problem": said}
    if not answer.found:
        said = "not found in these documents: the passage with its answer has too few of the question's key words"
        return {"state": "unanswered", "problem": f"{said} (it would have been: {answer.text})"}
    return {
        "state": "answered",
        "answer": answer.text,
        "evidence": answer.evidence,
        "span": answer.span,
        "support": answer.support,
    }


# ------------------------------------------------------------------------------------------------------------- details


def _choose(record: AskRecord) -> tuple[Chips, list[tuple[Evidence, Passage | None]]]:
    """What the chips of a record hold: places in documents, each with the passage it was shown in."""
    seen = list(_passages(record.turns))
    if record.evidence is not None:
        return "quoted", [(record.evidence, _around(record.evidence, seen))]
    if record.support is not None:
        return "support", [(record.support, _around(record.support, seen))]
    if not record.is_over or record.state == "answered":
        return "", []
    named = list({passage.id: passage for passage in seen}.values())[:_MAX_SEEN]
    return "seen", [(_whole(each), each) for each in named]


def _passages(turns: Sequence[Turn]) -> Iterator[Passage]:
    return (hit.passage for turn in turns for result in turn.results for hit in result.hits)


def _whole(passage: Passage) -> Evidence:
    """The place of a passage, as far as it was shown."""
    return Evidence(passage.doc_id, passage.start, passage.start + len(passage.text), passage.text)


def _around(found: Evidence, passages: Sequence[Passage]) -> Passage | None:
    """The passage that a sentence was shown in."""
    for passage in passages:
        if passage.doc_id == found.doc_id and passage.start <= found.start and found.end <= passage.end:
            return passage
    return None


def _chip(read_document: Callable[[str], str], base: str, found: Evidence, passage: Passage | None) -> Chip:
    """A chip; without an address where the document is not there, or has other words at this place."""
    named = [found.doc_id, *((passage.title, passage.place) if passage else ())]
    label = ", ".join(dict.fromkeys(word for word in named if word))
    is_there = bool(found.text) and read_document(found.doc_id)[found.start : found.end] == found.text
    return Chip(label, found.text, document_address(base, found.doc_id, found.start, found.end) if is_there else "")
