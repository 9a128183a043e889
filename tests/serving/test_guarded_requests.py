"""The guard by itself, without a server: what of a request reaches the application."""

import pytest

from quaere.errors import BadInput
from quaere.records import Passage
from quaere.serving.guard import Guard, Rules, key_cookie
from quaere.serving.model.retriever import _join
from quaere.serving.server import ServerSettings, bind, log, make_server, run_server

KEY = "s3cret"
HOSTS = frozenset({"localhost"})


async def ask(*messages, headers=(), more=(), rules=None, key="", query=b"", method="POST"):
    """Status and headers of the answer, and the bodies that the application saw; `more` may repeat a header."""
    seen, sent = [], []

    async def app(scope, receive, send):
        seen.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    waiting = [*messages] or [{"type": "http.request", "body": b"{}"}]

    async def receive():
        return waiting.pop(0)

    async def send(message):
        sent.append(message)

    given = {"host": "localhost", "content-type": "application/json", **dict(headers)}
    scope = {"type": "http", "method": method, "path": "/x", "query_string": query, "server": ("127.0.0.1", 80)}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in (*given.items(), *more)]
    guard = Guard(app, rules or Rules(HOSTS, frozenset(), 10), key, lambda status, line: {"error": line})
    await guard(scope, receive, send)
    assert guard._num_buffered == 0
    status = sent[0]["status"] if sent else None
    return status, {name.decode(): value.decode() for name, value in (sent[0]["headers"] if sent else ())}, seen


def body(content, more=False):
    return {"type": "http.request", "body": content, "more_body": more}


async def test_a_request_is_passed_on_whole_or_not_at_all():
    assert (await ask(body(b"[1,", True), body(b"2]")))[::2] == (200, [b"[1,2]"])
    assert (await ask(body(b"x" * 10)))[::2] == (200, [b"x" * 10])
    assert (await ask(body(b"x" * 6, True), body(b"x" * 5)))[::2] == (413, [])
    # Who hangs up in the middle is not answered, and nothing is done for him.
    assert (await ask(body(b"[1,", True), {"type": "http.disconnect"}))[::2] == (None, [])


@pytest.mark.parametrize(("length", "status"), [("10", 200), ("11", 413), ("9" * 5000, 413), ("ten", 200)])
async def test_a_body_that_says_to_be_too_large_is_not_read(length, status):
    assert (await ask(headers={"content-length": length}))[0] == status


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({}, b"", 401),
        ({"authorization": f"Bearer {KEY}"}, b"", 200),
        ({"authorization": "Bearer other"}, b"", 401),
        ({}, f"api_key={KEY}".encode(), 200),
        ({}, b"api_key=other", 401),
        ({"cookie": f"a=b; seen={key_cookie(KEY)}"}, b"", 200),
        ({"cookie": f"other={key_cookie(KEY)}"}, b"", 401),
        ({"cookie": f"seen={KEY}"}, b"", 401),  # the cookie is a hash of the key, never the key
        ({"cookie": f"seen={key_cookie(KEY)}", "authorization": "Bearer other"}, b"", 401),
    ],
)
async def test_a_key_comes_in_one_of_three_ways(headers, query, status):
    rules = Rules(HOSTS, frozenset(), 10, key_cookie="seen")
    assert (await ask(headers=headers, rules=rules, key=KEY, query=query))[0] == status


async def test_a_cookie_stands_for_the_key_only_where_it_may():
    assert (await ask(headers={"cookie": f"={key_cookie(KEY)}"}, key=KEY))[0] == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1"}, 200),  # the address it listens on
        ({"host": "127.0.0.2"}, 403),
        ({"host": "LocalHost:80", "origin": "http://localhost:80"}, 200),
        ({"origin": "https://app.example/"}, 200),
        ({"origin": "https://other.example"}, 403),
    ],
)
async def test_hosts_and_origins(headers, status):
    rules = Rules(HOSTS, frozenset({"https://app.example"}), 10)
    found, answered, _ = await ask(headers=headers, rules=rules)
    assert found == status
    allowed = headers.get("origin") == "https://app.example/"
    assert answered.get("access-control-allow-origin") == ("https://app.example" if allowed else None)
    asked_first, _, seen = await ask(headers={**headers, "content-type": "text/plain"}, rules=rules, method="OPTIONS")
    assert (asked_first, bool(seen)) == ((204, False) if allowed else (status, status == 200))


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize(
    "origins",
    [
        ("https://evil.example", "https://evil.example"),
        ("http://localhost", "https://evil.example"),
        ("https://app.example", "https://app.example"),
        ("", ""),
    ],
)
async def test_several_origins_are_refused_whatever_they_are(method, origins):
    rules = Rules(HOSTS, frozenset({"https://app.example"}), 10)
    found, answered, seen = await ask(more=[("origin", origin) for origin in origins], rules=rules, method=method)
    assert (found, seen) == (403, []) and "access-control-allow-origin" not in answered


@pytest.mark.parametrize(("method", "status"), [("POST", 415), ("PUT", 415), ("PATCH", 415), ("GET", 200)])
async def test_bodies_are_json(method, status):
    assert (await ask(headers={"content-type": "text/plain"}, method=method))[0] == status


def test_a_port_that_is_taken_is_said():
    with bind(ServerSettings(port=0), "") as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=f"port {port}: Address already in use"):
            bind(ServerSettings(port=port), "")
    with pytest.raises(BadInput, match="port 70000"):
        bind(ServerSettings(port=70000), "")


def test_a_server_runs_until_ctrl_c_and_leaves_nothing_behind(monkeypatch):
    server = make_server(lambda *_: None, ServerSettings(port=0), as_error=lambda status, line: None)
    url, handlers, ready = server.url, list(log.handlers), []

    def interrupted():
        assert len(log.handlers) == len(handlers) + 1  # requests are logged to the terminal meanwhile
        raise KeyboardInterrupt

    monkeypatch.setattr(server, "run", interrupted)
    run_server(server, ready.append)
    assert ready == [url]
    assert log.handlers == handlers
    assert server.listener.fileno() == -1


def test_passages_of_a_page_stand_in_its_order_under_its_title():
    later, first = (Passage(f"d#{at}", "d", "The Oss", text, at, at + 4) for at, text in ((50, "Last"), (0, "Once")))
    assert _join([later, first]) == "The Oss\n\nOnce\n\nLast"
    assert _join([Passage("d#0", "d", "", "Once", 0, 4)]) == "Once"
