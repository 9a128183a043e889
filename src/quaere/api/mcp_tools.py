"""The tools and resources of `quaere mcp` on an index; `mcp_agent.py` has those of a model.

documents = IndexTools(index, LocalSearcher(index))
server = make_mcp_server(documents.tools, documents, documents.close)

Every result names the document, the headings and the characters that its text is, with the text's SHA-256: a client
can check a quotation without this server.
"""

import itertools
import re
from hashlib import sha256
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote, unquote

from msgspec import Meta, Struct

from quaere.api.agent import OpenAgent
from quaere.api.answer import refuse_all_failed
from quaere.api.composer import Composer
from quaere.api.report import choose_author, hold_report
from quaere.errors import BadInput
from quaere.records import Episode, Passage, Question, ReportTask, Task
from quaere.search.index import Index
from quaere.search.searcher import Searcher
from quaere.serving.mcp_server import Resource, Tool

_PAGE = 100  # resources of one listing
_PASSAGE = "quaere://passage/"
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")  # no line breaks, no marks of direction

Query = Annotated[str, Meta(min_length=1, max_length=8192)]
DocumentId = Annotated[str, Meta(min_length=1, max_length=4096, description="as `document` of a result has it")]


class SearchArguments(Struct, forbid_unknown_fields=True):
    """Arguments of `search`."""

    query: Annotated[Query, Meta(description="words to search for, or a question")]
    topk: Annotated[int, Meta(ge=1, le=100, description="most passages")] = 5


class DocumentArguments(Struct, forbid_unknown_fields=True):
    """Arguments of `get_document`."""

    document: DocumentId
    start: Annotated[int, Meta(ge=0, le=2**53, description="first character")] = 0
    num_chars: Annotated[int, Meta(ge=1, le=50_000, description="most characters")] = 20_000


class QuestionArguments(Struct, forbid_unknown_fields=True):
    """Arguments of `report` and `ask`."""

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


class CitedSource(Struct, frozen=True):
    """A source of a report: the number of its citations, [2], and the passage."""

    number: int
    passage: FoundPassage


class AskedReport(Struct, frozen=True):
    """Result of `report`: text with citations such as [2], and their sources.

    `status` is "not_written" if nothing was found, or if the passages support nothing of what a model wrote.
    """

    status: Literal["written", "not_written"]
    text: str
    conclusion: str
    sources: list[CitedSource]


class IndexTools:
    """Tools on an index: `search`, `get_document` and `report`. Its passages are the resources."""

    template = _PASSAGE + "{id}"
    is_remote = False  # True if questions leave this machine

    def __init__(self, index: Index, searcher: Searcher) -> None:
        self.index, self._searcher = index, searcher
        self.author: OpenAgent | Composer = choose_author(searcher)
        self._numbers = itertools.count()

    @property
    def tools(self) -> list[Tool]:
        """The tools, for `make_mcp_server`."""
        search = "Search the documents. Gives the passages that match best, with their place in their document."
        read = "Read a document, or a part of it. Its id comes from a result of search."
        report = "Write a report on a question: sentences of the documents, each with the passage it comes from."
        return [
            Tool("search", "Search documents", search, SearchArguments, Found, self._search),
            Tool("get_document", "Read a document", read, DocumentArguments, DocumentText, self._get_document),
            Tool("report", "Write a report", report, QuestionArguments, AskedReport, self._report, self.is_remote),
        ]

    async def _search(self, asked: SearchArguments) -> Found:
        check_text("query", asked.query)
        (hits,) = await self._searcher.search([asked.query], asked.topk)
        return Found([FoundPassage.of(hit.passage, hit.score) for hit in hits])

    async def _get_document(self, asked: DocumentArguments) -> DocumentText:
        number = self._find(asked.document)
        whole = self.index.read_document(number, "file")
        num_chars = len(whole.text)
        if asked.start > num_chars:
            raise BadInput(f"start is {asked.start}, and the document has {num_chars} characters")
        there = self.index.find_passage(number, asked.start, asked.start)
        under = Passage("", whole.id, whole.title, "", 0, 0, heading=there.heading if there else "")
        part = whole.text[asked.start : asked.start + asked.num_chars]
        return DocumentText.cut(under, asked.start, part, num_chars=num_chars)

    async def _report(self, asked: QuestionArguments) -> AskedReport:
        episode = await self._play(self.author, ReportTask(self._question(asked)))
        report = await hold_report(episode, strict=True)
        if report is None:
            return AskedReport("not_written", "", "", [])
        sources = [CitedSource(source.number, FoundPassage.of(source.passage)) for source in report.sources]
        return AskedReport("written", report.text, report.conclusion, sources)

    def _question(self, asked: QuestionArguments) -> Question:
        check_text("question", asked.question)
        return Question(id=f"mcp-{next(self._numbers)}", text=asked.question)

    async def _play(self, author: OpenAgent | Composer, task: Task) -> Episode:
        episode = await author.play(task)
        refuse_all_failed([episode])
        return episode

    def _find(self, doc_id: str) -> int:
        try:
            return self.index.find_document(doc_id)
        except UnicodeError:  # half of a character
            raise BadInput("there is no such document") from None

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
            numbers = self.index.passage_numbers(self._find(doc_id))
            found = self.index.passage(numbers[int(number)])
            if found.id == name:  # and not "#-1" or "#01"
                return _as_resource(found)
        except (BadInput, ValueError, IndexError):
            pass
        raise BadInput(f"there is no passage at this address; one looks like {self.template}")

    async def close(self) -> None:
        """Release the search threads."""
        await self._searcher.close()


def check_text(name: str, text: str) -> None:
    """Raise `BadInput` for an argument that is blank or contains control characters."""
    if not text.strip():
        raise BadInput(f"{name} is empty")
    if _CONTROL.search(text):
        raise BadInput(f"{name} has control characters")


def _as_resource(passage: Passage) -> Resource:
    found = FoundPassage.of(passage)
    about = {name: getattr(found, name) for name in ("document", "heading", "place", "start", "end", "sha256")}
    return Resource(found.uri, passage.id, passage.title or passage.doc_id, passage.text, about)
