"""Several search servers behind one client: real ones, in processes of their own where one is killed."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from contextlib import ExitStack, contextmanager

import pytest

from preloaded import start_command
from quaere.errors import BadInput, SearchFailed, ServerDown
from quaere.search.client import SearchClient, SearchPool
from quaere.search.index_build import build_index
from quaere.search.searcher import LocalSearcher, check_reachable, open_searcher
from quaere.serving.search_app import ServerLimits

QUERIES = ["Halm bridge", "Korrin", "首都", "xyzzy", "lamp 1850"]
pytestmark = pytest.mark.filterwarnings("ignore::quaere.errors.ServerDown")


def start_server(index, port=0):
    """`quaere serve-search` in a process of its own; the process and its URL."""
    process, stderr = start_command("serve-search", "--index", index.path, "--port", port)
    found = None
    while not found:
        line = stderr.readline()
        assert line, "the server has ended"
        found = re.search(r"http://\S+:\d+", line)
    # Its log is read on: a full pipe would stop it.
    threading.Thread(target=stderr.read, daemon=True).start()
    return process, found[0]


@contextmanager
def own_process(index, port=0):
    """A server that may be killed or stopped; the process and its URL."""
    process, url = start_server(index, port)
    try:
        yield process, url
    finally:
        process.kill()
        process.join()


async def ask_many(pool, num_requests, num_clients, after=None):
    """So many requests by so many clients; `after` is a number of answers and what to do once there are as many."""
    numbers, found = iter(range(num_requests)), {}

    async def ask_on():
        for number in numbers:
            found[number] = (await pool.search([QUERIES[number % 5]], 2))[0]
            if after and len(found) == after[0]:
                after[1]()

    await asyncio.gather(*(ask_on() for _ in range(num_clients)))
    return [found[number] for number in range(num_requests)]


# --------------------------------------------------------------------------------------------------------- one is lost


async def test_one_of_three_servers_killed_under_load_loses_no_request(shared_index, serve, wait_until):
    expected = [shared_index.search([query], 2)[0] for query in QUERIES]
    with ExitStack() as held, ExitStack() as others:
        process, killed = held.enter_context(own_process(shared_index))
        one, third = (others.enter_context(serve(shared_index)) for _ in range(2))
        async with SearchPool([one, killed, third], probe_s=0.1) as pool:
            await pool.check()
            with pytest.warns(ServerDown, match=f"{killed} .*; 2 of 3 servers are left"):
                answers = await ask_many(pool, 150, 24, after=(50, process.kill))
            assert answers == expected * 30
            assert pool.urls_down == [killed]
            # A server that is started again at its old address gets requests again.
            process.join()
            held.enter_context(own_process(shared_index, port=killed.rpartition(":")[2]))
            await asyncio.to_thread(wait_until, lambda: not pool.urls_down)
            others.close()
            assert await ask_many(pool, 20, 4) == expected * 4
            assert pool.urls_down == [one, third]


async def test_a_server_that_hangs_is_left_out_after_one_timeout(shared_index, serve):
    with own_process(shared_index) as (process, hanging), serve(shared_index) as one, serve(shared_index) as other:
        os.kill(process.pid, signal.SIGSTOP)
        async with SearchPool([hanging, one, other], timeout_s=1, probe_s=60) as pool:
            assert await pool.search(["Korrin"], 1) == shared_index.search(["Korrin"], 1)
            assert pool.urls_down == [hanging]


def test_requests_are_spread_over_the_servers(shared_index, serve):
    async def ask(urls):
        async with SearchPool(urls) as pool:
            await ask_many(pool, 60, 6)
            assert {server.num_in_flight for server in pool._servers} == {0}
            return [server.num_asked for server in pool._servers]

    with serve(shared_index) as one, serve(shared_index) as other, serve(shared_index) as third:
        counts = asyncio.run(ask([one, other, third]))
    assert sum(counts) == 60 and min(counts) >= 10


# ------------------------------------------------------------------------------------------------------ all of them


@pytest.fixture
def free_urls():
    """Two addresses where nobody listens."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    urls = [f"http://127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
    for listener in listeners:
        listener.close()
    return urls


async def test_only_if_every_server_fails_the_request_does(free_urls):
    async with SearchPool(free_urls, probe_s=60) as pool:
        for ask in (pool.check(), pool.search(["x"], 1), pool.search(["x"], 1)):
            with pytest.raises(SearchFailed, match=r"all 2 search servers failed: .* cannot be reached") as caught:
                await ask
            assert caught.value.kind == "unreachable"
            assert "\n" not in str(caught.value)


async def test_a_server_that_nobody_runs_is_refused_before_a_model_is_loaded(free_urls, url):
    for where in (free_urls[0], ",".join(free_urls)):
        searcher = open_searcher(where)
        with pytest.raises(SearchFailed, match="cannot be reached"):
            await check_reachable(searcher)
        await searcher.close()
    searcher = open_searcher(url)
    await check_reachable(searcher)
    await searcher.close()


