"""Searchers: the asynchronous interface to a search engine, and the places (values of `--search`) that name one.

searcher = open_searcher("docs-index")            # or "http://127.0.0.1:8000", or "http://a:8000,http://b:8000"
searcher = open_searcher("mcp:COMMAND")           # or "mcp:URL", "web:NAME", "record:FILE@PLACE", "replay:FILE"
hits = (await searcher.search(["who built the Halm bridge?"], topk=3))[0]
await searcher.close()
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from quaere.errors import QuaereError, SearchFailed
from quaere.records import Hit
from quaere.search.index import Index, open_index, read_manifest

_SPARE_HITS = 20  # further hits of a search that leaves out documents
_MAX_JOINED = 64  # queries batched into one call of the engine
_NUM_REMEMBERED = 4096  # queries whose hits are kept: the attempts at one question often ask for the same


class Searcher(Protocol):
    """Asynchronous search. Returns a list of hits per query, best first; raises `SearchFailed` if the search fails."""

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """One list of hits per query, in the order of the queries."""

    async def close(self) -> None:
        """Release threads and connections."""


# Places with a word before the first colon: the function that reads the rest and returns the searcher's opener.
_KINDS = {
    "mcp": "quaere.search.mcp_client:read_mcp",
    "record": "quaere.search.recorded:read_recording",
    "replay": "quaere.search.recorded:read_replay",
    "web": "quaere.search.web_search:read_web",
}


def open_searcher(where: str) -> Searcher:
    """A searcher for a place: an index directory, URLs of search servers separated by commas, or one of `_KINDS`."""
    return find_opener(where)()


def find_opener(where: str) -> Callable[[], Searcher]:
    """The function that opens the searcher of a place; it raises if the place is wrong, before anything is opened.

    find_opener("web:searxng@http://127.0.0.1:8888"); find_opener("record:study.warc.gz@docs-index")
    """
    kind, colon, rest = where.partition(":")
    if colon and kind in _KINDS:
        module, _, name = _KINDS[kind].partition(":")
        opener: Callable[[], Searcher] = getattr(import_module(module), name)(rest)
        return opener
    if is_folder(where):
        read_manifest(Path(where))
        return lambda: LocalSearcher(open_index(Path(where)), remember=_NUM_REMEMBERED)
    # With httpx, which an index in this process does not need.
    from quaere.search.client import SearchClient, SearchPool, server_urls

    urls = server_urls(where)
    return partial(SearchClient, urls[0]) if len(urls) == 1 else partial(SearchPool, urls)


def is_folder(where: str) -> bool:
    """True for a place that can only be an index directory."""
    return not where.startswith(("http://", "https://", *(f"{kind}:" for kind in _KINDS)))


async def check_reachable(searcher: Searcher) -> None:
    """Raise if search servers cannot be reached or serve different indexes; does nothing for a local index.

    It is called before a model is loaded, so that a wrong address fails early.
    """
    if check := getattr(searcher, "check", None):
        await check()


async def find_fingerprint(searcher: Searcher) -> str:
    """The fingerprint of the index that is searched, here or on servers; "" if there is none or none is known."""
    if hasattr(searcher, "fingerprint"):
        return str(searcher.fingerprint)
    try:
        check = getattr(searcher, "check", None)
        return str(getattr(await check(), "fingerprint", "")) if check else ""
    except SearchFailed as failure:
        if failure.kind == "rejected":  # a server of another kind, without /health
            return ""
        raise


class NoSearcher:
    """Searcher for episodes without search (closed book); every search fails."""

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Raise `SearchFailed`."""
        raise SearchFailed("searching is not possible in closed-book mode", kind="rejected")

    async def close(self) -> None:
        """Do nothing."""


class Without:
    """Searcher that leaves out the passages of some documents; a query may then have fewer hits.

    Without(searcher, {"halm.md"})
    """

    def __init__(self, searcher: Searcher, documents: Collection[str]) -> None:
        self._searcher, self._documents = searcher, documents

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """One list of hits per query, in the order of the queries."""
        found = await self._searcher.search(queries, topk + _SPARE_HITS)
        return [[hit for hit in hits if hit.passage.doc_id not in self._documents][:topk] for hits in found]

    async def close(self) -> None:
        """Close the searcher."""
        await self._searcher.close()


