"""The viewer's application: its addresses, and the headers of every response.

    /                             all runs                 /json/
    /compare?run=A&run=B          several runs             /json/compare?run=A&run=B
    /run/NAME                     one run                  /json/run/NAME
    /run/NAME/step/N              one step                 /json/run/NAME/step/N
    /run/NAME/questions           its questions            /json/run/NAME/questions
    /run/NAME/group?task=ID       attempts at one          /json/run/NAME/group?task=ID
    /run/NAME/episode?id=ID       one episode              /json/run/NAME/episode?id=ID
    /run/NAME/curriculum          its curriculum           /json/run/NAME/curriculum
    /run/NAME/item?id=ID          one item of it           /json/run/NAME/item?id=ID
    /run/NAME/unproven            paid, and not proven     /json/run/NAME/unproven
    /run/NAME/verdict             POST: a verdict on an item, the only thing that is written
    /run/NAME/reports             its reports              /json/run/NAME/reports
    /run/NAME/report?id=ID        one of them              /json/run/NAME/report?id=ID
    /run/NAME/document?id=ID      a document of its index  /json/run/NAME/document?id=ID
    /evaluations                  results of `eval`        /json/evaluations
    /evaluation?of=KEY            one of them              /json/evaluation?of=KEY
    /evaluations/compare?of=A&of=B two of them              /json/evaluations/compare?of=A&of=B
    /ask                          questions to a model     /json/ask          POST: a question, answered in its turn
    /ask/ID                       one of them              /json/ask/ID
    /ask/ID/cancel                POST: stop it
    /document?id=ID               a document of its index  /json/document?id=ID
    /changes, /run/NAME/changes   server-sent events; /ask/changes, /ask/ID/changes
    /static/FILE                  the style sheet and the script

The twin of a page is the same record as JSON. `viewer/viewer_server.py` makes a server of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.resources import files as package_files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quaere.api.run import Run
from quaere.errors import QuaereError
from quaere.viewer.ask_pages import AskQuery, ask, cancel, read_ask, read_asked
from quaere.viewer.ask_queue import AskQueue, QueueFull
from quaere.viewer.attempt_groups import GroupQuery, QuestionsQuery, read_group, read_questions
from quaere.viewer.comparison import CompareQuery, compare_runs
from quaere.viewer.curriculum_browser import (
    CurriculumQuery,
    ItemQuery,
    Shelves,
    read_curriculum,
    read_item,
    write_verdict,
)
from quaere.viewer.document_page import DocumentQuery, read_document, read_run_document
from quaere.viewer.evaluation_pages import (
    EvaluationQuery,
    EvaluationsQuery,
    PairQuery,
    compare_results,
    read_evaluation,
    read_evaluations,
)
from quaere.viewer.evaluation_results import EvaluationResults
from quaere.viewer.live import Streams
from quaere.viewer.page_formats import encode_twin, path_to, render
from quaere.viewer.page_settings import read_query
from quaere.viewer.report_reader import ReportQuery, ReportsQuery, read_report, read_reports
from quaere.viewer.run_folder import NotShown, RunFolder, Signature, read_signature
from quaere.viewer.run_list import RunCards, RunsQuery
from quaere.viewer.run_overview import RunQuery, read_run, read_step
from quaere.viewer.transcript import EpisodeQuery, read_episode
from quaere.viewer.unproven import UnprovenQuery, read_unproven

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Reader = Callable[[Request], Struct]
Endpoint = Callable[[Request], Response]

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
ASK_LOOK_S = 0.2  # an answer is looked at more often than the files of a run, since it costs nothing
STATIC = {"viewer.css": "text/css", "viewer.js": "text/javascript", "icon.svg": "image/svg+xml"}

_STEP = re.compile(r"[0-9]{1,18}")  # what SQLite can hold; Python itself refuses to read thousands of digits


def make_app(
    folder: RunFolder,
    is_stopping: Callable[[], bool] = lambda: False,
    queue: AskQueue | None = None,
    files: Sequence[Path] = (),
) -> ASGIApp:
    """The application over a folder of runs; with a queue, it also has the pages of Ask.

    `is_stopping` ends the streams of open pages; `files` are results of evaluations to show beside those of runs.
    """
    cards, shelves, streams = RunCards(folder), Shelves(), Streams(is_stopping)
    results = EvaluationResults(folder, cards, files)

    def of_results(read: Callable[[EvaluationResults, Any], Struct], form: type[Struct]) -> Reader:
        return lambda request: read(results, read_query(request.url.query, form))

    def runs(request: Request) -> Struct:
        return cards.read(read_query(request.url.query, RunsQuery))

    def compare(request: Request) -> Struct:
        return compare_runs(folder, read_query(request.url.query, CompareQuery))

    async def give_verdict(request: Request) -> Response:
        name, body = request.path_params["name"], await request.body()

        def write() -> Struct:
            with folder.open(name) as run:
                return write_verdict(run, name, body, shelves)

        return Response(encode_twin(await run_in_threadpool(write)), media_type="application/json")

    async def follow_all(request: Request) -> Response:
        def look() -> Signature:
            return tuple((name, read_signature(path)) for name, path in folder.paths().items())

        return streams.follow(look)

    async def follow_run(request: Request) -> Response:
        path = folder.find(request.path_params["name"])
        return streams.follow(lambda: read_signature(path))

    routes = [
        *_page("/", "runs", runs),
        *_page("/compare", "compare", compare),
        *_run_pages(folder, shelves),
        *_page("/evaluations", "evaluations", of_results(read_evaluations, EvaluationsQuery)),
        *_page("/evaluation", "evaluation", of_results(read_evaluation, EvaluationQuery)),
        *_page("/evaluations/compare", "evaluation_pair", of_results(compare_results, PairQuery)),
        Route("/run/{name}/verdict", give_verdict, methods=["POST"]),
        Route("/changes", follow_all),
        Route("/run/{name}/changes", follow_run),
        Route("/static/{file}", _send_static),
        *(_ask_routes(queue, streams) if queue is not None else ()),
    ]
    handlers: dict[Any, Any] = {QuaereError: _say_error, HTTPException: _say_missing}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.state.asks = queue is not None
    return SafeHeaders(app)


class SafeHeaders:
    """ASGI middleware that puts the headers on every response that has not set them itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                added = [
                    (name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in given
                ]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


# ------------------------------------------------------------------------------------------------------------- details


def _run_pages(folder: RunFolder, shelves: Shelves) -> list[Route]:
    """The pages of one run."""

    def of_run(read: Callable[[Run, str, Any], Struct], form: type[Struct]) -> Reader:
        """A page of one run, with the settings of this form in its address."""

        def read_page(request: Request) -> Struct:
            name = request.path_params["name"]
            query = read_query(request.url.query, form)
            with folder.open(name) as run:
                return read(run, name, query)

        return read_page

    def step(request: Request) -> Struct:
        name, given = request.path_params["name"], request.path_params["step"]
        if not _STEP.fullmatch(given):
            raise HTTPException(404)
        with folder.open(name) as run:
            return read_step(run, name, int(given))

    curriculum = partial(read_curriculum, shelves=shelves)
    return [
        *_page("/run/{name}", "run", of_run(read_run, RunQuery)),
        *_page("/run/{name}/step/{step}", "step", step),
        *_page("/run/{name}/questions", "questions", of_run(read_questions, QuestionsQuery)),
        *_page("/run/{name}/group", "group", of_run(read_group, GroupQuery)),
        *_page("/run/{name}/episode", "episode", of_run(read_episode, EpisodeQuery)),
        *_page("/run/{name}/curriculum", "curriculum", of_run(curriculum, CurriculumQuery)),
        *_page("/run/{name}/item", "item", of_run(partial(read_item, shelves=shelves), ItemQuery)),
        *_page("/run/{name}/unproven", "unproven", of_run(read_unproven, UnprovenQuery)),
        *_page("/run/{name}/reports", "reports", of_run(read_reports, ReportsQuery)),
        *_page("/run/{name}/report", "report", of_run(read_report, ReportQuery)),
        *_page("/run/{name}/document", "document", of_run(read_run_document, DocumentQuery)),
    ]


def _ask_routes(queue: AskQueue, streams: Streams) -> list[Route]:
    """The pages of Ask, and what takes and stops questions."""

    def asked(request: Request) -> Struct:
        return read_asked(queue, request.path_params["id"])

    async def take(request: Request) -> Response:
        reply = await run_in_threadpool(ask, queue, await request.body())
        return Response(encode_twin(reply), 202, media_type="application/json")

    def stop(request: Request) -> Response:
        return Response(encode_twin(cancel(queue, request.path_params["id"])), media_type="application/json")

    async def follow_list(request: Request) -> Response:
        return streams.follow(queue.look_all, ASK_LOOK_S)

    async def follow_one(request: Request) -> Response:
        id = request.path_params["id"]
        read_asked(queue, id)
        return streams.follow(lambda: queue.look(id), ASK_LOOK_S)

    return [
        *_page("/ask", "ask", lambda request: read_ask(queue, read_query(request.url.query, AskQuery))),
        Route("/ask", take, methods=["POST"]),
        Route("/ask/changes", follow_list),
        *_page("/ask/{id}", "asked", asked),
        Route("/ask/{id}/cancel", stop, methods=["POST"]),
        Route("/ask/{id}/changes", follow_one),
        *_page(
            "/document",
            "document",
            lambda request: read_document(queue.index, read_query(request.url.query, DocumentQuery)),
        ),
    ]


def _page(path: str, template: str, read: Reader) -> list[Route]:
    """The routes of a page and of its twin."""

    def show(request: Request) -> Response:
        page = render(template, read(request), twin=f"/json{_address(request)}", asks=request.app.state.asks)
        return Response(page, media_type="text/html")

    def show_twin(request: Request) -> Response:
        return Response(encode_twin(read(request)), media_type="application/json")

    return [Route(path, show), Route(f"/json{path}", show_twin)]


def _address(request: Request) -> str:
    """Path and query of the page, as they were asked for but encoded anew."""
    query = request.url.query
    parts = [part for part in request.scope["path"].split("/") if part]
    return (path_to(*parts) or "/") + (f"?{query}" if query else "")


def _say_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, QuaereError)
    status = 404 if isinstance(error, NotShown) else 429 if isinstance(error, QueueFull) else 400
    return _error(request, status, str(error), error.hint)


def _say_missing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    line = "there is no such page" if error.status_code == 404 else str(error.detail)
    return _error(request, error.status_code, line, "the list of runs is at /")


class _Error(Struct, frozen=True):
    """What is wrong, and what to do."""

    status: int
    error: str
    hint: str


def _error(request: Request, status: int, line: str, hint: str) -> Response:
    said = _Error(status, line, hint)
    if request.scope["path"].startswith("/json/") or request.method == "POST":
        return JSONResponse({"error": line, "hint": hint}, status)
    return Response(render("error", said, twin="", asks=request.app.state.asks), status, media_type="text/html")


@cache
def read_static(name: str) -> bytes:
    """The style sheet, the script or the icon."""
    return package_files("quaere.viewer").joinpath("static", name).read_bytes()


def _send_static(request: Request) -> Response:
    name = request.path_params["file"]
    if name not in STATIC:
        raise HTTPException(404)
    return Response(read_static(name), media_type=STATIC[name], headers={"cache-control": "no-cache"})
