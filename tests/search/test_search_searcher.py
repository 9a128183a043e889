import asyncio
import threading

import pytest

from quaere.errors import BadInput, IndexMissing, SearchFailed
from quaere.search.client import SearchClient
from quaere.search.searcher import LocalSearcher, open_searcher


class HeldEngine:
    """The real engine behind a gate; remembers the calls that reached it."""

    def __init__(self, engine):
        self.engine = engine
        self.gate = threading.Event()
        self.calls = []

    def search(self, queries, topk):
        self.calls.append(list(queries))
        assert self.gate.wait(timeout=20)
        return self.engine.search(queries, topk)


@pytest.fixture
def held(index):
    index._engine = HeldEngine(index.engine)
    yield index._engine
    index._engine.gate.set()


async def settle():
    for _ in range(20):
        await asyncio.sleep(0.001)


async def test_it_finds_what_the_index_finds(index):
    searcher = LocalSearcher(index)
    queries = ["who built the Halm bridge", "Korrin", "xyzzy"]
    assert await searcher.search(queries, 2) == index.search(queries, 2)
    assert await searcher.search([], 2) == []
    await searcher.close()


@pytest.mark.parametrize("join", [False, True])
async def test_many_at_once_get_their_own_results(index, join):
    searcher = LocalSearcher(index, join=join)
    asked = [
        ([word, "Korrin"][: 1 + number % 2], 1 + number % 3) for number, word in enumerate(["Oss", "lamp", "首都"] * 10)
    ]
    found = await asyncio.gather(*(searcher.search(queries, topk) for queries, topk in asked))
    assert found == [index.search(queries, topk) for queries, topk in asked]
    await searcher.close()


async def test_the_event_loop_stays_free_while_the_engine_works(index, held):
    searcher = LocalSearcher(index)
    search = asyncio.create_task(searcher.search(["Oss"], 1))
    await settle()
    assert held.calls == [["Oss"]]
    assert not search.done()
    held.gate.set()
    assert (await search)[0][0].passage.doc_id == "rivers.md"
    await searcher.close()


async def test_requests_that_wait_are_joined_only_when_asked_to(index, held):
    for join, expected in ((False, [["a"], ["b"], ["c"]]), (True, [["a"], ["b", "c"]])):
        held.calls.clear()
        held.gate.clear()
        searcher = LocalSearcher(index, max_concurrent=1, join=join)
        searches = [asyncio.create_task(searcher.search([query], 1)) for query in "abc"]
        await settle()
        held.gate.set()
        await asyncio.gather(*searches)
        assert held.calls == expected
        await searcher.close()


async def test_beyond_the_queue_a_search_is_overloaded_and_nothing_is_lost(index, held):
    searcher = LocalSearcher(index, max_concurrent=1, max_waiting=2)
    searches = [asyncio.create_task(searcher.search(["Oss"], 1)) for _ in range(3)]
    await settle()
    with pytest.raises(SearchFailed) as caught:
        await searcher.search(["Oss"], 1)
    assert caught.value.kind == "overloaded"
    held.gate.set()
    assert len(await asyncio.gather(*searches)) == 3
    assert await searcher.search(["Oss"], 1)
    await searcher.close()


async def test_a_finished_search_frees_one_place_only(index, held):
    """Else the limit of concurrent searches grows with every search, and the queue never fills."""
    held.gate.set()
    searcher = LocalSearcher(index, max_concurrent=1, max_waiting=1)
    for query in ("Oss", "lamp", "Korrin"):
        await searcher.search([query], 1)
    held.gate.clear()
    searches = [asyncio.create_task(searcher.search(["Oss"], 1)) for _ in range(2)]
    await settle()
    late = asyncio.create_task(searcher.search(["Oss"], 1))
    await settle()
    held.gate.set()
    *served, refused = await asyncio.gather(*searches, late, return_exceptions=True)
    assert isinstance(refused, SearchFailed) and refused.kind == "overloaded"
    assert all(hits[0] for hits in served)
    await searcher.close()


