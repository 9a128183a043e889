"""An index for agents of other projects: a retriever that returns URLs, and the pages behind them.

GET /retrieve-gpt-researcher?query=Halm+bridge
-> [{"url": "http://127.0.0.1:8000/documents/rivers.md", "raw_content": "The Oss\\n..."}]
GET /documents/rivers.md
"""

from __future__ import annotations

from urllib.parse import quote

from msgspec import Struct

from quaere.errors import BadInput, SearchFailed
from quaere.records import Hit, Passage
from quaere.search.index import Index
from quaere.search.searcher import LocalSearcher
from quaere.serving.model.wire import Refused

MAX_QUERY_CHARS = 8192
MAX_TOPK = 100


class Found(Struct, frozen=True):
    """A search result: a document with its best passage, and the title with all passages found.

    Found(url="http://127.0.0.1:8000/documents/rivers.md", title="The Oss", content="...", raw_content="...", score=7.2)
    """

    url: str
    title: str
    content: str
    raw_content: str
    score: float


class SearchRequest(Struct):
    """POST /search, in the format of Tavily's clients; other fields are ignored.

    {"query": "who built the Halm bridge?", "max_results": 5}
    """

    query: str
    max_results: int | None = None


class Documents:
    """Searches and pages of one index. Pages are looked up by document id, never by a path of the file system."""

    def __init__(self, index: Index, topk: int) -> None:
        self.index = index
        self.topk = topk
        self._searcher = LocalSearcher(index, max_waiting=256, join=True)

    async def find(self, query: str, topk: int | None, root: str) -> list[Found]:
        """Documents with matching passages, best first, each with all its passages found."""
        if not query.strip() or len(query) > MAX_QUERY_CHARS:
            raise Refused(f"query must have 1 to {MAX_QUERY_CHARS} characters", param="query")
        topk = self.topk if topk is None else topk
        if not 1 <= topk <= MAX_TOPK:
            raise Refused(f"the number of results must be 1 to {MAX_TOPK}, not {topk}", param="topk")
        try:
            (hits,) = await self._searcher.search([query], topk)
        except SearchFailed as error:
            raise Refused(str(error), status=429 if error.kind == "overloaded" else 500) from error
        by_document: dict[str, list[Hit]] = {}
        for hit in hits:
            by_document.setdefault(hit.passage.doc_id, []).append(hit)
        return [
            Found(
                url=f"{root}/documents/{quote(doc_id, safe='')}",
                title=found[0].passage.title,
                content=found[0].passage.text,
                raw_content=_join([hit.passage for hit in found]),
                score=found[0].score,
            )
            for doc_id, found in by_document.items()
        ]

    def page(self, doc_id: str) -> str:
        """The whole text of a document of the index."""
        try:
            return self.index.document(doc_id)
        except (BadInput, UnicodeError):
            raise Refused("the index has no document with this id", status=404) from None

    async def close(self) -> None:
        """Stop the search threads."""
        await self._searcher.close()


def _join(passages: list[Passage]) -> str:
    """The title and the passages, in document order."""
    texts = [passage.text for passage in sorted(passages, key=lambda passage: passage.start)]
    return "\n\n".join([passages[0].title, *texts] if passages[0].title else texts)
