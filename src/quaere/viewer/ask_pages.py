"""The pages of Ask: the box with the history below it, and one question with its steps and its answer.

read_asked(queue, "5f3a9c01d2e4").chips[0] ->
Chip("halm.md, The Halm bridge", "Orsolya Venn built it.", "/document?id=halm.md&start=118&end=140#span")
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, structs

from quaere.api.run import RunDocuments
from quaere.errors import BadInput
from quaere.records.foreign_json import decode_json
from quaere.viewer.answer_view import AnswerView, view_answer
from quaere.viewer.ask_history import AskLine, AskRecord, AskState
from quaere.viewer.ask_queue import AskQueue
from quaere.viewer.page_formats import path_to
from quaere.viewer.page_settings import Page, PageNumber, cut_page
from quaere.viewer.run_folder import NotShown
from quaere.viewer.transcript import TurnView, view_turn

PAGE_SIZE = 50


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


class AskedPage(AnswerView, frozen=True):
    """A question with its steps and, once it is over, its answer; `place` is its place in the queue."""

    time: str
    model: str
    index: str
    is_over: bool
    place: int
    seconds: float
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
    view = view_answer(record, RunDocuments(queue.index).read, "/document")
    return AskedPage(
        **structs.asdict(view),
        time=record.time,
        model=record.model,
        index=record.index,
        is_over=record.is_over,
        place=queue.place(id),
        seconds=record.seconds,
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
