"""Answers to questions: the pages of Ask, the answers of a run of `quaere ask`, and the documents that both cite.

read_asked(queue, "5f3a9c01d2e4").chips[0] ->
Chip("halm.md, The Halm bridge", "Orsolya Venn built it.", "/document?id=halm.md&start=118&end=140#span")

read_answers(run, "ask-20250301-101500")[0].answer -> "Orsolya Venn"

show_document(text, DocumentQuery(id="halm.md", start=118, end=163)).parts[1] ->
TextPart("Orsolya Venn built it.", is_quoted=True)

A document is found by its id in an index that the viewer was given or that a run names, never by a path.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from msgspec import Struct

from quaere.api.answer import read_answer
from quaere.api.run import Run, RunDocuments, open_documents
from quaere.errors import BadInput
from quaere.records import Evidence, Passage, SolveTask
from quaere.runs.rows import EpisodeFilter, EpisodeRow
from quaere.search.index import Index
from quaere.viewer.ask_queue import AskLine, AskQueue, AskRecord, AskState, describe_answer
from quaere.viewer.page_formats import Listed, ListPage, copy_fields, cut_page, path_to, read_body
from quaere.viewer.run_folder import NotShown, require
from quaere.viewer.transcript import Quotation, TextPart, TurnView, mark_part, view_turn

ASK_KIND = "ask"  # of runs of `quaere ask`
MAX_ANSWERS = 50  # that the page of a run shows; the page of its questions has them all
WINDOW_CHARS = 20_000  # of a document that one page shows
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


class AnswerView(AskLine, frozen=True, kw_only=True):
    """A question and, once it is finished, its answer.

    `chips_are` is the kind of the chips: the quoted sentence, a sentence that contains the answer, or, without an
    answer, the passages that were seen. `quotation` is "none" where nothing was quoted; `quotes` is whether the model
    was asked to, None if that is not known.
    """

    problem: str
    quotes: bool | None
    span: str
    quotation: Quotation
    chips_are: Chips
    chips: list[Chip]


class AskedPage(AnswerView, frozen=True, kw_only=True):
    """A question with its turns so far and, once it is finished, its answer.

    `place` is its position in the queue, counted from 1; 0 if it is not waiting.
    """

    model: str
    index: str
    is_over: bool
    place: int
    seconds: float
    turns: list[TurnView]


class RunAnswer(AnswerView, frozen=True, kw_only=True):
    """An answer of a run, whose `id` is its episode's; `scores` are empty where no accepted answers were given."""

    scores: dict[str, float]


class AskQuery(Listed, frozen=True):
    """URL settings of the page Ask: which questions are listed, and the text that the input box starts with.

    AskQuery(text="bridge", question="Who built the Halm bridge?", page=2)
    """

    question: str = ""


class AskPage(ListPage[AskQuery, AskLine], frozen=True):
    """The page Ask: the input box, and one page of the earlier questions.

    `history` is the file that stores the questions, "" if they are in memory only; `said` is why it cannot be written.
    """

    model: str
    index: str
    num_documents: int
    history: str
    said: str


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
    read_document = RunDocuments(queue.index).read
    return _view_answer(AskedPage, record, read_document, "/document", place=queue.place(id), turns=turns)


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
    return require(queue.find(id), f"there is no question {id}", "those that were asked are listed at /ask")


# ----------------------------------------------------------------------------------------------------- answers of a run


