"""Makes a server of an application, and runs it.

    server = make_server(app, ServerSettings(port=0), as_error=lambda status, line: {"error": line})
    run_server(server, on_ready=print)                                    # http://127.0.0.1:41873

A server listens on this machine alone unless it is told otherwise, and then it must have a key.
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

KEY_HINT = "export QUAERE_API_KEY=..., or --api-key-file FILE, or --host 127.0.0.1"


class ServerSettings(Struct, frozen=True):
    """Where a server listens, whom it answers, and how much it puts up with.

    ServerSettings(host="127.0.0.1", port=8000, allow_hosts=("search.lan",), allow_origins=("https://app.example",))
    """

    host: str = "127.0.0.1"
    port: int = 8000
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    max_body_bytes: int = 8 << 20
    max_connections: int = 1024  # fewer where the process may not open as many files
    head_timeout_s: float = 10.0
    transfer_timeout_s: float = 30.0


class Server(uvicorn.Server):  # type: ignore[misc]  # uvicorn's types are not followed
    """A server over a socket that is bound already."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self.listener = listener

    @property
    def url(self) -> str:
        """Where it answers."""
        host, port = self.listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `should_exit` is set."""
        super().run(sockets=[self.listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer; what goes wrong outside of a request is one line as well."""
        asyncio.get_running_loop().set_exception_handler(_log_in_one_line)
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second; once a second, slow clients are dropped."""
        if counter % 10 == 0:
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
    """A server of the application. It listens from here on; requests are answered once it runs.

    A command that loads for minutes binds the `listener` before that (`bind`), to say at once what is wrong with it.
    """
    listener = listener or bind(settings, key)
    listener.listen(2048)
    hosts = frozenset(map(name_of, (settings.host, *settings.allow_hosts)))
    origins = frozenset(origin.lower().rstrip("/") for origin in settings.allow_origins)
    rules = Rules(LOCAL_NAMES | hosts - {""}, origins, settings.max_body_bytes)
    patience = Patience(
        max_connections=connection_limit(settings.max_connections),
        head_s=settings.head_timeout_s,
        transfer_s=settings.transfer_timeout_s,
        # A body in tiny chunks is several times as long on the wire.
        max_message_bytes=4 * settings.max_body_bytes,
    )
    config = uvicorn.Config(
        Guard(app, rules, key, as_error),
        http=partial(Connection, patience=patience),
        loop="asyncio",  # another loop would accept without asking the Listener
        ws="none",
        log_level="error",
        access_log=False,  # uvicorn's lines hold the query, and with it a key
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=10,
    )
    return Server(config, listener)


def bind(settings: ServerSettings, key: str) -> Listener:
    """The socket a server will listen on. Refused: an address or port that cannot be had, and one that other
    machines reach where there is no key."""
    host, port = settings.host, settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, or asyncio would not switch delayed sending off and every answer would wait for 40 ms.
    listener = Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot listen on {host} port {port}: {reason}", hint="--port 0 takes a free one") from error
    if not key and not ip_address(listener.getsockname()[0]).is_loopback:
        listener.close()
        raise BadInput(f"other machines can reach {host or 'this address'}, and there is no key", hint=KEY_HINT)
    return listener


def run_server(server: Server, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until Ctrl-C, with a line on stderr for every request. `on_ready` is told the URL first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with server.listener:
            if on_ready:
                on_ready(server.url)
            with contextlib.suppress(KeyboardInterrupt):  # uvicorn has shut down in order by then
                server.run()
    finally:
        log.removeHandler(handler)


def _log_in_one_line(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    log.error("%s%s", context["message"], f": {type(error).__name__}: {error}" if error else "")