async def test_a_cancelled_search_harms_nobody(index, held):
    searcher = LocalSearcher(index, max_concurrent=1, join=True)
    running, waiting, other = (asyncio.create_task(searcher.search([query], 1)) for query in ("Oss", "lamp", "Korrin"))
    await settle()
    running.cancel()
    waiting.cancel()
    held.gate.set()
    assert (await other)[0]
    assert held.calls == [["Oss"], ["Korrin"]]
    await searcher.close()


async def test_an_engine_that_breaks_is_a_failed_search(index):
    class Broken:
        def search(self, queries, topk):
            raise ZeroDivisionError("oh")

    searcher = LocalSearcher(index)
    good, index._engine = index.engine, Broken()
    with pytest.raises(SearchFailed, match="ZeroDivisionError") as caught:
        await searcher.search(["Oss"], 1)
    assert caught.value.kind == "broken"
    index._engine = good
    assert (await searcher.search(["Oss"], 1))[0]
    with pytest.raises(BadInput):
        await searcher.search(["Oss"], 0)
    await searcher.close()


async def test_open_searcher_takes_a_directory_or_a_url(shared_index, url):
    local, remote = open_searcher(str(shared_index.path)), open_searcher(url)
    assert isinstance(local, LocalSearcher)
    assert isinstance(remote, SearchClient)
    queries = ["lighthouse at Korrin", "東京"]
    assert await local.search(queries, 3) == await remote.search(queries, 3)
    await local.close()
    await remote.close()
    with pytest.raises(IndexMissing):
        open_searcher(str(shared_index.path / "nowhere"))


async def test_hits_are_remembered_for_the_last_queries(index, held):
    held.gate.set()
    searcher = LocalSearcher(index, remember=2)
    for query, topk in [("Oss", 1), ("Oss", 1), ("Oss", 2), ("Oss", 1), ("Korrin", 1), ("Oss", 1), ("Oss", 2)]:
        found = await searcher.search([query], topk)
        assert found == index.search([query], topk)
        assert held.calls.pop() == [query]  # the comparison's own
        found[0].clear()  # a caller's list is the caller's
    # The second and fourth and sixth were known; the last had been forgotten for Korrin.
    assert held.calls == [["Oss"], ["Oss"], ["Korrin"], ["Oss"]]
    await searcher.close()


async def test_by_default_nothing_is_remembered_and_a_failure_never_is(index, held, monkeypatch):
    held.gate.set()
    searcher = LocalSearcher(index)
    await searcher.search(["Oss"], 1)
    await searcher.search(["Oss"], 1)
    assert held.calls == [["Oss"], ["Oss"]]
    await searcher.close()
    searcher = LocalSearcher(index, remember=9)
    with monkeypatch.context() as broken:
        broken.setattr(held, "search", lambda queries, topk: 1 / 0)
        with pytest.raises(SearchFailed):
            await searcher.search(["Oss"], 1)
    assert (await searcher.search(["Oss"], 1))[0]
    await searcher.close()


async def test_an_engine_that_takes_the_next_of_nothing_fails_its_search(index):
    """No future can hold what `next()` of nothing raises: without care, the search would never end."""

    class Empty:
        def search(self, queries, topk):
            return [next(iter(()))]

    index._engine = Empty()
    searcher = LocalSearcher(index)
    with pytest.raises(SearchFailed, match="StopIteration"):
        await asyncio.wait_for(searcher.search(["Oss"], 2), 10)
    await searcher.close()


async def test_a_search_that_was_given_up_takes_no_place_in_the_queue(index, held):
    searcher = LocalSearcher(index, max_concurrent=1, max_waiting=1)
    running = asyncio.create_task(searcher.search(["Oss"], 2))
    given_up = asyncio.create_task(searcher.search(["Korrin"], 2))
    await settle()
    given_up.cancel()
    await settle()
    waiting = asyncio.create_task(searcher.search(["lamp"], 2))
    await settle()
    held.gate.set()
    assert len(await running) == len(await waiting) == 1
    await searcher.close()
    assert held.calls == [["Oss"], ["lamp"]]
