"""The viewer as an ASGI application and as a server: its URLs, the headers of every response, and the API key.

    /                             all runs                 /json/
    /compare?run=A&run=B          several runs             /json/compare?run=A&run=B
    /run/NAME                     one run                  /json/run/NAME
    /run/NAME/step/N              one step                 /json/run/NAME/step/N
    /run/NAME/questions           its questions            /json/run/NAME/questions
    /run/NAME/group?task=ID       attempts at one          /json/run/NAME/group?task=ID
    /run/NAME/episode?id=ID       one episode              /json/run/NAME/episode?id=ID
    /run/NAME/map                 questions by steps       /json/run/NAME/map
    /run/NAME/curriculum          its curriculum           /json/run/NAME/curriculum
    /run/NAME/item?id=ID          one item of it           /json/run/NAME/item?id=ID
    /run/NAME/unproven            rewarded, not proven     /json/run/NAME/unproven
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

The twin of a page is the same record as JSON.

make_view_server(open_folder("runs"), ServerSettings(port=0)).url -> "http://127.0.0.1:41873"

Links cannot carry a header, so a person opens `/?api_key=KEY` once: the response sets a cookie that is accepted instead
of the key, and redirects to the same page without the key in the URL. The cookie is a keyed hash (HMAC) of a constant,
is sent to this server only, and scripts cannot read it.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.resources import files as package_files
from itertools import chain
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
from msgspec import Struct, structs
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quaere.errors import QuaereError
from quaere.serving.guard import key_cookie
from quaere.serving.server import Server, ServerSettings, bind, make_server
from quaere.viewer import (
    ask_pages,
    attempt_groups,
    curriculum_browser,
    document_reader,
    evaluation_pair,
    learning_map,
    report_reader,
    transcript,
)
from quaere.viewer import evaluation_pages as evaluations
from quaere.viewer.ask_queue import AskQueue, QueueFull
from quaere.viewer.page_formats import ById, Listed, compile_templates, path_to, read_query, render
from quaere.viewer.run_comparison import CompareQuery, compare_runs
from quaere.viewer.run_folder import Kept, NotShown, RunFolder, Streams, read_signature
from quaere.viewer.run_list import RunCards, RunsQuery
from quaere.viewer.run_overview import RunQuery, read_run, read_step

Reader = Callable[[Request], Struct]

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_ASK_LOOK_S = 0.2  # an answer is polled more often than the files of a run, because looking at it costs nothing
SHARED_STYLE = "glance.css"  # used by the page of `quaere learn` too
STATIC = {
    SHARED_STYLE: "text/css",
    "viewer.css": "text/css",
    "viewer.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

_MOST_SHELVES = 4  # curricula kept in memory
_STEP = re.compile(r"[0-9]{1,18}")  # what SQLite can hold; Python itself refuses to read thousands of digits


# ---------------------------------------------------------------------------------------------------------- the server


def make_view_server(
    folder: RunFolder,
    settings: ServerSettings,
    *,
    key: str = "",
    queue: AskQueue | None = None,
    files: Sequence[Path] = (),
) -> Server:
    """Create the viewer's server: its socket listens on return; requests are answered once the server runs."""
    listener = bind(settings, key)
    compile_templates()
    # Cookies do not know ports: two viewers on one machine must not overwrite each other's.
    name = f"quaere_view_{listener.getsockname()[1]}" if key else ""
    app = make_app(folder, lambda: server.should_exit, queue, files)
    if key:
        app = _set_cookie(app, name, key)
    server: Server = make_server(app, structs.replace(settings, key_cookie=name), key=key, listener=listener)
    return server


def _set_cookie(app: ASGIApp, name: str, key: str) -> ASGIApp:
    """ASGI middleware: a request with `?api_key=` gets a cookie and a redirect to the same URL without the key.

    `serving/guard.py` has already checked that the key is right.
    """
    cookie = f"{name}={key_cookie(key)}; HttpOnly; SameSite=Strict; Path=/"

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        pairs = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        rest = [(name, value) for name, value in pairs if name != "api_key"]
        # One slash only: "//host" would lead to another server.
        place = "/" + quote(scope.get("path", "").lstrip("/\\")) + (f"?{urlencode(rest)}" if rest else "")
        redirect = Response(status_code=303, headers={"location": place, "set-cookie": cookie})
        has_key = scope["type"] == "http" and len(rest) < len(pairs)
        await (redirect if has_key else app)(scope, receive, send)

    return answer


