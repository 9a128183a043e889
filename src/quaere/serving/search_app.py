"""The search server's application: `POST /retrieve` searches an index, in the format of Search-R1 and verl.

Requests beyond a bounded queue are answered with 429. `serving/server.py` makes a server of it.
"""

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
from quaere.search.wire import DEFAULT_TOPK, Health, Request, ScoredDocument, WireDocument
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


def make_app(index: Index, limits: ServerLimits) -> Starlette:
    """The search server of an index as an ASGI application; its shutdown stops the search threads."""
    limits.check()
    searcher = LocalSearcher(index, max_concurrent=limits.max_concurrent, max_waiting=limits.max_waiting, join=True)

    async def retrieve(http: HttpRequest) -> Response:
        request = _read_request(await http.body(), limits)
        found = await searcher.search(request.queries, request.topk or DEFAULT_TOPK)
        say = _scored_document if request.return_scores else _wire_document
        return _json({"result": [[*map(say, hits)] for hits in found]})

    async def health(http: HttpRequest) -> Response:
        about = index.manifest
        sizes = about.num_documents, about.num_passages
        return _json(Health("ok", __version__, about.settings.engine, about.fingerprint, *sizes))

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
    if (num_queries := len(request.queries)) > limits.max_queries:
        raise RequestRefused(422, f"{num_queries} queries; at most {limits.max_queries} are allowed per request")
    if any(len(query) > limits.max_query_chars for query in request.queries):
        raise RequestRefused(422, f"a query is longer than {limits.max_query_chars} characters")
    if request.topk is not None and not 1 <= request.topk <= limits.max_topk:
        raise RequestRefused(422, f"topk must be 1 to {limits.max_topk}, not {request.topk}")
    return request


def _wire_document(hit: Hit) -> WireDocument:
    found = hit.passage
    where = found.doc_id, found.start, found.end, found.place, found.heading
    return WireDocument(found.id, join_contents(found.title, found.text), *where)


def _scored_document(hit: Hit) -> ScoredDocument:
    return ScoredDocument(_wire_document(hit), hit.score)


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
