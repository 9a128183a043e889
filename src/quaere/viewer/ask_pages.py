"""The pages of Ask: the box with the earlier questions, and one question with its answer and steps.

read_asked(queue, "5f3a9c01d2e4").answer -> "Orsolya Venn"
"""

from msgspec import Struct

from quaere.api.run import RunDocuments
from quaere.viewer.answer_view import AnswerView, unquoted_support, view_answer
from quaere.viewer.ask_queue import AskLine, AskQueue, AskRecord, AskState
from quaere.viewer.conversation import TurnView, view_turns
from quaere.viewer.page_formats import Listed, ListPage, copy_fields, cut_page, path_to, read_body
from quaere.viewer.run_folder import require

MAX_RECENT = 12  # other questions beside an answer


class AskedPage(AnswerView, frozen=True, kw_only=True):
    """A question with its turns so far and, once it is finished, its answer; `recent` are the questions asked last.

    `place` is its position in the queue, counted from 1; 0 if it is not waiting.
    """

    model: str
    index: str
    is_over: bool
    place: int
    seconds: float
    turns: list[TurnView]
    recent: list[AskLine]


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
    more = {
        "place": queue.place(id),
        "turns": view_turns(record.turns, record.span, unquoted_support(record)),
        "recent": [copy_fields(AskLine, line) for line in queue.lines()[:MAX_RECENT]],
    }
    return view_answer(AskedPage, record, RunDocuments(queue.index).read, "/document", **more)


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