class _Request(Struct, eq=False):
    queries: list[str]
    topk: int
    hits: asyncio.Future[list[list[Hit]]]


class LocalSearcher:
    """Searches an index in threads, so that the event loop is not blocked.

    At most `max_concurrent` engine calls run at once and at most `max_waiting` requests wait (None: no limit); beyond
    that a search fails as overloaded. With `join`, waiting requests are batched into one call, which is faster for
    embedders; without it, the result of a call never depends on other requests. The hits of the last `remember`
    different queries are cached.
    """

    def __init__(
        self,
        index: Index,
        *,
        max_concurrent: int = 2,
        max_waiting: int | None = None,
        join: bool = False,
        remember: int = 0,
    ) -> None:
        self.index = index
        self._max_waiting = max_waiting
        self._join = join
        self._remember = remember
        self._found: dict[tuple[str, int], list[Hit]] = {}  # by query and topk, the least recently used first
        self._waiting: deque[_Request] = deque()
        self._num_idle = max_concurrent
        self._threads = ThreadPoolExecutor(max_concurrent, thread_name_prefix="search")
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the index."""
        return self.index.fingerprint

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """One list of hits per query, in the order of the queries."""
        if all((query, topk) in self._found for query in queries):
            return [self._recall(query, topk) for query in queries]
        if self._max_waiting is not None and len(self._waiting) >= self._max_waiting and not self._num_idle:
            raise SearchFailed(f"the queue is full: {len(self._waiting)} searches are waiting", kind="overloaded")
        request = _Request([*queries], topk, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._start_calls()
        try:
            hits = await request.hits
        except asyncio.CancelledError:
            with suppress(ValueError):  # it waits no longer; otherwise it would keep its place in the queue
                self._waiting.remove(request)
            raise
        for query, found in zip(queries, hits, strict=True):
            self._keep(query, topk, found)
        return hits

    async def close(self) -> None:
        """Wait for running calls, then release the threads."""
        while self._calls:
            await asyncio.wait(self._calls)
        self._threads.shutdown()

    def _recall(self, query: str, topk: int) -> list[Hit]:
        hits = self._found[query, topk] = self._found.pop((query, topk))
        return [*hits]

    def _keep(self, query: str, topk: int, hits: Sequence[Hit]) -> None:
        self._found.pop((query, topk), None)
        self._found[query, topk] = [*hits]
        if len(self._found) > self._remember:
            del self._found[next(iter(self._found))]

    def _start_calls(self) -> None:
        while self._num_idle and self._waiting:
            self._num_idle -= 1
            call = asyncio.create_task(self._call_engine(self._take_requests()))
            self._calls.add(call)  # the loop itself keeps only a weak reference
            call.add_done_callback(self._calls.discard)

    def _take_requests(self) -> list[_Request]:
        taken = [self._waiting.popleft()]
        num_queries = len(taken[0].queries)
        while self._join and self._waiting and num_queries + len(self._waiting[0].queries) <= _MAX_JOINED:
            taken.append(self._waiting.popleft())
            num_queries += len(taken[-1].queries)
        return taken

    def _search(self, queries: list[str], topk: int) -> list[list[Hit]]:
        try:
            return self.index.search(queries, topk)
        except StopIteration as error:  # of an engine of another package; no future can hold it: nobody would be told
            raise RuntimeError(f"StopIteration: {error}") from error

    async def _call_engine(self, requests: list[_Request]) -> None:
        wanted = [request for request in requests if not request.hits.done()]  # cancelled requests are dropped
        queries = [query for request in wanted for query in request.queries]
        topk = max((request.topk for request in wanted), default=1)
        try:
            loop = asyncio.get_running_loop()
            found = iter(await loop.run_in_executor(self._threads, self._search, queries, topk))
            for request in wanted:
                hits = [next(found)[: request.topk] for _ in request.queries]
                if not request.hits.done():
                    request.hits.set_result(hits)
        except Exception as error:
            said = f"the search engine failed: {type(error).__name__}: {error}"
            failure = error if isinstance(error, QuaereError) else SearchFailed(said, kind="broken")
            for request in wanted:
                if not request.hits.done():
                    request.hits.set_exception(failure)
        finally:
            self._num_idle += 1
            self._start_calls()
