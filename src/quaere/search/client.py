"""Clients of one search server or of several: Quaere's own, or any other with the same `POST /retrieve`.

async with SearchClient("http://127.0.0.1:8000") as client:
    hits = (await client.search(["who built the Halm bridge?"], topk=3))[0]
async with SearchPool(["http://a:8000", "http://b:8000", "http://c:8000"]) as pool:
    hits = (await pool.search(["who built the Halm bridge?"], topk=3))[0]

A search changes nothing on a server, so a pool sends a request that one server failed to the next. It fails only if
every server has failed it.

The API key is read from `$QUAERE_SEARCH_KEY`, or a user and password from `$QUAERE_SEARCH_LOGIN` ("USER:PASSWORD").
Either may be in a file named by `$QUAERE_SEARCH_KEY_FILE` or `$QUAERE_SEARCH_LOGIN_FILE`. A URL may contain neither:
URLs are stored with runs and shown in messages.
"""

import asyncio
import base64
import time
import warnings
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import httpx
import msgspec

from quaere.endpoint import read_secret
from quaere.errors import BadInput, SearchFailed, ServerDown
from quaere.records import Hit, Passage
from quaere.search.json_client import JsonClient
from quaere.search.json_lines import split_contents
from quaere.search.wire import Health, Reply, Request, WireDocument

KEY, LOGIN = "QUAERE_SEARCH_KEY", "QUAERE_SEARCH_LOGIN"


class SearchClient(AbstractAsyncContextManager["SearchClient"]):
    """Asynchronous client of a search server. It never retries: the caller decides what to do about a failure.

    `timeout_s` limits a request from first to last byte, `max_connections` the requests at once (others wait), and
    `max_response_bytes` the size of an answer.
    """

    def __init__(
        self, url: str, *, timeout_s: float = 30.0, max_connections: int = 64, max_response_bytes: int = 64 << 20
    ) -> None:
        self.url = server_url(url)
        authorization, secrets = read_authorization()
        self._json = JsonClient(
            self.url,
            f"the search server {self.url}",
            headers={"authorization": authorization} if authorization else {},
            secrets=secrets,
            start_hint=f"quaere serve-search --index DIR --port {httpx.URL(self.url).port or 80}",
            key_hint=f"export {KEY}=..., or {LOGIN}=USER:PASSWORD",
            timeout_s=timeout_s,
            max_connections=max_connections,
            max_response_bytes=max_response_bytes,
        )

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """One list of hits per query, in the order of the queries."""
        request = msgspec.json.encode(Request(queries=list(queries), topk=topk, return_scores=True))
        result = (await self._json.ask("POST", "/retrieve", request, Reply, "search results")).result
        if len(result) != len(queries):
            raise self._json.failure("broken", f"answered {len(result)} of {len(queries)} queries")
        return [[Hit(self._passage(item.document), item.score) for item in items[:topk]] for items in result]

    async def health(self) -> Health:
        """The server's version, engine and index, from `GET /health`; raises `SearchFailed` if it does not answer."""
        return await self._json.ask("GET", "/health", b"", Health, "its health")

    check = health

    async def close(self) -> None:
        """Close the connections."""
        await self._json.close()

    def _passage(self, document: WireDocument) -> Passage:
        """The passage in a server's document; without offsets, the document is one passage."""
        title, text = split_contents(document.contents)
        end = document.start + len(text) if document.end is None else document.end
        if end < document.start:
            said = f"sent a passage whose start ({document.start}) is after its end ({end})"
            raise self._json.failure("broken", said)
        doc_id = str(document.id) if document.doc_id is None else document.doc_id
        return Passage(str(document.id), doc_id, title, text, document.start, end, document.place, document.heading)


def read_authorization() -> tuple[str, list[str]]:
    """The Authorization header from the environment, "" for none, and its secret parts, longest first."""
    key, login = read_secret(KEY), read_secret(LOGIN)
    if key and login:
        raise BadInput(f"both {KEY} and {LOGIN} are set, but only one can be sent", hint=f"unset {LOGIN}")
    if not login:
        return (f"Bearer {key}", [key]) if key else ("", [])
    _, colon, password = login.partition(":")
    if not colon:
        raise BadInput(f"{LOGIN} must be USER:PASSWORD", hint=f"export {LOGIN}=USER:PASSWORD")
    sent = base64.b64encode(login.encode()).decode()
    return f"Basic {sent}", [secret for secret in (sent, login, password) if secret]


