"""A search tool of an MCP server as a searcher: `mcp:COMMAND` starts the server, `mcp:URL` connects to one.

searcher = McpSearcher("mcp:quaere mcp --index docs-index")       # or "mcp:http://127.0.0.1:8000/mcp"
hits = (await searcher.search(["who built the Halm bridge?"], topk=3))[0]

The tool is the one called `search`, or the only one whose name contains that. Its results are read from structured
content, from JSON in a text, or else every text is a passage. A command gets the SDK's environment (PATH, HOME and a
few others) and none of our keys; a URL gets the key of search servers (`client.py`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import shlex
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from msgspec import Struct

from quaere.endpoint import open_client, refuse_login
from quaere.errors import BadInput, SearchFailed, import_extra
from quaere.records import Hit
from quaere.records.foreign_json import decode_json
from quaere.search.client import KEY, read_authorization, server_urls
from quaere.search.wire import read_found

if TYPE_CHECKING:
    from quaere.search.searcher import Searcher

PREFIX = "mcp:"
_QUERY = ("query", "q", "question", "text", "search_query", "search_term")
_TOPK = ("topk", "top_k", "k", "limit", "max_results", "maxResults", "num_results", "numResults", "count", "n")
_LISTS = ("passages", "results", "result", "hits", "documents", "items", "data")
_TEXTS = ("text", "content", "contents", "snippet", "body", "page_content", "description")
_MAX_TEXT = 1 << 20  # characters of a passage
_MAX_BYTES = 64 << 20  # of an answer
_INVALID_PARAMS = -32602  # of JSON-RPC


def read_mcp(rest: str) -> Callable[[], Searcher]:
    """The function that opens the searcher of `mcp:REST`; `BadInput` if that is neither a URL nor a command."""
    searcher = McpSearcher(PREFIX + rest)
    return lambda: searcher


class McpSearcher:
    """Searches with a tool of an MCP server, which is connected to on the first search and again after a failure.

    `timeout_s` limits a search, `start_timeout_s` connecting, including the start of the command. It never retries.
    """

    def __init__(self, where: str, *, timeout_s: float = 30.0, start_timeout_s: float = 120.0) -> None:
        self._sdk = import_extra("mcp", "search on an MCP server needs the package mcp, version 2", extra="mcp")
        logging.getLogger("mcp").setLevel(logging.CRITICAL)  # the SDK logs a traceback; here a failure is one line
        self._place = _read_place(where)
        self._name = where if self._place.url else f"{PREFIX}{self._place.command[0]}"
        self._timeout_s, self._start_timeout_s = timeout_s, start_timeout_s
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """One list of hits per query, in the order of the queries."""
        return [await self._search_one(query, topk) for query in queries]

    async def check(self) -> None:
        """Connect, and raise if the server does not answer or has no search tool."""
        await self._connect()

    async def close(self) -> None:
        """End the connection, and the command if there is one."""
        if self._connection is not None:
            await self._connection.close()

    async def _search_one(self, query: str, topk: int) -> list[Hit]:
        connection = await self._connect()
        try:
            async with asyncio.timeout(self._timeout_s):
                arguments = connection.tool.arguments(query, topk)
                found = await connection.client.call_tool(connection.tool.name, arguments)
        except TimeoutError:
            self._fail("timeout", f"did not answer within {self._timeout_s:g} s")
        except Exception as error:  # the SDK's own are of many kinds
            if getattr(error, "code", None) == _INVALID_PARAMS:
                self._fail("rejected", f"refused the search: {error}")
            self._connection = None if self._connection is connection else self._connection
            await connection.close()
            self._fail("unreachable", f"no longer answers ({error})")
        if found.is_error:
            self._fail("rejected", f"refused the search: {' '.join(_texts(found.content))}")
        return self._read_hits(found, topk)

    def _read_hits(self, found: Any, topk: int) -> list[Hit]:
        rows = _find_rows(found.structured_content)
        for text in _texts(found.content) if rows is None else ():
            with suppress(msgspec.DecodeError):
                rows = _find_rows(decode_json(text.encode(), object)) if rows is None else rows
        rows = list(_texts(found.content)) if rows is None else rows
        try:
            hits = [_read_hit(row, -float(place)) for place, row in enumerate(rows[:topk])]
            return [hit for hit in hits if hit.passage.text.strip()]
        except msgspec.ValidationError as error:
            self._fail("broken", f"answered with something other than search results ({error})")

    async def _connect(self) -> _Connection:
        async with self._connecting:
            if self._connection is None:
                try:
                    async with asyncio.timeout(self._start_timeout_s):
                        self._connection = await _Connection.open(self._sdk, self._place)
                except TimeoutError:
                    self._fail("timeout", f"could not be connected to within {self._start_timeout_s:g} s")
                except Exception as error:
                    cause = _first_cause(error)
                    if isinstance(cause, BadInput | SearchFailed):
                        raise cause from None
                    self._fail("unreachable", f"cannot be reached ({str(cause) or type(cause).__name__})")
            return self._connection

    def _fail(self, kind: str, what: str) -> NoReturn:
        said = " ".join(self._place.hide(f"the MCP server {self._name} {what}")[:400].split())
        raise SearchFailed(said, kind=kind) from None


# ----------------------------------------------------------------------------------------------------------- connection


class _Place(Struct, frozen=True):
    """A server's URL, or the command that starts one; and the header that a URL gets, with its secrets."""

    url: str = ""
    command: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    secrets: tuple[str, ...] = ()

    def hide(self, said: str) -> str:
        """The text with the secrets replaced: a server's error may repeat the key, and errors are stored."""
        for secret in self.secrets:
            said = said.replace(secret, "***")
        return said


