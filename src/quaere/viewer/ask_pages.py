"""Answers to questions: the pages of Ask, and the answers of a run of `quaere ask`.

read_asked(queue, "5f3a9c01d2e4").chips[0] ->
Chip("halm.md, The Halm bridge", "Orsolya Venn built it.", "/document?id=halm.md&start=118&end=140#span")

read_answers(run, "ask-20250301-101500")[0].answer -> "Orsolya Venn"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct

from quaere.api.answer import read_answer
from quaere.api.run import Run, RunDocuments, open_documents
from quaere.records import Evidence, Passage, SolveTask
from quaere.runs.rows import EpisodeFilter, EpisodeRow
from quaere.viewer.ask_queue import AskLine, AskQueue, AskRecord, AskState, describe_answer
from quaere.viewer.document_page import document_address, place_of
from quaere.viewer.page_formats import Listed, Page, copy_fields, cut_page, path_to, read_body
from quaere.viewer.run_folder import NotShown
from quaere.viewer.transcript import Quotation, TurnView, view_turn

ASK_KIND = "ask"  # of runs of `quaere ask`
MAX_ANSWERS = 50  # that the page of a run shows; the page of its questions has them all
_MAX_SEEN = 10  # passages listed where there is no answer

Chips = Literal["", "quoted", "support", "seen"]
View = TypeVar("View", bound="AnswerView")


class Chip(Struct, frozen=True):
    """A source of an answer, shown as a link: a sentence or passage, and the URL of its document in the viewer.

    `href` is "" if the document is gone or has changed at that place.

    Chip("halm.md, The Halm bridge", "Orsolya Venn built it.", "/document?id=halm.md&start=118&end=140#span")
    """

    label: str
    text: str
    href: str


class AnswerView(Struct, frozen=True):
    """A question and, once it is finished, its answer.

    `chips_are` is the kind of the chips: the quoted sentence, a sentence that contains the answer, or, without an
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


class AskedPage(AnswerView, frozen=True):
    """A question with its turns so far and, once it is finished, its answer.

    `place` is its position in the queue, counted from 1; 0 if it is not waiting.
    """

    time: str
    model: str
    index: str
    is_over: bool
    place: int
    seconds: float
    turns: list[TurnView]


class RunAnswer(AnswerView, frozen=True):
    """An answer of a run, whose `id` is its episode's; `scores` are empty where no accepted answers were given."""

    scores: dict[str, float]


class AskQuery(Listed, frozen=True):
    """URL settings of the page Ask: which questions are listed, and the text that the input box starts with.

    AskQuery(text="bridge", question="Who built the Halm bridge?", page=2)
    """

    question: str = ""


class AskPage(Struct, frozen=True):
    """The page Ask: the input box, and one page of the earlier questions.

    `history` is the file that stores the questions, "" if they are in memory only; `said` is why it cannot be written.
    """

    query: AskQuery
    model: str
    index: str
    num_documents: int
    history: str
    said: str
    page: Page[AskLine]


class AskBody(Struct, frozen=True):
    """The body of a request that asks a question.

    AskBody(question="Who built the Halm bridge?")
    """

    question: str


class AskReply(Struct, frozen=True):
    """The response to asking or cancelling a question: its id, its page and its state.

    AskReply(id="5f3a9c01d2e4", page="/ask/5f3a9c01d2e4", state="waiting")
    """

    id: str
    page: str
    state: AskState


# --------------------------------------------------------------------------------------------------------- pages of Ask


def read_ask(queue: AskQueue, query: AskQuery) -> AskPage:
    """The page Ask, with the earlier questions that contain the query's text, newest first."""
    text = query.text.casefold()
    lines = [line for line in queue.lines() if text in line.question.casefold() or text in line.answer.casefold()]
    return AskPage(
        query=query,
        model=queue.model,
        index=queue.index_name,
        num_documents=queue.index.manifest.num_documents if queue.index is not None else 0,
        history=str(queue.history.path or ""),
        said=queue.history.said,
        page=cut_page(lines, query.page),
    )


def read_asked(queue: AskQueue, id: str) -> AskedPage:
    """The page of one question; `NotShown` if there is none of this id."""
    record = _find(queue, id)
    turns = [view_turn(turn, record.span) for turn in record.turns]
    documents = RunDocuments(queue.index)
    return view_answer(AskedPage, record, documents.read, "/document", place=queue.place(id), turns=turns)


