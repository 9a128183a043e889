"""The search server's application: `POST /retrieve` searches an index, in the format of Search-R1 and verl.

Requests beyond a bounded queue are answered with 429. `serving/server.py` makes a server of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quaere import __version__
from quaere.errors import BadInput, QuaereError, SearchFailed
from quaere.records import Hit
from quaere.records.foreign_json import decode_json
from quaere.search.index import Index
from quaere.search.json_lines import join_contents
from quaere.search.searcher import LocalSearcher
from quaere.search.wire import DEFAULT_TOPK, Health, PlainReply, Reply, Request, ScoredDocument, WireDocument
from quaere.serving.guard import RequestRefused, plain_error

_EXAMPLE = '{"queries": ["..."], "topk": 3, "return_scores": true}'


class ServerLimits(msgspec.Struct, frozen=True):
    """Load limits of a search server. Beyond `max_waiting` waiting requests it answers 429.

    ServerLimits(max_concurrent=2, max_waiting=256, max_topk=100)
    """

    max_concurrent: int = 2
    max_waiting: int = 256
    max_topk: int = 100
    max_queries: int = 512
    max_query_chars: int = 8192
    max_body_bytes: int = 4 * 1024 * 1024

    def check(self) -> None:
        """Raise BadInput for limits under which no request could be answered."""
        if self.max_waiting < 0 or min(msgspec.structs.astuple(self)[2:]) < 1 or self.max_concurrent < 1:
            raise BadInput("the limits of a server must be at least 1 (max_waiting may be 0)")


def make_app(index: Index, limits: ServerLimits | None = None) -> Starlette:
    """The search server of an index as an ASGI application; its shutdown stops the search threads."""
    limits = limits or ServerLimits()
    limits.check()
    searcher = LocalSearcher(index, max_concurrent=limits.max_concurrent, max_waiting=limits.max_waiting, join=True)

    async def retrieve(http: HttpRequest) -> Response:
        request = _read_request(await http.body(), limits)
        found = await searcher.search(request.queries, request.topk or DEFAULT_TOPK)
        return _json(_reply(found, request.return_scores))

    async def health(http: HttpRequest) -> Response:
        return _json(_health(index))

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await searcher.close()

    routes = [Route("/retrieve", retrieve, methods=["POST"]), Route("/health", health, methods=["GET"])]
    handlers = dict.fromkeys((RequestRefused, QuaereError, HTTPException), _say_error)
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)


async def _say_error(http: HttpRequest, error: Exception) -> Response:
    status, line = 500, str(error)
    if isinstance(error, HTTPException):
        status, line = error.status_code, "there is POST /retrieve and GET /health"
    elif isinstance(error, RequestRefused):
        status = error.status
    elif isinstance(error, SearchFailed) and error.kind == "overloaded":
        status = 429
    return JSONResponse(plain_error(status, line), status, {"Retry-After": "1"} if status == 429 else None)


# ---------------------------------------------------------------------------------------------- requests and replies


def _read_request(body: bytes, limits: ServerLimits) -> Request:
    try:
        request = decode_json(body, Request)
    except msgspec.ValidationError as error:
        raise RequestRefused(422, f"{error}; the body must have the form {_EXAMPLE}") from error
    except msgspec.DecodeError as error:
        raise RequestRefused(400, f"not JSON ({error}); the body must have the form {_EXAMPLE}") from error
    if len(request.queries) > limits.max_queries:
        raise RequestRefused(
            422, f"{len(request.queries)} queries; at most {limits.max_queries} are allowed per request"
        )
    if any(len(query) > limits.max_query_chars for query in request.queries):
        raise RequestRefused(422, f"a query is longer than {limits.max_query_chars} characters")
    if request.topk is not None and not 1 <= request.topk <= limits.max_topk:
        raise RequestRefused(422, f"topk must be 1 to {limits.max_topk}, not {request.topk}")
    return request


def _reply(found: list[list[Hit]], with_scores: bool) -> Reply | PlainReply:
    if with_scores:
        return Reply([[ScoredDocument(_wire_document(hit), hit.score) for hit in hits] for hits in found])
    return PlainReply([[_wire_document(hit) for hit in hits] for hits in found])


def _wire_document(hit: Hit) -> WireDocument:
    passage = hit.passage
    contents = join_contents(passage.title, passage.text)
    where = passage.doc_id, passage.start, passage.end, passage.place, passage.heading
    return WireDocument(passage.id, contents, *where)


def _health(index: Index) -> Health:
    manifest = index.manifest
    return Health(
        status="ok",
        version=__version__,
        engine=manifest.settings.engine,
        fingerprint=manifest.fingerprint,
        num_documents=manifest.num_documents,
        num_passages=manifest.num_passages,
    )


def _json(content: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