async def test_servers_that_are_down_are_tried_before_a_request_fails(shared_index, serve, free_urls):
    """The health of a server is asked for now and then only: it may be up again."""
    async with SearchPool(free_urls, probe_s=60) as pool:
        with pytest.raises(SearchFailed):
            await pool.search(["x"], 1)
        with serve(shared_index) as url:
            pool._servers[1].client = SearchClient(url)
            assert await pool.search(["Korrin"], 1) == shared_index.search(["Korrin"], 1)


async def test_overloaded_servers_are_waited_for(index, serve, wait_until):
    gate, engine = threading.Event(), index.engine

    class Held:
        def search(self, queries, topk):
            assert gate.wait(timeout=20)
            return engine.search(queries, topk)

    index._engine = Held()
    limits = ServerLimits(max_concurrent=1, max_waiting=1)
    with serve(index, limits) as one, serve(index, limits) as other:
        try:
            async with SearchPool([one, other], patience_s=0.2) as hasty, SearchPool([one, other]) as patient:
                asked = [asyncio.create_task(patient.search(["Oss"], 1)) for _ in range(12)]
                # Once one begins its second round both queues are full, and stay so.
                await asyncio.to_thread(wait_until, lambda: sum(each.num_asked for each in patient._servers) > 24)
                with pytest.raises(SearchFailed) as caught:
                    await hasty.search(["Oss"], 1)
                assert caught.value.kind == "overloaded"
                gate.set()
                assert await asyncio.gather(*asked) == [index.search(["Oss"], 1)] * 12
                assert patient.urls_down == []
        finally:
            gate.set()


async def test_a_rejected_request_is_sent_to_no_other_server(shared_index, serve):
    with serve(shared_index) as one, serve(shared_index) as other:
        async with SearchPool([one, other]) as pool:
            with pytest.raises(SearchFailed) as caught:
                await pool.search(["x"], 101)
            assert caught.value.kind == "rejected"
            assert sum(server.num_asked for server in pool._servers) == 1
            assert pool.urls_down == []


# ------------------------------------------------------------------------------------------------- how they are named


async def test_servers_of_different_indexes_are_refused(shared_index, tmp_path, serve):
    (tmp_path / "rows.jsonl").write_text('{"id": "1", "text": "another corpus"}')
    index = build_index(tmp_path / "rows.jsonl", tmp_path / "other")
    with serve(shared_index) as one, serve(index) as other:
        searcher = open_searcher(f"{one},{other}")
        with pytest.raises(BadInput, match=f"{other} serves another index"):
            await check_reachable(searcher)
        await searcher.close()


async def test_a_server_that_comes_back_with_another_index_stays_out(shared_index, tmp_path, serve, wait_until):
    (tmp_path / "rows.jsonl").write_text('{"id": "1", "text": "another corpus"}')
    index = build_index(tmp_path / "rows.jsonl", tmp_path / "other")
    with serve(shared_index) as one, serve(shared_index) as other, serve(index) as changed:
        async with SearchPool([one, other], probe_s=0.05) as pool:
            await pool.check()
            pool._servers[1].client = SearchClient(changed)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                pool._take_down(pool._servers[1], SearchFailed("it ended", kind="unreachable"))
                await asyncio.to_thread(wait_until, lambda: any("another index" in str(each.message) for each in said))
            assert pool.urls_down == [changed]


def test_one_url_is_a_client_several_are_a_pool(shared_index):
    kinds = {
        str(shared_index.path): LocalSearcher,
        "http://a:1/retrieve": SearchClient,
        "http://a:1, https://b:2/": SearchPool,
        "http://a:1,": SearchClient,  # as a script may write a list of one
    }
    for where, kind in kinds.items():
        searcher = open_searcher(where)
        assert type(searcher) is kind
        asyncio.run(searcher.close())


@pytest.mark.parametrize("where", ["http://a:1,http://a:1/", "http://a:1,b:2", "http://a:1,http://me:pw@b:2"])
def test_what_is_no_list_of_servers_is_refused(where):
    with pytest.raises(BadInput):
        open_searcher(where)


def test_the_option_may_be_repeated(shared_index, url, serve, free_urls):
    """In a process of its own, where a warning is shown as a person sees it."""
    with serve(shared_index) as other:
        named = [part for address in (free_urls[0], url, other) for part in ("--index", address)]
        command = [sys.executable, "-m", "quaere", "search", "Korrin", "--topk", "1", "--json", *named]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)[0]["hits"][0]["passage"]["doc_id"] == "coast/lighthouse.txt"
    assert done.stderr.startswith(f"quaere: the search server {free_urls[0]} cannot be reached")
    assert done.stderr.count("\n") == 1 and "2 of 3 servers are left" in done.stderr
