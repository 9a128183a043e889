"""The tools and resources of `quaere mcp`: an index, and with a model the agent that answers from it.

documents = IndexTools(open_index(Path("docs-index")))
server = make_mcp_server(documents.tools, documents, documents.close)

Every result names the document, the headings and the characters that its text is, with the text's SHA-256: a client
can check a quotation without this server.
"""

import itertools
from hashlib import sha256
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote, unquote

from msgspec import Meta, Struct

from quaere.api import answer as answers
from quaere.api.agent import OpenAgent
from quaere.api.report import choose_writer
from quaere.chat.spans import shown_passages
from quaere.chat.terminal_text import UNPRINTABLE
from quaere.dialects.report.report_writer import bind_report
from quaere.errors import BadInput
from quaere.policies.catalogue import needs_guide
from quaere.records import Passage, Question, ReportTask, SolveTask, Task
from quaere.search.index import Index
from quaere.search.searcher import LocalSearcher, Searcher
from quaere.serving.mcp_server import Resource, Tool

MAX_ASKED = 16  # questions at once; a model answers a few at a time
_PAGE = 100  # resources of one listing
_PASSAGE = "quaere://passage/"

Query = Annotated[str, Meta(min_length=1, max_length=8192)]
DocumentId = Annotated[str, Meta(min_length=1, max_length=4096, description="as `document` of a result has it")]


class SearchArguments(Struct, forbid_unknown_fields=True):
    """Arguments of `search`."""

    query: Annotated[Query, Meta(description="words to search for, or a question")]
    topk: Annotated[int, Meta(ge=1, le=50, description="most passages")] = 5


class DocumentArguments(Struct, forbid_unknown_fields=True):
    """Arguments of `get_document`."""

    document: DocumentId
    start: Annotated[int, Meta(ge=0, le=2**53, description="first character")] = 0
    num_chars: Annotated[int, Meta(ge=1, le=50_000, description="most characters")] = 20_000


class QuestionArguments(Struct, forbid_unknown_fields=True):
    """Arguments of `ask` and `report`."""

    question: Query


class Quotation(Struct, frozen=True):
    """Characters `start` to `end` of a document; `sha256` is that of `text` in UTF-8.

    Quotation("rivers.md", "The Oss", "Bridges", "lines 3-4", 38, 94, "5f2c...", "Orsolya Venn built it in 1702 ...")
    """

    document: str
    title: str
    heading: str
    place: str
    start: int
    end: int
    sha256: str
    text: str

    @classmethod
    def cut(cls, passage: Passage, start: int, text: str, **more: Any) -> Self:
        """This text at `start` of the passage's document, under the passage's headings."""
        where = passage.doc_id, passage.title, passage.heading, passage.place
        return cls(*where, start, start + len(text), sha256(text.encode()).hexdigest(), text, **more)


class FoundPassage(Quotation, frozen=True, kw_only=True):
    """A passage: its id, its address as a resource, and its score if it was found by a search."""

    id: str
    uri: str
    score: float | None = None

    @classmethod
    def of(cls, passage: Passage, score: float | None = None) -> Self:
        """The passage, with its whole text."""
        uri = _PASSAGE + quote(passage.id, safe="")
        return cls.cut(passage, passage.start, passage.text, id=passage.id, uri=uri, score=score)


class Found(Struct, frozen=True):
    """Result of `search`: passages, best first."""

    passages: list[FoundPassage]


class DocumentText(Quotation, frozen=True, kw_only=True):
    """Result of `get_document`: its text from `start` to `end` of `num_chars`; `heading` is the one at `start`."""

    num_chars: int


class AskedAnswer(Struct, frozen=True):
    """Result of `ask`.

    `status` is "answered"; "not_in_documents" if the model says that the documents do not answer; or "not_found" if it
    gave no answer, or one whose passage has too few words of the question. `said` is all of it in words. `evidence`
    is the sentence that the model quoted, or else one that contains the answer.
    """

    status: Literal["answered", "not_in_documents", "not_found"]
    answer: str
    said: str
    evidence: Quotation | None
    queries: list[str]
    passages: list[FoundPassage]
    confidence: float | None


class CitedSource(Struct, frozen=True):
    """A source of a report: the number of its citations, [2], and the passage."""

    number: int
    passage: FoundPassage


class AskedReport(Struct, frozen=True):
    """Result of `report`: text with citations such as [2], their sources, and numbers that have none.

    `status` is "not_written" if the model ended without a report.
    """

    status: Literal["written", "not_written"]
    text: str
    conclusion: str
    sources: list[CitedSource]
    unresolved: list[int]


