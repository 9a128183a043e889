"""The pages of Ask: the box with the history below it, and one question with its steps and its answer.

read_asked(queue, "5f3a9c01d2e4").chips[0] ->
Chip("halm.md, The Halm bridge", "Orsolya Venn built it.", "/document?id=halm.md&start=118&end=140#span")
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from quaere.errors import BadInput
from quaere.records import Evidence, Passage, Turn
from quaere.records.foreign_json import decode_json
from quaere.search.index import Index
from quaere.viewer.ask_history import AskLine, AskRecord, AskState
from quaere.viewer.ask_queue import AskQueue
from quaere.viewer.document_page import document_address
from quaere.viewer.page_formats import path_to
from quaere.viewer.page_settings import Page, PageNumber, cut_page
from quaere.viewer.run_folder import NotShown
from quaere.viewer.transcript import Quotation, TurnView, view_turn

PAGE_SIZE = 50
_MAX_SEEN = 10  # passages listed where there is no answer

Chips = Literal["", "quoted", "support", "seen"]


class AskQuery(Struct, frozen=True):
    """Which questions are listed, and what stands in the box.

    AskQuery(text="bridge", question="Who built the Halm bridge?", page=2)
    """

    text: str = ""
    question: str = ""
    page: PageNumber = 1


class AskPage(Struct, frozen=True):
    """The box, and one page of the history; `history` is the file that keeps it, "" if it ends with the viewer."""

    query: AskQuery
    model: str
    index: str
    num_documents: int
    history: str
    said: str
    page: Page[AskLine]


class Chip(Struct, frozen=True):
    """A sentence or passage with the address of its document; `href` is "" where the document is not as it was.

    Chip("halm.md, The Halm bridge", "Orsolya Venn built it.", "/document?id=halm.md&start=118&end=140#span")
    """

    label: str
    text: str
    href: str


class AskedPage(Struct, frozen=True):
    """A question with its steps and, once it is over, its answer.

    `chips_are` says what the chips hold: the quoted sentence, a sentence that contains the answer, or, without an
    answer, the passages that were seen. `quotation` is "none" where nothing was quoted; `quotes` is whether the model
    was asked to. `place` is its place in the queue.
    """

    id: str
    question: str
    time: str
    model: str
    index: str
    state: AskState
    is_over: bool
    place: int
    answer: str
    problem: str
    seconds: float
    quotes: bool
    span: str
    quotation: Quotation
    chips_are: Chips
    chips: list[Chip]
    turns: list[TurnView]


class AskBody(Struct, frozen=True):
    """The body of a request that asks a question.

    AskBody(question="Who built the Halm bridge?")
    """

    question: str


class AskReply(Struct, frozen=True):
    """Where the question is shown.

    AskReply(id="5f3a9c01d2e4", page="/ask/5f3a9c01d2e4", state="waiting")
    """

    id: str
    page: str
    state: AskState


def read_ask(queue: AskQueue, query: AskQuery) -> AskPage:
    """The box and one page of the history, the newest first."""
    text = query.text.casefold()
    lines = [line for line in queue.lines() if text in line.question.casefold() or text in line.answer.casefold()]
    index, history = queue.index, queue.history
    return AskPage(
        query=query,
        model=queue.model,
        index=queue.index_name,
        num_documents=index.manifest.num_documents if index is not None else 0,
        history=str(history.path or ""),
        said=history.said,
        page=cut_page(lines, query.page, PAGE_SIZE),
    )


def read_asked(queue: AskQueue, id: str) -> AskedPage:
    """The page of one question; `NotShown` if there is none of this id."""
    record = _find(queue, id)
    kind, evidence = _choose(record)
    chips = [_chip(queue.index, *each) for each in evidence]
    return AskedPage(
        id=record.id,
        question=record.question,
        time=record.time,
        model=record.model,
        index=record.index,
        state=record.state,
        is_over=record.is_over,
        place=queue.place(id),
        answer=record.answer,
        problem=record.problem,
        seconds=record.seconds,
        quotes=record.quotes,
        span=record.span,
        quotation="verbatim" if record.evidence else "not found" if record.span.strip() else "none",
        chips_are=kind if chips else "",
        chips=chips,
        turns=[view_turn(turn, record.span) for turn in record.turns],
    )


def ask(queue: AskQueue, body: bytes) -> AskReply:
    """Take a question."""
    try:
        given = decode_json(body, AskBody)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInput(f"not a question: {error}", hint='{"question": "..."}') from None
    return _reply(queue.add(given.question))


def cancel(queue: AskQueue, id: str) -> AskReply:
    """Stop a question that waits or runs."""
    _find(queue, id)
    queue.cancel(id)
    return _reply(_find(queue, id))


# ------------------------------------------------------------------------------------------------------------- details


def _reply(record: AskRecord) -> AskReply:
    return AskReply(record.id, path_to("ask", record.id), record.state)


def _find(queue: AskQueue, id: str) -> AskRecord:
    record = queue.find(id)
    if record is None:
        raise NotShown(f"there is no question {id}", hint="those that were asked are listed at /ask")
    return record


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


def _chip(index: Index | None, found: Evidence, passage: Passage | None) -> Chip:
    """A chip; without an address where the document is not there, or has other words at this place."""
    named = [found.doc_id, *((passage.title, passage.place) if passage else ())]
    label = ", ".join(dict.fromkeys(word for word in named if word))
    try:
        text = index.document(found.doc_id) if index is not None else ""
    except BadInput:
        text = ""
    stands = bool(found.text) and text[found.start : found.end] == found.text
    address = document_address("/document", found.doc_id, found.start, found.end)
    return Chip(label, found.text, address if stands else "")