def server_url(url: str) -> str:
    """The server's address without a trailing `/` or `/retrieve`; `BadInput` if it is no URL or holds a secret."""
    if set("@?#") & set(url):
        said = "the URL of a search server may not contain a user or password, nor @, ? or #"
        raise BadInput(said, hint=f"export {LOGIN}=USER:PASSWORD (or {KEY}=...) and leave it out of the URL")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise BadInput(f"{url!r} is not a URL: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise BadInput(f"{url!r} is not the URL of a search server", hint="it looks like http://127.0.0.1:8000")
    return url.rstrip("/").removesuffix("/retrieve").rstrip("/")


def server_urls(text: str) -> list[str]:
    """The servers' addresses in a list separated by commas; `BadInput` if one is no URL.

    server_urls("http://a:8000, http://b:8000/") == ["http://a:8000", "http://b:8000"]
    """
    return [server_url(url.strip()) for url in text.split(",") if url.strip()]


# ------------------------------------------------------------------------------------------------------ several servers


_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0  # before overloaded servers are asked again


class _Server(msgspec.Struct, eq=False):
    client: SearchClient
    num_asked: int = 0
    num_in_flight: int = 0
    is_down: bool = False


class SearchPool(AbstractAsyncContextManager["SearchPool"]):
    """Asynchronous client of several search servers.

    A request goes to the server with the fewest requests in flight. A server that cannot be reached, times out or
    answers with an error is *down*: it is asked for its health every `probe_s`, and gets requests again once it
    answers, unless it has another index by then. With all servers down, each is tried all the same. If servers are
    overloaded, a request waits for them up to `patience_s`. A request that a server rejects is sent to no other: all
    would reject it.
    """

    def __init__(
        self, urls: Sequence[str], *, timeout_s: float = 30.0, patience_s: float = 30.0, probe_s: float = 2.0
    ) -> None:
        self._servers = [_Server(SearchClient(url, timeout_s=timeout_s)) for url in urls]
        if len({server.client.url for server in self._servers}) < max(1, len(self._servers)):
            raise BadInput("a search server is named twice, or none is", hint="--index http://a:8000,http://b:8000")
        self._patience_s = patience_s
        self._probe_s = probe_s
        self._fingerprint = ""  # fingerprint of the index, as the first server reported it
        self._probes: set[asyncio.Task[None]] = set()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def urls_down(self) -> list[str]:
        """URLs of the servers that are marked as down."""
        return [server.client.url for server in self._servers if server.is_down]

    async def check(self) -> Health | None:
        """The health of the first server that reports it; raises if none answers, or if two serve different indexes."""
        answers = await asyncio.gather(*(server.client.health() for server in self._servers), return_exceptions=True)
        for server, answer in zip(self._servers, answers, strict=True):
            if isinstance(answer, Health):
                self._check_index(server, answer)
            elif not isinstance(answer, SearchFailed):
                raise answer
            elif answer.kind != "rejected":  # a server of another kind, without /health
                self._take_down(server, answer)
        if len(self.urls_down) == len(self._servers):
            raise self._all_failed([answer for answer in answers if isinstance(answer, SearchFailed)])
        return next((answer for answer in answers if isinstance(answer, Health)), None)

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """One list of hits per query, in the order of the queries."""
        until, pause_s = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while True:
            failures: list[SearchFailed] = []
            untried = list(self._servers)
            while untried:
                server = min(untried, key=lambda each: (each.is_down, each.num_in_flight, each.num_asked))
                untried.remove(server)
                try:
                    return await self._ask(server, queries, topk)
                except SearchFailed as failure:
                    if failure.kind == "rejected":
                        raise
                    failures.append(failure)
            if all(failure.kind != "overloaded" for failure in failures) or time.monotonic() + pause_s > until:
                raise self._all_failed(failures)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def close(self) -> None:
        """End the probes and close the connections."""
        for probe in self._probes:
            probe.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)
        await asyncio.gather(*(server.client.close() for server in self._servers))

    async def _ask(self, server: _Server, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        server.num_asked += 1
        server.num_in_flight += 1
        try:
            return await server.client.search(queries, topk)
        except SearchFailed as failure:
            if failure.kind not in ("rejected", "overloaded"):
                self._take_down(server, failure)
            raise
        finally:
            server.num_in_flight -= 1

    def _take_down(self, server: _Server, failure: SearchFailed) -> None:
        if server.is_down:
            return
        server.is_down = True
        num_left = len(self._servers) - len(self.urls_down)
        # Always warned from this line, so that Python shows the warning about a server only once.
        warnings.warn(f"{failure}; {num_left} of {len(self._servers)} servers are left", ServerDown, stacklevel=1)
        probe = asyncio.create_task(self._wait_until_up(server))
        self._probes.add(probe)  # the loop itself keeps only a weak reference
        probe.add_done_callback(self._probes.discard)

    async def _wait_until_up(self, server: _Server) -> None:
        while server.is_down:
            await asyncio.sleep(self._probe_s)
            try:
                self._check_index(server, await server.client.health())
                server.is_down = False
            except SearchFailed as failure:
                server.is_down = failure.kind != "rejected"  # a server of another kind, without /health
            except BadInput as refusal:  # it came back with another index
                warnings.warn(str(refusal), ServerDown, stacklevel=1)

    def _check_index(self, server: _Server, health: Health) -> None:
        self._fingerprint = self._fingerprint or health.fingerprint
        if health.fingerprint != self._fingerprint:
            said = f"the search server {server.client.url} serves another index than the others"
            raise BadInput(said, hint="start every server with the same index, or name one of them")

    def _all_failed(self, failures: Sequence[SearchFailed]) -> SearchFailed:
        last = failures[-1]
        return SearchFailed(f"all {len(self._servers)} search servers failed: {last}", kind=last.kind, hint=last.hint)
