"""The server and the client over a real socket."""

import asyncio
import json
import socket
import threading

import httpx
import pytest

from quaere import __version__
from quaere.errors import BadInput, SearchFailed
from quaere.records import Passage
from quaere.search.client import SearchClient
from quaere.search.index_build import build_index
from quaere.serving.search_app import ServerLimits
from quaere.serving.server import ServerSettings, make_search_server

# ------------------------------------------------------------------------------------------------------ the wire form


def post(url, content, **options):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    headers = {"Content-Type": "application/json", **options.pop("headers", {})}
    return httpx.post(f"{url}/retrieve", content=body, headers=headers, timeout=20, trust_env=False, **options)


def test_the_reply_has_the_form_others_expect(shared_index, url):
    reply = post(url, {"queries": ["Halm bridge", "xyzzy"], "topk": 1, "return_scores": True}).json()
    hit = shared_index.search(["Halm bridge"], 1)[0][0]
    assert reply == {
        "result": [
            [
                {
                    "document": {
                        "id": "rivers.md#0",
                        "contents": f'"The Oss"\n{hit.passage.text}',
                        "doc_id": "rivers.md",
                        "start": 0,
                        "end": hit.passage.end,
                        "place": "lines 1-5",
                        "heading": "",
                    },
                    "score": hit.score,
                }
            ],
            [],
        ]
    }


def test_without_scores_the_documents_stand_alone_and_three_are_the_default(url):
    reply = post(url, {"queries": ["the lighthouse at Korrin 東京"], "extra": "ignored"}).json()
    assert len(reply["result"][0]) == 3
    assert all("contents" in document and "score" not in document for document in reply["result"][0])


def test_verl_can_read_it(url):
    """The steps of verl's search tool: the first line is the title, the rest the text."""
    reply = post(url, {"queries": ["Korrin cliff"], "topk": 3, "return_scores": True}).json()
    lines = [item["document"]["contents"].split("\n") for item in reply["result"][0]]
    assert lines[0][0] == '"lighthouse"'
    assert lines[0][1] == "The lighthouse at Korrin stands on a cliff."


def test_health(shared_index, url):
    assert httpx.get(f"{url}/health", trust_env=False).json() == {
        "status": "ok",
        "version": __version__,
        "engine": "bm25",
        "fingerprint": shared_index.fingerprint,
        "num_documents": 3,
        "num_passages": 3,
    }


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        pytest.param(b'{"queries": ["x"], "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, id="deep"),
        ([], 422),
        ({}, 422),
        ({"queries": "one"}, 422),
        ({"queries": [7]}, 422),
        ({"queries": ["x"], "topk": "3"}, 422),
        ({"queries": ["x"], "topk": 0}, 422),
        ({"queries": ["x"], "topk": 101}, 422),
        ({"queries": ["x"] * 513}, 422),
        ({"queries": ["x" * 8193]}, 422),
        ({"queries": ["x" * 5_000_000]}, 413),
    ],
)
def test_bad_requests_get_one_line(url, content, status):
    reply = post(url, content)
    assert reply.status_code == status
    assert list(reply.json()) == ["error"]
    assert "\n" not in reply.json()["error"]
    assert post(url, {"queries": ["Oss"]}).status_code == 200


def test_other_pages_get_json_too(url):
    for reply in (httpx.get(f"{url}/retrieve", trust_env=False), httpx.get(f"{url}/nowhere", trust_env=False)):
        assert reply.status_code in (404, 405)
        assert "error" in reply.json()


def test_the_largest_allowed_request_is_answered(url):
    reply = post(url, {"queries": ["Oss"] * 512, "topk": 100})
    assert [len(documents) for documents in reply.json()["result"]] == [1] * 512


def test_a_broken_engine_is_a_500_and_the_server_lives(index, serve):
    class Broken:
        def search(self, queries, topk):
            raise ZeroDivisionError("oh")

    with serve(index) as url:
        good, index._engine = index.engine, Broken()
        reply = post(url, {"queries": ["Oss"]})
        assert (reply.status_code, list(reply.json())) == (500, ["error"])
        index._engine = good
        assert post(url, {"queries": ["Oss"]}).status_code == 200


# ----------------------------------------------------------------------------------------------------------- overload


