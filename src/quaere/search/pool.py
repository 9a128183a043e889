"""Client of several search servers that serve the same index: requests are spread over those that answer.

async with SearchPool(["http://a:8000", "http://b:8000", "http://c:8000"]) as pool:
    hits = (await pool.search(["who built the Halm bridge?"], topk=3))[0]

A search changes nothing on a server, so a request that one server failed is sent to the next. It fails only if every
server has failed it.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Sequence
from types import TracebackType

from quaere.errors import BadInput, SearchFailed, ServerDown
from quaere.records import Hit
from quaere.search.client import SearchClient
from quaere.search.wire import Health

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0  # before overloaded servers are asked again


class _Server:
    """A server of the pool: its client, how many requests it got and has in flight, and whether it is down."""

    def __init__(self, client: SearchClient) -> None:
        self.client = client
        self.num_asked = 0
        self.num_in_flight = 0
        self.is_down = False

    @property
    def preference(self) -> tuple[bool, int, int]:
        """Sort key: the server with the least is asked first."""
        return self.is_down, self.num_in_flight, self.num_asked


class SearchPool:
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
        self._fingerprint = ""  # of the index they serve, as the first one said
        self._probes: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> SearchPool:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def urls_down(self) -> list[str]:
        """The servers that are down."""
        return [server.client.url for server in self._servers if server.is_down]

    async def check(self) -> None:
        """Ask every server for its health; raise if none answers, or if two serve different indexes."""
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

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """One list of hits per query, in the order of the queries."""
        until, pause_s = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while True:
            failures: list[SearchFailed] = []
            untried = list(self._servers)
            while untried:
                server = min(untried, key=lambda each: each.preference)
                untried.remove(server)
                try:
                    return await self._ask(server, queries, topk)
                except SearchFailed as failure:
                    if failure.kind == "rejected":
                        raise
                    failures.append(failure)
            is_busy = any(failure.kind == "overloaded" for failure in failures)
            if not is_busy or time.monotonic() + pause_s > until:
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
        # The place is always this line, so that a server that comes and goes is spoken of once.
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