def read_answers(run: Run, name: str) -> list[RunAnswer]:
    """The first `MAX_ANSWERS` answers of a run of `quaere ask`, oldest first; [] for any other run."""
    if run.info.kind != ASK_KIND:
        return []
    documents, base = open_documents(run), path_to("run", name, "document")
    return [
        _view_answer(RunAnswer, record, documents.read, base, scores=row.metrics)
        for row in run.rows(EpisodeFilter())[:MAX_ANSWERS]
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


def _view_answer(
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
        own = (one for one in seen if one.doc_id == sentence.doc_id)
        around = next((one for one in own if one.start <= sentence.start and sentence.end <= one.end), None)
        return "quoted" if record.evidence else "support", [(sentence, around)]
    if not record.is_over or record.state == "answered":
        return "", []
    named = list({passage.id: passage for passage in seen}.values())[:_MAX_SEEN]
    return "seen", [(place_of(each), each) for each in named]


def _chip(read_document: Callable[[str], str], base: str, found: Evidence, passage: Passage | None) -> Chip:
    named = [found.doc_id, *((passage.title, passage.place) if passage else ())]
    label = ", ".join(dict.fromkeys(word for word in named if word))
    return Chip(label, found.text, document_address(read_document, base, found))


# ----------------------------------------------------------------------------------------------------------- documents


class DocumentQuery(Struct, frozen=True):
    """A document by its id, the characters to mark, and the first one to show (by default well before the mark).

    DocumentQuery(id="halm.md", start=118, end=163)
    """

    id: str = ""
    start: int = 0
    end: int = 0
    at: int | None = None


class DocumentPage(Struct, frozen=True):
    """A document, or the part of it around the mark; `before` and `after` are where other parts begin, None for none.

    `run` is the run whose index has the document; "" for the index of the page Ask. `said` is a note about that index.
    """

    run: str
    query: DocumentQuery
    index: str
    num_chars: int
    first: int
    parts: list[TextPart]
    before: int | None
    after: int | None
    said: str = ""


def read_document(index: Index | None, query: DocumentQuery) -> DocumentPage:
    """The page of a document of the index that the page Ask searches; `NotShown` if the document is not available."""
    said = "the documents are not here: they are behind a search server"
    index = require(index, said, "see the passages of a step")
    try:
        text = index.document(query.id)
    except BadInput as error:
        raise NotShown(f"{index.path} has no document {query.id}", hint="it may have been removed") from error
    return show_document(text, query, index=str(index.path))


def read_run_document(run: Run, name: str, query: DocumentQuery) -> DocumentPage:
    """The page of a document of the index that a run names; `NotShown` if the document is not available."""
    documents = open_documents(run)
    said, hint = f"run {name} has no document {query.id}", documents.said or "it may have been removed"
    index, text = require(documents.index, said, hint), require(documents.read(query.id), said, hint)
    return show_document(text, query, index=str(index.path), run=name, said=documents.said)


def show_document(text: str, query: DocumentQuery, *, index: str = "", run: str = "", said: str = "") -> DocumentPage:
    """The part of a document that a query asks for, with its span marked."""
    size = len(text)
    start = min(max(0, query.start), size)
    first = min(max(0, start - WINDOW_CHARS // 2 if query.at is None else query.at), size)
    last = min(size, first + WINDOW_CHARS)
    return DocumentPage(
        run=run,
        query=query,
        index=index,
        num_chars=size,
        first=first,
        parts=mark_part(text[first:last], max(0, start - first), max(0, start - first, query.end - first)),
        before=max(0, first - WINDOW_CHARS) if first else None,
        after=last if last < size else None,
        said=said,
    )


def document_address(read_document: Callable[[str], str], base: str, found: Evidence) -> str:
    """The address of a document with a span marked, which a browser scrolls to.

    "/document?id=halm.md&start=118&end=163#span"; "" if the document does not exist or has another text at this place.
    """
    if not found.text or read_document(found.doc_id)[found.start : found.end] != found.text:
        return ""
    query = urlencode({"id": found.doc_id, "start": found.start, "end": found.end}, errors="replace")
    return f"{base}?{query}#span"


def place_of(passage: Passage) -> Evidence:
    """The place of a passage in its document; it ends where the shown text ends, if the passage was shortened."""
    return Evidence(passage.doc_id, passage.start, passage.start + len(passage.text), passage.text)