def ask(queue: AskQueue, body: bytes) -> AskReply:
    """Add the question in a request body to the queue; `BadInput` if the body is no question or the queue is full."""
    return _reply(queue.add(read_body(body, AskBody, "a question", '{"question": "..."}').question))


def cancel(queue: AskQueue, id: str) -> AskReply:
    """Cancel a question that waits or runs; `NotShown` if there is none of this id."""
    _find(queue, id)
    queue.cancel(id)
    return _reply(_find(queue, id))


def _reply(record: AskRecord) -> AskReply:
    return copy_fields(AskReply, record, page=path_to("ask", record.id))


def _find(queue: AskQueue, id: str) -> AskRecord:
    record = queue.find(id)
    if record is None:
        raise NotShown(f"there is no question {id}", hint="those that were asked are listed at /ask")
    return record


# ----------------------------------------------------------------------------------------------------- answers of a run


def read_answers(run: Run, name: str) -> list[RunAnswer]:
    """The first `MAX_ANSWERS` answers of a run of `quaere ask`, oldest first; [] for any other run."""
    if run.info.kind != ASK_KIND:
        return []
    documents, base = open_documents(run), path_to("run", name, "document")
    rows = run.rows(EpisodeFilter())[:MAX_ANSWERS]
    return [
        view_answer(RunAnswer, record, documents.read, base, scores=row.metrics)
        for row in rows
        if (record := read_record(run, row)) is not None
    ]


def read_record(run: Run, row: EpisodeRow) -> AskRecord | None:
    """An episode of a run as a record of the page Ask; None if its task is not to answer a question."""
    episode = run.episode(row.id)
    if not isinstance(episode.task, SolveTask):
        return None
    quotes, *least = (run.info.settings.get(key) for key in ("evidence", "min_overlap", "min_confidence"))
    overlap, confidence = (value if isinstance(value, int | float) else 0.0 for value in least)
    return AskRecord(
        id=row.id,
        question=row.question,
        time=run.info.created,
        quotes=quotes if isinstance(quotes, bool) else None,
        turns=episode.turns,
        **describe_answer(read_answer(episode, overlap, confidence), confidence),
    )


# --------------------------------------------------------------------------------------------------------- any answer


def view_answer(
    kind: type[View], record: AskRecord, read_document: Callable[[str], str], base: str, **more: Any
) -> View:
    """A view of class `kind` made from a record; the fields that `AnswerView` lacks come from `more` or the record.

    `read_document` gives "" for a document that does not exist; `base` is the address of the documents.
    """
    kept, evidence = _choose(record)
    chips = [_chip(read_document, base, *each) for each in evidence]
    quotation = "verbatim" if record.evidence else "not found" if record.span.strip() else "none"
    return copy_fields(kind, record, quotation=quotation, chips_are=kept if chips else "", chips=chips, **more)


def _choose(record: AskRecord) -> tuple[Chips, list[tuple[Evidence, Passage | None]]]:
    """Sources shown under an answer: quoted, found or merely seen; with the passage around each, if it was shown."""
    seen = [hit.passage for turn in record.turns for result in turn.results for hit in result.hits]
    sentence = record.evidence or record.support
    if sentence is not None:
        return "quoted" if record.evidence else "support", [(sentence, _around(sentence, seen))]
    if not record.is_over or record.state == "answered":
        return "", []
    named = list({passage.id: passage for passage in seen}.values())[:_MAX_SEEN]
    return "seen", [(place_of(each), each) for each in named]


def _around(found: Evidence, passages: Sequence[Passage]) -> Passage | None:
    """The first of these passages that contains the sentence; None if none does."""
    own = (passage for passage in passages if passage.doc_id == found.doc_id)
    return next((one for one in own if one.start <= found.start and found.end <= one.end), None)


def _chip(read_document: Callable[[str], str], base: str, found: Evidence, passage: Passage | None) -> Chip:
    named = [found.doc_id, *((passage.title, passage.place) if passage else ())]
    label = ", ".join(dict.fromkeys(word for word in named if word))
    return Chip(label, found.text, document_address(read_document, base, found))