async def test_overload_is_a_429_and_the_server_answers_afterwards(index, serve, wait_until):
    gate, entered, engine = threading.Event(), threading.Event(), index.engine

    class Held:
        def search(self, queries, topk):
            entered.set()
            assert gate.wait(timeout=20)
            return engine.search(queries, topk)

    index._engine = Held()
    with serve(index, ServerLimits(max_concurrent=1, max_waiting=2)) as url:
        try:
            async with httpx.AsyncClient(timeout=20, trust_env=False) as http:

                async def ask():
                    return await http.post(f"{url}/retrieve", json={"queries": ["Oss"]})

                first = asyncio.create_task(ask())
                await asyncio.to_thread(wait_until, entered.is_set)
                others = [asyncio.create_task(ask()) for _ in range(7)]
                await asyncio.to_thread(wait_until, lambda: sum(task.done() for task in others) == 5)
                refused = [task.result() for task in others if task.done()]
                assert [reply.status_code for reply in refused] == [429] * 5
                assert all(reply.headers["retry-after"] == "1" for reply in refused)
                async with SearchClient(url) as client:
                    with pytest.raises(SearchFailed) as caught:
                        await client.search(["Oss"], 1)
                    assert caught.value.kind == "overloaded"
                    assert (await client.health()).status == "ok"
                gate.set()
                replies = [await first, *(await asyncio.gather(*others))]
                assert sorted(reply.status_code for reply in replies) == [200] * 3 + [429] * 5
                assert (await ask()).status_code == 200
        finally:
            gate.set()


async def test_many_clients_at_once_get_what_the_index_says(shared_index, url):
    queries = ["Halm bridge", "Korrin", "首都", "xyzzy", "lamp 1850"] * 20
    async with SearchClient(url, max_connections=16) as client:
        found = await asyncio.gather(*(client.search([query], 2) for query in queries))
    assert [hits for (hits,) in found] == shared_index.search(queries, 2)


# ---------------------------------------------------------------------------------------------------------- round trip


async def test_passages_come_back_whole(tmp_path, serve):
    rows = [
        {"id": "a#1", "title": 'A "quoted" title"', "text": "first word\nsecond line\n"},
        {"id": "b", "title": "", "text": "word without a title"},
        {"id": "c", "text": '"word"\nin quotes\r\n'},
        {"id": "d", "title": "Long", "text": "word é東. " * 400},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    index = build_index(tmp_path / "rows.jsonl", tmp_path / "index")
    with serve(index) as url:
        async with SearchClient(f"{url}/retrieve/") as client:
            found = await client.search(["word"], 100)
    assert found == index.search(["word"], 100)
    assert {hit.passage for hit in found[0]} == set(index.passages())
    assert len(index) > 5


# ------------------------------------------------------------------------------------------------- servers that fail


@pytest.fixture
def odd_server():
    """A server that gives every request the same raw answer; set it with `odd_server.answer = b"..."`."""

    class Odd:
        answer = b""

        def __init__(self):
            self.listener = socket.create_server(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
            self.num_requests = 0
            threading.Thread(target=self.run, daemon=True).start()

        def run(self):
            while True:
                try:
                    connection, _ = self.listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    self.num_requests += 1
                    connection.sendall(self.answer)

    odd = Odd()
    yield odd
    odd.listener.close()


def http_answer(body, status="200 OK"):
    head = f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (http_answer(b"{}"), "broken"),
        (http_answer(b"<html>"), "broken"),
        (http_answer(b"\xff"), "broken"),
        pytest.param(http_answer(b'{"result": [[]], "more": ' + b"[" * 3000), "broken", id="deep"),
        (http_answer(b'{"result": []}'), "broken"),
        (http_answer(b'{"result": [[{"id": "1", "contents": "x"}]]}'), "broken"),
        (http_answer(b" " * 5000), "broken"),
        (http_answer(b"oh", "500 Internal Server Error"), "broken"),
        (http_answer(b"", "302 Found"), "broken"),
        (http_answer(b'{"error": "topk"}', "422 Unprocessable"), "rejected"),
        (http_answer(b"", "429 Too Many Requests"), "overloaded"),
        (http_answer(b"", "503 Service Unavailable"), "overloaded"),
        (http_answer(b'{"result"')[:-3], "unreachable"),
        (b"", "unreachable"),
        (b"not HTTP at all\r\n\r\n", "unreachable"),
    ],
)
async def test_failures_have_a_kind_and_nothing_is_tried_twice(odd_server, answer, kind):
    odd_server.answer = answer
    async with SearchClient(odd_server.url, max_response_bytes=4000) as client:
        with pytest.raises(SearchFailed) as caught:
            await client.search(["x"], 1)
    assert caught.value.kind == kind
    assert odd_server.url in str(caught.value)
    assert "\n" not in str(caught.value)
    assert odd_server.num_requests == 1


