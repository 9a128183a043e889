"""Makes a server of an application, and runs it.

    server = make_server(app, ServerSettings(port=0), as_error=lambda status, line: {"error": line})
    run_server(server, on_ready=print)                                    # http://127.0.0.1:41873

A server listens on the loopback address by default; any other address requires a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import uvicorn
from msgspec import Struct

from quaere.errors import BadInput
from quaere.serving.connections import Connection, Listener, Patience, connection_limit, drop_late, log
from quaere.serving.guard import LOCAL_NAMES, ErrorForm, Guard, Rules, name_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp

# uvicorn ticks ten times a second; connections past their deadlines are looked for once a second.
TICKS_PER_CHECK = 10
KEY_HINT = "export QUAERE_API_KEY=..., or --api-key-file FILE, or --host 127.0.0.1"


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
    key_cookie: str = ""  # name of a cookie that may stand for the key; "" for none


class Server(uvicorn.Server):  # type: ignore[misc]  # uvicorn's types are not followed
    """A uvicorn server on a socket that is already bound."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self.listener = listener

    @property
    def url(self) -> str:
        """The server's URL."""
        host, port = self.listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `should_exit` is set."""
        super().run(sockets=[self.listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving; errors outside of requests are logged in one line as well."""
        asyncio.get_running_loop().set_exception_handler(_log_in_one_line)
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second; drops slow clients once a second."""
        if counter % TICKS_PER_CHECK == 0:
            drop_late(self.server_state.connections, asyncio.get_running_loop().time())
        return bool(await super().on_tick(counter))


def make_server(
    app: ASGIApp,
    settings: ServerSettings,
    *,
    as_error: ErrorForm,
    key: str = "",
    listener: Listener | None = None,
) -> Server:
    """A server of the application. It listens at once and answers requests when it runs.

    A command that takes minutes to load binds the `listener` first (`bind`), so that errors about the address show at
    once.
    """
    listener = listener or bind(settings, key)
    listener.listen(2048)
    hosts = frozenset(map(name_of, (settings.host, *settings.allow_hosts)))
    origins = frozenset(origin.lower().rstrip("/") for origin in settings.allow_origins)
    rules = Rules(LOCAL_NAMES | hosts - {""}, origins, settings.max_body_bytes, settings.key_cookie)
    patience = Patience(
        max_connections=connection_limit(settings.max_connections),
        head_s=settings.head_timeout_s,
        transfer_s=settings.transfer_timeout_s,
        # A body sent in tiny chunks takes several times its size on the wire.
        max_message_bytes=4 * settings.max_body_bytes,
    )
    config = uvicorn.Config(
        Guard(app, rules, key, as_error),
        http=partial(Connection, patience=patience),
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
    """The bound socket of a server.

    Raises BadInput if the address or port is unavailable, or if other machines can reach it and there is no key.
    """
    host, port = settings.host, settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is explicit: asyncio sets TCP_NODELAY only then, and without it every response waits for 40 ms.
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


def run_server(server: Server, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until Ctrl-C, logging one line per request to stderr. `on_ready` is called with the URL first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with server.listener:
            if on_ready:
                on_ready(server.url)
            with contextlib.suppress(KeyboardInterrupt):  # raised after uvicorn has shut down in order
                server.run()
    finally:
        log.removeHandler(handler)


def _log_in_one_line(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    log.error("%s%s", context["message"], f": {type(error).__name__}: {error}" if error else "")
