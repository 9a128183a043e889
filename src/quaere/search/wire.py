"""Wire format between search server and clients: that of Search-R1's retriever and verl's search tool.

    POST /retrieve   {"queries": ["who built the Halm bridge?"], "topk": 3, "return_scores": true}
    ->  {"result": [[{"document": {"id": "b.md#0", "contents": "\"Halm bridge\"\nThe ..."}, "score": 7.25}]]}

With `return_scores` false the lists contain the documents themselves. `doc_id`, `start`, `end`, `place` and
`heading` are additions of Quaere: they give the passage's place in its document, and other clients ignore them.
"""

import math
from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from quaere.records import Hit, Passage

DEFAULT_TOPK = 3
Offset = Annotated[int, Meta(ge=0, le=2**53)]  # a character offset; every JSON reader supports integers up to 2**53


class Request(Struct):
    """Body of a search request.

    Request(queries=["who built the Halm bridge?"], topk=3, return_scores=True)
    """

    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


class WireDocument(Struct):
    """A passage; `contents` has the title in double quotes on the first line and the text below it.

    WireDocument(id="b.md#0", contents='"Halm bridge"\nThe ...', doc_id="b.md", start=0, end=211,
                 place="lines 1-6", heading="Bridges > Stone bridges")
    """

    id: str | int
    contents: str
    doc_id: str | None = None
    start: Offset = 0
    end: Offset | None = None
    place: str = ""
    heading: str = ""


class ScoredDocument(Struct):
    """A passage with its score.

    ScoredDocument(document=WireDocument(...), score=7.25)
    """

    document: WireDocument
    score: float


class Reply(Struct):
    """Answer: for each query its documents, best first, with their scores (clients of Quaere always ask for these).

    Reply(result=[[ScoredDocument(...), ScoredDocument(...)]])
    """

    result: list[list[ScoredDocument]]


class Health(Struct):
    """Answer to `GET /health`.

    Health(status="ok", version="0.1.0", engine="bm25", fingerprint="5f2c...", num_documents=12, num_passages=31)
    """

    status: str
    version: str
    engine: str
    fingerprint: str
    num_documents: int
    num_passages: int


# ------------------------------------------------------------------------------------------- results of other programs


class _Found(Struct):
    """The known fields of a result; others are ignored."""

    text: str
    id: str | int | None = None
    doc_id: str | int | None = None
    title: str | None = None
    score: float | None = None
    start: Offset = 0
    place: str = ""
    heading: str = ""


def read_found(fields: object, score: float) -> Hit:
    """A hit from another program's search result; `score` is used if the result has none.

    Raises `msgspec.ValidationError` if the fields are not those of a result. A text without an id counts as a document
    of its own, whose id is a hash of the text.

        read_found({"text": "The Oss rises ...", "id": 7}, score=-1.0).passage.doc_id == "7"
    """
    row = msgspec.convert(fields, _Found)
    digest = blake2b(row.text.encode(errors="replace"), digest_size=6).hexdigest()
    name = f"text-{digest}" if row.id is None else str(row.id)
    doc_id = name if row.doc_id is None else str(row.doc_id)
    end = row.start + len(row.text)
    passage = Passage(name, doc_id, row.title or "", row.text, row.start, end, row.place, row.heading)
    return Hit(passage, row.score if row.score is not None and math.isfinite(row.score) else score)