def _read_place(where: str) -> _Place:
    refuse_login(where, PREFIX)
    rest = where.removeprefix(PREFIX).strip()
    if rest.startswith(("http://", "https://")):
        (url,) = server_urls(rest.replace(",", "%2C"))
        header, secrets = read_authorization()
        return _Place(url=url, headers={"authorization": header} if header else {}, secrets=tuple(secrets))
    try:
        words = tuple(shlex.split(rest))
    except ValueError as error:
        raise BadInput(f"the command of {PREFIX} cannot be read: {error}") from None
    if not words:
        raise BadInput("mcp: needs a command or a URL", hint="mcp:http://127.0.0.1:8000/mcp, or mcp:'COMMAND WORDS'")
    return _Place(command=words)


class _Connection:
    """A client in a task of its own: the SDK requires that one and the same task opens and closes it."""

    client: Any
    tool: _SearchTool

    def __init__(self) -> None:
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, sdk: Any, place: _Place) -> _Connection:
        """Connect, and find the search tool."""
        connection, ready = cls(), asyncio.get_running_loop().create_future()
        connection._task = asyncio.create_task(connection._run(sdk, place, ready))
        try:
            await asyncio.wait([ready, connection._task], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            connection._task.cancel()
            await connection.close()  # it ends the command
            raise
        if not ready.done():
            await connection._task  # raises the reason
        return connection

    async def _run(self, sdk: Any, place: _Place, ready: asyncio.Future[None]) -> None:
        async with AsyncExitStack() as held:
            self.client = await held.enter_async_context(sdk.Client(await _open_transport(sdk, place, held)))
            self.tool = _choose_tool((await self.client.list_tools()).tools)
            ready.set_result(None)
            await self._closing.wait()

    async def close(self) -> None:
        self._closing.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)  # a lost connection was reported by its search


