"""Retrieval for agents of other projects: search results with URLs, the documents at these URLs, and embeddings.

GET /retrieve-gpt-researcher?query=Halm+bridge
-> [{"url": "http://127.0.0.1:8000/documents/rivers.md", "raw_content": "The Oss\\n..."}]
GET /documents/rivers.md

The embedder `hash` needs no model: words are counted in a fixed number of buckets by their hash (scikit-learn's
`HashingVectorizer`). It gives the same vectors on every machine and knows no synonyms: texts are similar if they share
words.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TypeAlias
from urllib.parse import quote

import numpy as np
from msgspec import Struct

from quaere.errors import BadInput, SearchFailed, import_extra
from quaere.records import Hit, Passage
from quaere.search import embedders
from quaere.search.embedders import DenseSettings, Vectors
from quaere.search.index import Index
from quaere.search.searcher import LocalSearcher
from quaere.serving.model.wire import Refused, refuse_if

MAX_QUERY_CHARS = 8192
MAX_TOPK = 100

DEFAULT_DIMENSIONS = 1024
MAX_DIMENSIONS = 8192


class Found(Struct, frozen=True):
    """A found document: `content` is its best passage, `raw_content` its title and all its passages found.

    Found(url="http://127.0.0.1:8000/documents/rivers.md", title="The Oss", content="...", raw_content="...", score=7.2)
    """

    url: str
    title: str
    content: str
    raw_content: str
    score: float


class SearchRequest(Struct):
    """The body of POST /search, in the format of Tavily's clients; other fields are ignored.

    {"query": "who built the Halm bridge?", "max_results": 5}
    """

    query: str
    max_results: int | None = None


class Documents:
    """Searches one index and returns its documents, which are found by id, never by a path of the file system."""

    def __init__(self, index: Index, topk: int) -> None:
        self.index = index
        self.topk = topk
        self._searcher = LocalSearcher(index, max_waiting=256, join=True)

    async def find(self, query: str, topk: int | None, root: str) -> list[Found]:
        """Documents among the `topk` best passages, best first; `root` is the URL that their URLs begin with.

        Raises `Refused` for an invalid query or `topk`, and if the search fails.
        """
        if not query.strip() or len(query) > MAX_QUERY_CHARS:
            raise Refused(f"query must have 1 to {MAX_QUERY_CHARS} characters", param="query")
        topk = self.topk if topk is None else topk
        refuse_if(not 1 <= topk <= MAX_TOPK, f"the number of results must be 1 to {MAX_TOPK}, not {topk}", "topk")
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
        """The whole text of a document of the index; raises `Refused` with 404 if there is none."""
        try:
            return self.index.document(doc_id)
        except (BadInput, UnicodeError):
            raise Refused("the index has no document with this id", status=404) from None

    async def close(self) -> None:
        """Stop the search threads."""
        await self._searcher.close()


def _join(passages: list[Passage]) -> str:
    texts = [passage.text for passage in sorted(passages, key=lambda passage: passage.start)]
    return "\n\n".join([passages[0].title, *texts] if passages[0].title else texts)


# ---------------------------------------------------------------------------------------------------------- embeddings


class HashEmbedder:
    """An embedder whose vectors count a text's words, each in the dimension given by the word's hash.

    HashEmbedder().embed(["The Oss rises.", "the Oss rises!"], 8)    # two equal rows
    """

    name = "hash"

    def __init__(self) -> None:
        library, needed = "sklearn.feature_extraction.text", "embeddings by hashed words need scikit-learn"
        self._make = import_extra(library, needed, extra="select").HashingVectorizer

    def embed(self, texts: Sequence[str], num_dimensions: int | None) -> Vectors:
        """One row per text; a text without words is a row of zeros."""
        num_dimensions = DEFAULT_DIMENSIONS if num_dimensions is None else num_dimensions
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            raise Refused(f"dimensions must be 1 to {MAX_DIMENSIONS}, not {num_dimensions}", param="dimensions")
        vectorizer = self._make(n_features=num_dimensions, stop_words="english", alternate_sign=False, dtype=np.float32)
        return np.asarray(vectorizer.transform(list(texts)).toarray(), np.float32)


class ModelEmbedder:
    """The embedder of a dense index; every text is embedded as a query, so that any two can be compared."""

    def __init__(self, settings: DenseSettings) -> None:
        self.name = settings.embedder
        self._embedder = embedders.open_embedder(settings.with_known_prefixes())

    def embed(self, texts: Sequence[str], num_dimensions: int | None) -> Vectors:
        """One row per text; raises `Refused` if `num_dimensions` is not the model's number of dimensions."""
        rows = self._embedder.embed_queries(texts)
        if num_dimensions not in (None, rows.shape[1]):
            raise Refused(f"dimensions must be {rows.shape[1]} for this embedder", param="dimensions")
        return rows


TextEmbedder: TypeAlias = HashEmbedder | ModelEmbedder


def open_embedder(wanted: str, index: Index | None) -> TextEmbedder | None:
    """The embedder for a name: `hash`, `auto` or an embedding model.

    `auto` is the index's own embedder, else `hash`, else None if scikit-learn is not installed: a model can be served
    without an embedder.
    """
    if wanted == "auto" and index is not None and index.manifest.settings.has_vectors:
        return ModelEmbedder(index.manifest.settings.dense)
    if wanted == "auto" and not find_spec("sklearn"):
        return None
    return HashEmbedder() if wanted in ("auto", HashEmbedder.name) else ModelEmbedder(DenseSettings(embedder=wanted))