def _add_headers(app: ASGIApp) -> ASGIApp:
    """ASGI middleware that adds the security headers `HEADERS` to each response, unless the response has set them."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    given.setdefault(name, value)
            await send(message)

        await app(scope, receive, send_with_headers)

    return answer


# ----------------------------------------------------------------------------------------------------------- addresses


def make_app(
    folder: RunFolder,
    is_stopping: Callable[[], bool] = lambda: False,
    queue: AskQueue | None = None,
    files: Sequence[Path] = (),
) -> ASGIApp:
    """The viewer of a folder of runs as an ASGI application; with a queue, it also has the Ask pages.

    Event streams of open pages end when `is_stopping()` is true; `files` are result files of `quaere eval` to show.
    """
    cards, streams = RunCards(folder), Streams(is_stopping)
    shelves: Kept[curriculum_browser.Shelf] = Kept(_MOST_SHELVES)
    results = evaluations.EvaluationResults(folder, cards, files)

    async def give_verdict(request: Request) -> Response:
        name, body = request.path_params["name"], await request.body()

        def write() -> Struct:
            with folder.open(name) as run:
                return curriculum_browser.write_verdict(run, name, body, shelves)

        return _json(await run_in_threadpool(write))

    async def follow_all(request: Request) -> Response:
        return streams.follow(lambda: tuple((name, read_signature(path)) for name, path in folder.paths().items()))

    async def follow_run(request: Request) -> Response:
        return streams.follow(partial(read_signature, folder.find(request.path_params["name"])))

    routes = [
        *_page("/", "runs", _reader(RunsQuery, cards.read)),
        *_page("/compare", "compare", _reader(CompareQuery, compare_runs, folder, results)),
        *_page("/evaluations", "evaluations", _reader(Listed, evaluations.read_evaluations, results)),
        *_page("/evaluation", "evaluation", _reader(evaluations.EvaluationQuery, evaluations.read_evaluation, results)),
        *_page(
            "/evaluations/compare",
            "evaluation_pair",
            _reader(evaluation_pair.PairQuery, evaluation_pair.compare_results, results),
        ),
        *_run_pages(folder, shelves, results),
        Route("/run/{name}/verdict", give_verdict, methods=["POST"]),
        Route("/changes", follow_all),
        Route("/run/{name}/changes", follow_run),
        Route("/static/{file}", _send_static),
        *(_ask_routes(queue, streams) if queue is not None else ()),
    ]
    app = Starlette(routes=routes, exception_handlers={QuaereError: _say_error, HTTPException: _say_error})
    app.state.asks, app.state.folder = queue is not None, folder
    return _add_headers(app)


def _run_pages(
    folder: RunFolder, shelves: Kept[curriculum_browser.Shelf], results: evaluations.EvaluationResults
) -> list[Route]:
    def step(request: Request) -> Struct:
        name, given = request.path_params["name"], request.path_params["step"]
        if not _STEP.fullmatch(given):
            raise HTTPException(404)
        with folder.open(name) as run:
            return read_step(run, name, int(given))

    def reader(form: type[Struct], read: Callable[..., Struct]) -> Reader:
        def read_page(request: Request) -> Struct:
            name, query = request.path_params["name"], read_query(request.url.query, form)
            with folder.open(name) as run:
                return read(run, name, query)

        return read_page

    curriculum = partial(curriculum_browser.read_curriculum, shelves=shelves)
    pages: list[tuple[str, str, type[Struct], Callable[..., Struct]]] = [
        ("", "run", RunQuery, partial(read_run, folder=folder, results=results)),
        ("/questions", "questions", attempt_groups.QuestionsQuery, attempt_groups.read_questions),
        ("/group", "group", attempt_groups.GroupQuery, attempt_groups.read_group),
        ("/episode", "episode", transcript.EpisodeQuery, transcript.read_episode),
        ("/map", "map", learning_map.MapQuery, partial(learning_map.read_map, results=results)),
        ("/curriculum", "curriculum", curriculum_browser.CurriculumQuery, curriculum),
        ("/item", "item", ById, partial(curriculum_browser.read_item, shelves=shelves)),
        ("/unproven", "unproven", attempt_groups.UnprovenQuery, attempt_groups.read_unproven),
        ("/reports", "reports", report_reader.ReportsQuery, report_reader.read_reports),
        ("/report", "report", ById, report_reader.read_report),
        ("/document", "document", document_reader.DocumentQuery, document_reader.read_run_document),
    ]

    routes = (_page(f"/run/{{name}}{path}", template, reader(form, read)) for path, template, form, read in pages)
    return [*_page("/run/{name}/step/{step}", "step", step), *chain(*routes)]


def _ask_routes(queue: AskQueue, streams: Streams) -> list[Route]:
    async def take(request: Request) -> Response:
        return _json(await run_in_threadpool(ask_pages.ask, queue, await request.body()), 202)

    def stop(request: Request) -> Response:
        return _json(ask_pages.cancel(queue, request.path_params["id"]))

    async def follow_list(request: Request) -> Response:
        return streams.follow(queue.look_all, _ASK_LOOK_S)

    async def follow_one(request: Request) -> Response:
        id = ask_pages.read_asked(queue, request.path_params["id"]).id
        return streams.follow(lambda: queue.look(id), _ASK_LOOK_S)

    read_document = _reader(document_reader.DocumentQuery, document_reader.read_document, queue.index)
    return [
        *_page("/ask", "ask", _reader(ask_pages.AskQuery, ask_pages.read_ask, queue)),
        Route("/ask", take, methods=["POST"]),
        Route("/ask/changes", follow_list),
        *_page("/ask/{id}", "asked", lambda request: ask_pages.read_asked(queue, request.path_params["id"])),
        Route("/ask/{id}/cancel", stop, methods=["POST"]),
        Route("/ask/{id}/changes", follow_one),
        *_page("/document", "document", read_document),
    ]


def _reader(form: type[Struct], read: Callable[..., Struct], *given: object) -> Reader:
    """A function from a request to a page's record: `read(*given, query)`, with the URL's query parsed as a `form`."""
    return lambda request: read(*given, read_query(request.url.query, form))


def _page(path: str, template: str, read: Reader) -> list[Route]:
    """Two routes: the page as HTML at `path`, and its record as JSON at `/json` + `path`."""

    def show(request: Request) -> Response:
        # The path is percent-encoded again, since ASGI decodes it.
        address = path_to(*(part for part in request.scope["path"].split("/") if part)) or "/"
        query = f"?{request.url.query}" if request.url.query else ""
        page = _render(request, template, read(request), f"/json{address}{query}")
        return Response(page, media_type="text/html")

    return [Route(path, show), Route(f"/json{path}", lambda request: _json(read(request)))]


def _json(record: Struct, status: int = 200) -> Response:
    """A response with the record as JSON; NaN and infinities become null."""
    return Response(msgspec.json.encode(record), status, media_type="application/json")


class _Error(Struct, frozen=True):
    status: int
    error: str
    hint: str


def _say_error(request: Request, error: Exception) -> Response:
    """The response to a failed request: JSON for `/json/...` and for POST, else an HTML page."""
    if isinstance(error, HTTPException):
        line = "there is no such page" if error.status_code == 404 else str(error.detail)
        said = _Error(error.status_code, line, "the list of runs is at /")
    else:
        assert isinstance(error, QuaereError)
        status = 404 if isinstance(error, NotShown) else 429 if isinstance(error, QueueFull) else 400
        said = _Error(status, str(error), error.hint)
    if request.scope["path"].startswith("/json/") or request.method == "POST":
        return JSONResponse({"error": said.error, "hint": said.hint}, said.status)
    page = _render(request, "error", said)
    return Response(page, said.status, media_type="text/html")


def _render(request: Request, template: str, record: Struct, twin: str = "") -> bytes:
    state = request.app.state
    return render(template, record, twin=twin, asks=state.asks, title_of=state.folder.title)


@cache
def read_static(name: str) -> bytes:
    """The content of a file of `STATIC`: a style sheet, the script or the icon."""
    package, folder = ("quaere.api", "templates") if name == SHARED_STYLE else ("quaere.viewer", "static")
    return package_files(package).joinpath(folder, name).read_bytes()


def _send_static(request: Request) -> Response:
    name = request.path_params["file"]
    if name not in STATIC:
        raise HTTPException(404)
    return Response(read_static(name), media_type=STATIC[name], headers={"cache-control": "no-cache"})
