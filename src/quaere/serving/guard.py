"""Checks of every request before the application sees it, and the request log.

In this order: the Host header names this server; there is one Origin header or none, and it is allowed; the key is
right; the body is JSON and not too large. The first two prevent a web page in somebody's browser from reading the
documents or using the model, also by DNS rebinding. An error in the application becomes one line in the log and a
response in the application's own error format.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quaere.errors import failure_line

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS = frozenset({"/health"})  # need no key, so that monitoring can use them
BUFFERED_BODIES = 32  # maximum number of bodies of the largest size in memory at once
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")

log = logging.getLogger("quaere.serving")

# Makes the body of an error response from a status and a message, in the format of the application's API.
ErrorForm = Callable[[int, str], Any]


def plain_error(status: int, line: str) -> dict[str, str]:
    """The body of an error response, for an API that defines no error format."""
    return {"error": line}


class Rules(Struct, frozen=True):
    """Accepted hosts and origins, and the size limit. An origin is written as browsers send it: "https://app.example".

    Rules(hosts=frozenset({"localhost", "127.0.0.1", "::1"}), origins=frozenset(), max_body_bytes=8388608)
    """

    hosts: frozenset[str]
    origins: frozenset[str]
    max_body_bytes: int
    key_cookie: str = ""  # name of a cookie that is accepted instead of the key, for pages in a browser; "" for none


class RequestRefused(Exception):
    """Raised to refuse a request before the application sees it, with the HTTP status and message of the response."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


class Guard:
    """ASGI middleware that checks and logs requests. An empty key means that no key is required."""

    def __init__(self, app: ASGIApp, rules: Rules, key: str, as_error: ErrorForm) -> None:
        self._app = app
        self._rules = rules
        self._key = key.encode()
        self._as_error = as_error
        self._num_buffered = 0  # bytes of request bodies in memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request, pass it to the application or respond with an error, and log one line."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(scope, receive, send, self._rules.origins)
        try:
            self._check(request)
            if request.is_preflight:
                await request.answer(Response(status_code=204))
            else:
                await self._pass_on(request)
        except RequestRefused as refused:
            await self._say(request, refused.status, str(refused))
        except (ClientDisconnect, asyncio.CancelledError):  # cancelled at shutdown; uvicorn would print a traceback
            pass
        except Exception as error:
            log.error("%s failed: %s", request.line, failure_line(error))
            await self._say(request, 500, f"the server failed: {type(error).__name__}")
        finally:
            log.info("%s %d %.0f ms", request.line, request.status or 499, 1000 * (time.monotonic() - request.began))

    async def _pass_on(self, request: _Request) -> None:
        body = bytearray()
        try:
            await self._read_body(request.receive, body)
            await self._app(request.scope, replay_body(bytes(body), request.receive), request.send)
        finally:
            self._num_buffered -= len(body)

    async def _say(self, request: _Request, status: int, line: str) -> None:
        if not request.status:
            headers = {"retry-after": "1"} if status == 429 else None
            await request.answer(JSONResponse(self._as_error(status, line), status, headers))

    # ------------------------------------------------------------------------------------------------------- checks

    def _check(self, request: _Request) -> None:
        own, _ = request.scope.get("server") or ("", None)
        host = name_of(request.header("host"))
        if not host or (host not in self._rules.hosts and host != name_of(own)):
            raise RequestRefused(403, "the Host header names another server; start this server with --allow-host NAME")
        if len(request.headers.getlist("origin")) > 1:
            raise RequestRefused(403, "the request has several Origin headers; it must have one or none")
        is_same_origin = request.origin.partition("://")[2] == request.header("host").lower()
        if request.origin and not is_same_origin and request.origin not in self._rules.origins:
            raise RequestRefused(403, "this origin is not allowed; start the server with --allow-origin URL")
        if request.is_preflight:
            return
        if self._key and request.scope["path"] not in OPEN_PATHS and not self._has_key(request):
            browser = "open /?api_key=KEY once in this browser, or " if self._rules.key_cookie else ""
            how = f"{browser}send the header Authorization: Bearer KEY"
            raise RequestRefused(401, f"the API key is missing or wrong; {how}")
        media = request.header("content-type").partition(";")[0].strip().lower()
        if request.scope["method"] in ("POST", "PUT", "PATCH") and media != "application/json":
            raise RequestRefused(415, "the body must be JSON, with the header Content-Type: application/json")
        length = request.header("content-length")
        if length.isdecimal() and int(length[:20]) > self._rules.max_body_bytes:
            raise self._too_large()

    def _has_key(self, request: _Request) -> bool:
        """True if the right key was sent, as a header or, for clients that cannot set headers, as `?api_key=`."""
        given = request.header("authorization").removeprefix("Bearer ").strip()
        if not given and self._rules.key_cookie:
            right = f"{self._rules.key_cookie}={key_cookie(self._key.decode())}".encode()
            cookies = request.header("cookie").split(";")
            if any(hmac.compare_digest(cookie.strip().encode(), right) for cookie in cookies):
                return True
        given = given or parse_qs(request.scope["query_string"].decode("latin-1")).get("api_key", [""])[0]
        return hmac.compare_digest(given.encode(), self._key)  # constant time, against guessing by timing

    async def _read_body(self, receive: Receive, body: bytearray) -> None:
        """Read the whole request body into `body`; raises `RequestRefused` if it is, or all bodies are, too large."""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk, more = message.get("body", b""), message.get("more_body", False)
            body += chunk
            self._num_buffered += len(chunk)
            if len(body) > self._rules.max_body_bytes:
                raise self._too_large()
            if self._num_buffered > BUFFERED_BODIES * self._rules.max_body_bytes:
                raise RequestRefused(429, "too many large requests at once; try again later")

    def _too_large(self) -> RequestRefused:
        return RequestRefused(413, f"the request is larger than {self._rules.max_body_bytes} bytes")