async def _open_transport(sdk: Any, place: _Place, held: AsyncExitStack) -> Any:
    if not place.url:
        return sdk.StdioServerParameters(command=place.command[0], args=place.command[1:])
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    class Bounded(httpx2.AsyncByteStream):  # type: ignore[misc]  # its types are not followed
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            num_left = _MAX_BYTES
            async for chunk in self._stream:
                num_left -= len(chunk)
                if num_left < 0:
                    raise httpx2.ReadError(f"an answer of more than {_MAX_BYTES} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        if response.status_code in (401, 403):
            said = f"the MCP server refused the request ({response.status_code})"
            if response.status_code == 403:  # our own server refuses an unknown Host with it
                raise SearchFailed(said, kind="rejected")
            raise SearchFailed(f"{said}: its key is missing or wrong", kind="rejected", hint=f"export {KEY}=...")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):  # the SDK bounds each event
            response.stream = Bounded(response.stream)

    headers = place.headers | {"accept-encoding": "identity"}  # the limit counts the bytes sent
    how = {"headers": headers, "event_hooks": {"response": [bound]}, "timeout": None}
    http = await held.enter_async_context(open_client(httpx2.AsyncClient, place.url, **how))
    return streamable_http_client(place.url, http_client=http)


def _first_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):  # the SDK runs in groups of tasks
        error = error.exceptions[0]
    return error


# --------------------------------------------------------------------------------------------------- tools and results


class _SearchTool(Struct, frozen=True):
    """A tool that searches, and what it calls the query and the number of results ("" if it takes none).

    _SearchTool("search", query="query", topk="topk", most=100)
    """

    name: str
    query: str
    topk: str = ""
    most: float = math.inf  # largest number of results that the tool accepts

    def arguments(self, query: str, topk: int) -> dict[str, Any]:
        return {self.query: query} | ({self.topk: min(topk, self.most)} if self.topk else {})


def _choose_tool(tools: Sequence[Any]) -> _SearchTool:
    named = [tool for tool in tools if tool.name == "search"]
    named = named or [tool for tool in tools if "search" in tool.name.lower()]
    if len(named) != 1:
        names = ", ".join(tool.name for tool in tools)[:200] or "none"
        raise BadInput(f"the MCP server has no tool that is clearly its search; its tools are: {names}")
    schema = named[0].input_schema
    takes = schema.get("properties") or {}
    required = [name for name in schema.get("required") or () if takes.get(name, {}).get("type") == "string"]
    query = next((name for name in _QUERY if name in takes), required[0] if len(required) == 1 else "")
    if not query:
        raise BadInput(f"the tool {named[0].name} of the MCP server takes no query")
    topk = next((name for name in _TOPK if name in takes), "")
    most = takes.get(topk, {}).get("maximum")
    return _SearchTool(named[0].name, query, topk, most if isinstance(most, int) else math.inf)


def _texts(content: Sequence[Any]) -> Iterator[str]:
    """The texts among the blocks of a result, embedded resources included."""
    for block in content:
        text = getattr(block, "text", None) or getattr(getattr(block, "resource", None), "text", None)
        if isinstance(text, str):
            yield text


def _find_rows(found: object) -> list[Any] | None:
    """The list of results in JSON of an unknown form; None if there is none."""
    if isinstance(found, Mapping):
        lists = [found[name] for name in _LISTS if isinstance(found.get(name), list | Mapping)]
        return next((rows for one in lists if (rows := _find_rows(one)) is not None), None)
    if isinstance(found, list) and all(isinstance(row, str | Mapping) for row in found):
        return found
    return None


def _read_hit(found: object, score: float) -> Hit:
    given: Mapping[str, Any] = found if isinstance(found, Mapping) else {"text": found}
    fields = {name: value for name, value in given.items() if value is not None}
    fields["text"] = next((fields[name] for name in _TEXTS if isinstance(fields.get(name), str)), "")[:_MAX_TEXT]
    fields["id"] = next((fields[name] for name in ("id", "uri", "url") if fields.get(name)), None)
    return read_found({**fields, "doc_id": fields.get("document")}, score)