class IndexTools:
    """Tools on an index: `search` and `get_document`. Its passages are the resources."""

    template = _PASSAGE + "{id}"

    def __init__(self, index: Index, searcher: Searcher | None = None) -> None:
        self.index = index
        self._searcher = searcher or LocalSearcher(index, max_waiting=256)

    @property
    def tools(self) -> list[Tool]:
        """The tools, for `make_mcp_server`."""
        search = "Search the documents. Gives the passages that match best, with their place in their document."
        read = "Read a document, or a part of it. Its id comes from a result of search."
        return [
            Tool("search", "Search documents", search, SearchArguments, Found, self._search),
            Tool("get_document", "Read a document", read, DocumentArguments, DocumentText, self._get_document),
        ]

    async def _search(self, asked: SearchArguments) -> Found:
        check_text("query", asked.query)
        (hits,) = await self._searcher.search([asked.query], asked.topk)
        return Found([FoundPassage.of(hit.passage, hit.score) for hit in hits])

    async def _get_document(self, asked: DocumentArguments) -> DocumentText:
        check_text("document", asked.document)
        number = self.index.find_document(asked.document)
        whole = self.index.read_document(number, "file")
        num_chars = len(whole.text)
        if asked.start > num_chars:
            raise BadInput(f"start is {asked.start}, and the document has {num_chars} characters")
        there = self.index.find_passage(number, asked.start, asked.start)
        under = Passage("", whole.id, whole.title, "", 0, 0, heading=there.heading if there else "")
        part = whole.text[asked.start : asked.start + asked.num_chars]
        return DocumentText.cut(under, asked.start, part, num_chars=num_chars)

    # --------------------------------------------------------------------------------------------------- resources

    def page(self, cursor: str | None) -> tuple[list[Resource], str | None]:
        """The next passages of the index; a cursor is the number of the first."""
        is_number = cursor is None or (cursor.isascii() and cursor.isdecimal() and len(cursor) < 18)
        first = int(cursor or 0) if is_number else len(self.index)
        if first >= len(self.index):
            raise BadInput("this cursor is not of this index")
        end = min(first + _PAGE, len(self.index))
        found = [_as_resource(self.index.passage(number)) for number in range(first, end)]
        return found, str(end) if end < len(self.index) else None

    def read(self, uri: str) -> Resource:
        """The passage with this address."""
        name = unquote(uri.removeprefix(_PASSAGE)) if uri.startswith(_PASSAGE) and len(uri) < 16384 else ""
        doc_id, _, number = name.rpartition("#")
        try:
            check_text("the id", doc_id)
            numbers = self.index.passage_numbers(self.index.find_document(doc_id))
            found = self.index.passage(numbers[int(number)])
            if found.id == name:  # and not "#-1" or "#01"
                return _as_resource(found)
        except (BadInput, ValueError, IndexError):
            pass
        raise BadInput(f"there is no passage at this address; one looks like {self.template}")

    async def close(self) -> None:
        """Release the search threads."""
        await self._searcher.close()


class AgentTools(IndexTools):
    """The same with `ask` and `report`, answered by a model."""

    def __init__(self, index: Index, agent: OpenAgent, model: str) -> None:
        super().__init__(index, agent.searcher)
        self._agent = agent
        self._writer = choose_writer(agent.notes, guided=needs_guide(model), limits={})
        self._is_remote = model.startswith("openai:")
        self._numbers = itertools.count()
        self._num_asked = 0

    @property
    def tools(self) -> list[Tool]:
        """The tools, for `make_mcp_server`."""
        ask = "Let a model search the documents and answer a question; status tells if they do not answer it."
        report = "Let a model search the documents and write a report with citations. It may take minutes."
        remote = self._is_remote
        return [
            *super().tools,
            Tool("ask", "Ask the documents", ask, QuestionArguments, AskedAnswer, self._ask, remote),
            Tool("report", "Write a report", report, QuestionArguments, AskedReport, self._report, remote),
        ]

    async def _ask(self, asked: QuestionArguments) -> AskedAnswer:
        episode = await self._play(SolveTask(self._question(asked)))
        answer = self._agent.read(episode)
        _, quoted, passage = answers.find_span(episode)
        found = (quoted, passage) if quoted and passage else answers.find_support(episode)
        return AskedAnswer(
            status="answered" if answer.found else "not_in_documents" if answer.abstained else "not_found",
            answer=answer.text if answer.found else "",
            said=answers.describe_found(episode, self._agent.min_overlap),
            evidence=Quotation.cut(found[1], found[0].start, found[0].text) if found and answer.found else None,
            queries=[result.query for result in answer.searches],
            passages=[FoundPassage.of(passage) for passage in shown_passages(episode)],
            confidence=answer.confidence,
        )

    async def _report(self, asked: QuestionArguments) -> AskedReport:
        protocol, limits = self._writer
        episode = await self._play(ReportTask(self._question(asked)), protocol=protocol, limits=limits)
        report = bind_report(episode)
        if report is None:
            return AskedReport("not_written", "", "", [], [])
        sources = [CitedSource(source.number, FoundPassage.of(source.passage)) for source in report.sources]
        return AskedReport("written", report.text, report.conclusion, sources, list(report.unresolved))

    def _question(self, asked: QuestionArguments) -> Question:
        check_text("question", asked.question)
        return Question(id=f"mcp-{next(self._numbers)}", text=asked.question)

    async def _play(self, task: Task, **how: Any) -> Any:
        if self._num_asked >= MAX_ASKED:
            raise BadInput(f"the model has {MAX_ASKED} questions to answer already; ask again later")
        self._num_asked += 1
        try:
            episode = await self._agent.play(task, episode_id=task.id, **how)
        finally:
            self._num_asked -= 1
        answers.refuse_all_failed([episode])
        return episode

    async def close(self) -> None:
        """Release the model and the search threads."""
        await self._agent.close()


def check_text(name: str, text: str) -> None:
    """Raise `BadInput` for an argument that is blank or contains control characters."""
    if not text.strip():
        raise BadInput(f"{name} is empty")
    if UNPRINTABLE.search(text):
        raise BadInput(f"{name} has control characters")


def _as_resource(passage: Passage) -> Resource:
    found = FoundPassage.of(passage)
    about = {name: getattr(found, name) for name in ("document", "heading", "place", "start", "end", "sha256")}
    return Resource(found.uri, passage.id, passage.title or passage.doc_id, passage.text, about)