class _Request:
    """A request in progress; `status` is 0 until the response starts."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, origins: frozenset[str]) -> None:
        self.scope, self.receive, self._send, self._origins = scope, receive, send, origins
        self.headers = Headers(scope=scope)
        self.status = 0
        self.began = time.monotonic()
        self.origin = self.header("origin").lower().rstrip("/")
        self.is_preflight = scope["method"] == "OPTIONS" and self.origin in origins

    def header(self, name: str) -> str:
        """Value of the header; "" if it is missing, or occurs more than once and is therefore ambiguous."""
        values = self.headers.getlist(name)
        return values[0] if len(values) == 1 else ""

    @property
    def line(self) -> str:
        """Client, method and path for the log. The query is left out: it may contain a key and private searches."""
        client = self.scope.get("client") or ("-", 0)
        path = self.scope.get("raw_path", b"")[:200].decode("ascii", "replace")
        return f"{client[0]} {self.scope['method']} {path if path.isprintable() else '?'}"

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.origin in self._origins:
                message = {**message, "headers": [*message.get("headers", ()), *_cors(self.origin)]}
        await self._send(message)

    async def answer(self, response: Response) -> None:
        await response(self.scope, self.receive, self.send)


def key_cookie(key: str) -> str:
    """The value of the cookie that is accepted instead of a key: its hash, so that browsers do not store the key."""
    return hmac.new(key.encode(), b"quaere key cookie", "sha256").hexdigest()


def name_of(host: str) -> str:
    """Name or address in a Host header, without the port; "" if the header is invalid.

    name_of("LocalHost:8000") == "localhost"; name_of("[::1]:8000") == "::1"; name_of("a@b") == ""
    name_of("::ffff:192.0.2.7") == "192.0.2.7": a server on IPv4 and IPv6 sees IPv4 addresses in this form.
    """
    host = host.strip().lower()
    match = _HOST.fullmatch(host)
    name = (match[1] or match[2]) if match else host
    try:
        address = ip_address(name)
    except ValueError:
        return name if match else ""
    return str(getattr(address, "ipv4_mapped", None) or address)


def _cors(origin: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", b"authorization, content-type, mcp-protocol-version, mcp-method, mcp-name"),
        (b"vary", b"origin"),
    ]


def replay_body(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns a body already read, then what follows it (the disconnect)."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
