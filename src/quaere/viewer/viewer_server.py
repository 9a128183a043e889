"""The viewer as a server: the checks of every server, and a cookie for browsers that were given the key.

make_view_server(open_folder("runs"), ServerSettings(port=0)).url -> "http://127.0.0.1:41873"

Links cannot carry a header, so a person opens `/?api_key=KEY` once: the answer sets a cookie that stands for the key,
and leads to the same page without it. The cookie is a keyed hash, goes to this server only, and scripts cannot read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from msgspec import structs

from quaere.serving.guard import key_cookie
from quaere.serving.server import Server, ServerSettings, bind, make_server
from quaere.viewer.app import make_app
from quaere.viewer.page_formats import compile_templates

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from quaere.viewer.ask_queue import AskQueue
    from quaere.viewer.run_folder import RunFolder


def make_view_server(
    folder: RunFolder,
    settings: ServerSettings,
    *,
    key: str = "",
    queue: AskQueue | None = None,
    files: Sequence[Path] = (),
) -> Server:
    """A server of the viewer. It listens at once and answers requests when it runs."""
    listener = bind(settings, key)
    compile_templates()
    # Cookies do not know ports: two viewers on one machine must not overwrite each other's.
    name = f"quaere_view_{listener.getsockname()[1]}" if key else ""
    servers: list[Server] = []
    app = make_app(folder, lambda: any(server.should_exit for server in servers), queue, files)
    if key:
        app = KeyCookie(app, name, key)
    settings = structs.replace(settings, key_cookie=name)
    server = make_server(app, settings, as_error=lambda status, line: {"error": line}, key=key, listener=listener)
    servers.append(server)
    return server


class KeyCookie:
    """ASGI middleware that answers an address with the key in it: a cookie, and the same address without the key.

    The guard has checked the key before.
    """

    def __init__(self, app: ASGIApp, name: str, key: str) -> None:
        self._app = app
        self._cookie = f"{name}={key_cookie(key)}; HttpOnly; SameSite=Strict; Path=/"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what has no key in its address."""
        query = scope.get("query_string", b"").decode("latin-1")
        pairs = parse_qsl(query, keep_blank_values=True)
        rest = [(name, value) for name, value in pairs if name != "api_key"]
        if scope["type"] != "http" or len(rest) == len(pairs):
            await self._app(scope, receive, send)
            return
        # One slash only: "//host" would lead to another server.
        place = "/" + quote(scope["path"].lstrip("/\\")) + (f"?{urlencode(rest)}" if rest else "")
        headers = [(b"location", place.encode()), (b"set-cookie", self._cookie.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
