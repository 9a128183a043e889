"""What goes over the wire between a search server and its clients, the same as Search-R1's retriever and verl's tool.

    POST /retrieve   {"queries": ["who built the Halm bridge?"], "topk": 3, "return_scores": true}
    ->  {"result": [[{"document": {"id": "b.md#0", "contents": "\"Halm bridge\"\nThe ..."}, "score": 7.25}]]}

With `return_scores` false the documents stand in the lists themselves. `doc_id`, `start`, `end` and `place` are ours:
they say where the passage lies, and others ignore them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

DEFAULT_TOPK = 3
Offset = Annotated[int, Meta(ge=0, le=2**53)]  # a place in a document; every JSON reader has integers up to here


class Request(Struct):
    """What is asked.

    Request(queries=["who built the Halm bridge?"], topk=3, return_scores=True)
    """

    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


class WireDocument(Struct):
    """A passage: the title in double quotes on the first line, the text below.

    WireDocument(id="b.md#0", contents='"Halm bridge"\nThe ...', doc_id="b.md", start=0, end=211,
                 place="lines 1-6")
    """

    id: str | int
    contents: str
    doc_id: str | None = None
    start: Offset = 0
    end: Offset | None = None
    place: str = ""


class ScoredDocument(Struct):
    """A passage and its score.

    ScoredDocument(document=WireDocument(...), score=7.25)
    """

    document: WireDocument
    score: float


class Reply(Struct):
    """What is answered: per query its documents, best first.

    Reply(result=[[ScoredDocument(...), ScoredDocument(...)]])
    """

    result: list[list[ScoredDocument]]


class PlainReply(Struct):
    """What is answered without scores.

    PlainReply(result=[[WireDocument(...)]])
    """

    result: list[list[WireDocument]]


class Health(Struct):
    """What `GET /health` answers.

    Health(status="ok", version="0.1.0", engine="bm25", fingerprint="5f2c...", num_documents=12, num_passages=31)
    """

    status: str
    version: str
    engine: str
    fingerprint: str
    num_documents: int
    num_passages: int