async def test_an_answer_may_have_the_largest_size_and_not_a_byte_more(odd_server):
    body = b'{"result": [[]]}'
    odd_server.answer = http_answer(body)
    async with SearchClient(odd_server.url, max_response_bytes=len(body)) as client:
        assert await client.search(["x"], 1) == [[]]
        odd_server.answer = http_answer(body + b" ")
        with pytest.raises(SearchFailed, match=f"answered with more than {len(body)} bytes"):
            await client.search(["x"], 1)


@pytest.mark.parametrize(("status", "asks"), [("401 Unauthorized", True), ("403 Forbidden", True), ("404 No", False)])
async def test_a_server_that_wants_a_key_says_how_to_give_one(odd_server, status, asks):
    odd_server.answer = http_answer(b"no", status)
    async with SearchClient(odd_server.url) as client:
        with pytest.raises(SearchFailed, match=rf"refused the request \({status[:3]}\): no") as caught:
            await client.search(["x"], 1)
    assert ("export QUAERE_SEARCH_KEY=" in caught.value.hint) is asks


async def test_nobody_listening_is_unreachable():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with SearchClient(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(SearchFailed) as caught:
            await client.search(["x"], 1)
    assert caught.value.kind == "unreachable"
    assert f"--port {port}" in caught.value.hint


async def test_a_server_that_never_answers_is_a_timeout(deaf_port):
    async with SearchClient(f"http://127.0.0.1:{deaf_port}", timeout_s=0.2) as client:
        with pytest.raises(SearchFailed) as caught:
            await client.search(["x"], 1)
    assert caught.value.kind == "timeout"


async def test_a_server_that_sends_no_offsets_is_understood(odd_server):
    document = {"id": 7, "contents": '"The Oss"\nIt rises.'}
    odd_server.answer = http_answer(json.dumps({"result": [[{"document": document, "score": 2}]]}).encode())
    async with SearchClient(odd_server.url) as client:
        ((hit,),) = await client.search(["x"], 1)
    assert hit.passage == Passage(id="7", doc_id="7", title="The Oss", text="It rises.", start=0, end=9)
    assert hit.score == 2.0


def reply_of(offsets):
    document = {"id": "7", "contents": '"Oss"\nIt rises.', **offsets}
    return http_answer(json.dumps({"result": [[{"document": document, "score": 2}]]}).encode())


@pytest.mark.parametrize(
    "offsets",
    [{"start": -5}, {"start": 10**25}, {"end": 2**53 + 1}, {"start": 9, "end": 8}, {"end": -1}, {"start": 1.5}],
)
async def test_offsets_that_are_no_places_in_a_document_are_a_broken_answer(odd_server, offsets):
    odd_server.answer = reply_of(offsets)
    async with SearchClient(odd_server.url) as client:
        with pytest.raises(SearchFailed) as caught:
            await client.search(["x"], 3)
    assert caught.value.kind == "broken"
    assert "\n" not in str(caught.value)


async def test_the_largest_offset_is_understood(odd_server):
    odd_server.answer = reply_of({"start": 2**53 - 9, "end": 2**53})
    async with SearchClient(odd_server.url) as client:
        ((hit,),) = await client.search(["x"], 3)
    assert (hit.passage.start, hit.passage.end) == (2**53 - 9, 2**53)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "127.0.0.1:8000", "http://x:port"])
def test_what_is_not_a_url_is_refused(url):
    with pytest.raises(BadInput):
        SearchClient(url)


# ------------------------------------------------------------------------------------------------------------ sockets


def test_a_port_in_use_is_said_in_one_line(shared_index, deaf_port):
    with pytest.raises(BadInput, match=str(deaf_port)):
        make_search_server(shared_index, ServerSettings(port=deaf_port))
    with pytest.raises(BadInput):
        make_search_server(shared_index, ServerSettings(port=70_000))
    with pytest.raises(BadInput):
        make_search_server(shared_index, ServerSettings(host="no.such.host.invalid", port=0))


@pytest.mark.parametrize(
    "limits", [ServerLimits(max_concurrent=0), ServerLimits(max_waiting=-1), ServerLimits(max_topk=0)]
)
def test_impossible_limits_are_refused(shared_index, limits):
    with pytest.raises(BadInput):
        make_search_server(shared_index, ServerSettings(port=0), limits=limits)
