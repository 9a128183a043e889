"""HTTP servers: an ASGI application behind the checks of `guard.py`, on connections with deadlines.

    server = make_server(app, ServerSettings(port=0))
    run_server(server, print)                                             # http://127.0.0.1:41873

A server listens on the loopback address by default; any other address requires a key. The dependencies of an
application are imported when it is served: a search server does not load torch.

uvicorn waits forever for the head and the body of a request, and for a client that does not read its response. Here
every connection has a deadline (`due`) by which its client must act, and once a second the server drops those past it.
A connection beyond the limit replaces one that waits for its client, first those that never completed a request.
Half-open connections therefore cannot lock out other clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import resource
import socket
import sys
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import uvicorn
from msgspec import Struct, structs
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from quaere.errors import BadInput
from quaere.serving.guard import LOCAL_NAMES, ErrorForm, Guard, Rules, log, name_of, plain_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from quaere.search.index import Index
    from quaere.serving.model.app import Service
    from quaere.serving.search_app import ServerLimits

# uvicorn ticks ten times a second; connections past their deadlines are looked for once a second.
TICKS_PER_CHECK = 10
MAX_HEAD_BYTES = 64 * 1024
WIRE_FACTOR = 4  # a body sent in tiny chunks takes several times its size on the wire
ACCEPTED_AT_ONCE = 16
# File descriptors kept free: three iterations of the event loop pass between accepting a connection and counting or
# closing it, and the application sometimes opens a file.
SPARE_DESCRIPTORS = 4 * ACCEPTED_AT_ONCE
MIN_CONNECTIONS = 8
KEY_HINT = "export QUAERE_API_KEY=..., or --api-key-file FILE, or --host 127.0.0.1"


_BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\nretry-after: 1\r\n\r\n"


class ServerSettings(Struct, frozen=True):
    """Address, accepted hosts and origins, and limits of a server.

    ServerSettings(host="127.0.0.1", port=8000, allow_hosts=("search.lan",), allow_origins=("https://app.example",))
    """

    host: str = "127.0.0.1"
    port: int = 8000
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    max_body_bytes: int = 8 << 20
    max_connections: int = 1024  # fewer if the limit of open files is lower
    head_timeout_s: float = 10.0
    transfer_timeout_s: float = 30.0
    key_cookie: str = ""  # name of a cookie that is accepted instead of the key; "" for none


class Server(uvicorn.Server):  # type: ignore[misc]  # uvicorn's types are not followed
    """A uvicorn server on a socket that is already bound."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self.listener = listener

    @property
    def url(self) -> str:
        """The server's URL, with the address and port that its socket is bound to."""
        host, port = self.listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `should_exit` is set."""
        super().run(sockets=[self.listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving; also make asyncio log errors outside of requests in one line."""
        asyncio.get_running_loop().set_exception_handler(_log_in_one_line)
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second; drops slow clients once a second."""
        if counter % TICKS_PER_CHECK == 0:
            now = asyncio.get_running_loop().time()
            for connection in [connection for connection in self.server_state.connections if connection.due < now]:
                connection.drop(f"too slow, {now - connection.since:.0f} s")
        return bool(await super().on_tick(counter))


def make_server(
    app: ASGIApp,
    settings: ServerSettings,
    *,
    as_error: ErrorForm = plain_error,
    key: str = "",
    listener: Listener | None = None,
) -> Server:
    """Create a server of the application: its socket listens on return; requests are answered once the server runs.

    A command that takes minutes to load a model calls `bind` first and passes the `listener`, so that an error about
    the address appears at once.
    """
    listener = listener or bind(settings, key)
    listener.listen(2048)
    hosts = frozenset(map(name_of, (settings.host, *settings.allow_hosts)))
    origins = frozenset(origin.lower().rstrip("/") for origin in settings.allow_origins)
    rules = Rules(LOCAL_NAMES | hosts - {""}, origins, settings.max_body_bytes, settings.key_cookie)
    limits = structs.replace(settings, max_connections=connection_limit(settings.max_connections))
    config = uvicorn.Config(
        Guard(app, rules, key, as_error),
        http=partial(_Connection, settings=limits),
        loop="asyncio",  # other event loops bypass `Listener.accept`
        ws="none",
        log_level="error",
        access_log=False,  # uvicorn's lines contain the query and with it the key
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=10,
    )
    return Server(config, listener)


def bind(settings: ServerSettings, key: str) -> Listener:
    """Create a socket and bind it to the host and port of the settings.

    Raises BadInput if the address or port is unavailable, or if other machines can reach it and there is no key.
    """
    host, port = settings.host, settings.port
    # The protocol is explicit: asyncio sets TCP_NODELAY only then, and without it every response waits for 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot listen on {host} port {port}: {reason}", hint="--port 0 takes a free port") from error
    if not key and not ip_address(listener.getsockname()[0]).is_loopback:
        listener.close()
        raise BadInput(f"other machines can reach {host or 'this address'}: an API key is required", hint=KEY_HINT)
    return listener


def run_server(server: Server, on_ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C, logging one line per request to stderr. `on_ready` is called with the URL first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        # KeyboardInterrupt is raised after uvicorn has shut down in order.
        with server.listener, contextlib.suppress(KeyboardInterrupt):
            on_ready(server.url)
            server.run()
    finally:
        log.removeHandler(handler)


def _log_in_one_line(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    log.error("%s%s", context["message"], f": {type(error).__name__}: {error}" if error else "")


# ---------------------------------------------------------------------------------------------------- the two servers


def make_search_server(
    index: Index, settings: ServerSettings, *, key: str = "", limits: ServerLimits | None = None
) -> Server:
    """Create a search server for an index, which is loaded now."""
    from quaere.serving.search_app import ServerLimits, make_app

    limits = limits or ServerLimits()
    app = make_app(index, limits)
    index.engine  # noqa: B018  (loads the index now, so that the first request does not wait for it)
    return make_server(app, structs.replace(settings, max_body_bytes=limits.max_body_bytes), key=key)


def make_model_server(
    service: Service, settings: ServerSettings, *, key: str = "", listener: Listener | None = None
) -> Server:
    """Create a server for a model; `listener` is a socket bound before the model was loaded, None to bind one now."""
    from quaere.serving.model.app import make_app
    from quaere.serving.model.wire import error_form

    return make_server(make_app(service), settings, as_error=error_form, key=key, listener=listener)


# -------------------------------------------------------------------------------------------------------- connections


class _Connection(HttpToolsProtocol):  # type: ignore[misc]  # uvicorn's types are not followed
    """A client's connection. `due` is the time at which it is dropped: infinite while the client waits for us.

    The deadlines are those of a request's head, of its body, and of reading the response.
    """

    due = math.inf
    since = 0.0  # when it started to wait for its client
    num_requests = 0  # requests whose head was complete
    _reading = ""  # "head" or "body" of a request; "" between requests
    _num_bytes = 0  # bytes of the request being read

    def __init__(self, *args: Any, settings: ServerSettings, **options: Any) -> None:
        super().__init__(*args, **options)
        self._settings = settings

    # ------------------------------------------------------------------------------------------- what uvicorn calls

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._expect(self._settings.head_timeout_s)
        if len(self.connections) > self._settings.max_connections:
            # A connection that waits for its client is dropped; if none does, the new one.
            others = (other for other in self.connections if other is not self and other.due < math.inf)
            oldest = min(others, key=lambda other: (other.num_requests > 0, other.since), default=self)
            if oldest is self:
                transport.write(_BUSY)
            oldest.drop("all connections are taken")

    def connection_lost(self, exc: Exception | None) -> None:
        self.due = math.inf
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._num_bytes += len(data)
        limit = MAX_HEAD_BYTES if self._reading == "head" else WIRE_FACTOR * self._settings.max_body_bytes
        if self._reading and self._num_bytes > limit:
            self.drop(f"a request of more than {limit} bytes")

    def send_400_response(self, msg: str) -> None:
        log.info("%s - 400 not HTTP", self._address())
        super().send_400_response(msg)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading, self._num_bytes = "head", 0
        self._expect(self._settings.head_timeout_s)

    def on_headers_complete(self) -> None:
        self._reading = "body"
        self.num_requests += 1
        self._expect(self._settings.transfer_timeout_s)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._reading = ""
        super().on_message_complete()
        # No deadline while the application works, unless it has responded already.
        self._expect(self._settings.head_timeout_s if self.cycle.response_complete else math.inf)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self._reading != "body":
            unread = self.transport.get_write_buffer_size() > 0
            self._expect(self._settings.transfer_timeout_s if unread else self._settings.head_timeout_s)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect(self._settings.transfer_timeout_s)

    def resume_writing(self) -> None:
        super().resume_writing()
        is_busy = self.cycle is not None and not self.cycle.response_complete
        self._expect(math.inf if is_busy else self._settings.head_timeout_s)

    # -------------------------------------------------------------------------------------------------- what we call

    def drop(self, why: str) -> None:
        """Close the connection at once; unsent data is lost."""
        log.info("%s dropped: %s", self._address(), why)
        self.due = math.inf
        self.transport.abort()

    def _expect(self, seconds: float) -> None:
        self.since = self.loop.time()
        self.due = self.since + seconds

    def _address(self) -> str:
        return self.client[0] if self.client else "-"


class Listener(socket.socket):
    """A listening socket that accepts a limited number of connections per iteration of the event loop.

    asyncio accepts the whole queue before any connection is counted, so a burst would use up all file descriptors. Here
    the rest of a burst waits in the queue for the next iteration.
    """

    num_accepted = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection: its socket and address.

        Raises BlockingIOError, as if the queue were empty, once this iteration's share is used.
        """
        if self.num_accepted >= ACCEPTED_AT_ONCE:
            raise BlockingIOError
        if not self.num_accepted:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self.num_accepted += 1
        try:
            return super().accept()
        except OSError:
            self.num_accepted = ACCEPTED_AT_ONCE  # e.g. out of descriptors: asyncio would retry at once in a busy loop
            raise

    def _begin_turn(self) -> None:
        self.num_accepted = 0


def connection_limit(wanted: int) -> int:
    """Number of connections the process has file descriptors for, at most `wanted`.

    With `ulimit -n 128` and 10 files open, connection_limit(1024) == 54.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    room = soft - len(os.listdir("/dev/fd")) - SPARE_DESCRIPTORS
    if room < MIN_CONNECTIONS:
        raise BadInput(f"the limit of open files is {soft}, too low for a server", hint="ulimit -n 1024")
    return min(wanted, room)
