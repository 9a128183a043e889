"""Slow clients, half-open ones, and more of them than there are descriptors."""

import asyncio
import contextlib
import json
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import httpx
import pytest

from quaere.errors import BadInput
from quaere.serving import server as server_module
from quaere.serving.server import ACCEPTED_AT_ONCE, Listener, connection_limit

JSON = {"content-type": "application/json"}
HEAD = "POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = f"{HEAD}Content-Length: 100\r\n\r\n{{"
UNFINISHED = ["", "POST /retr", HEAD, BODY, f"{HEAD}Transfer-Encoding: chunked\r\n\r\n1"]


def connect(url, sent="", **options):
    host, port = url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=30, **options)
    connection.sendall(sent.encode())
    return connection


def ask(url):
    body = json.dumps({"queries": ["Oss"]})
    return httpx.post(f"{url}/retrieve", headers=JSON, content=body, timeout=30, trust_env=False)


def was_dropped(connection):
    """Waits until the server has closed the connection; a server that never does is a time-out."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


# ----------------------------------------------------------------------------------------------------------- deadlines


@pytest.fixture
def _looks_often(monkeypatch):
    """Deadlines are looked at ten times a second, not once."""
    monkeypatch.setattr("quaere.serving.server.TICKS_PER_CHECK", 1)


@pytest.mark.usefixtures("_looks_often")
@pytest.mark.parametrize("sent", UNFINISHED, ids=["nothing", "a line", "a head", "a body", "a chunk"])
def test_a_client_that_does_not_finish_is_dropped(serve, sent):
    with serve(head_timeout_s=0.3, transfer_timeout_s=0.3) as server, connect(server.url, sent) as waiting:
        assert ask(server.url).status_code == 200
        assert was_dropped(waiting)


def test_a_client_that_drips_is_dropped(serve):
    """A byte now and then does not buy time."""
    with serve(head_timeout_s=0.3) as server, connect(server.url) as dripping:

        def drip():
            for letter in HEAD * 100:
                try:
                    dripping.sendall(letter.encode())
                except OSError:
                    return
                time.sleep(0.05)

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        assert was_dropped(dripping)
        thread.join(timeout=30)
        assert not thread.is_alive()


@pytest.mark.usefixtures("_looks_often")
def test_a_body_that_goes_on_after_the_answer_is_dropped(serve):
    """The key is wrong, so the answer comes before the body; what follows is not waited for either."""
    with serve(key="s3cret", transfer_timeout_s=0.3) as server, connect(server.url, BODY) as waiting:
        answer = b""
        while piece := waiting.recv(65536):  # to the end, which the server makes
            answer += piece
        assert answer.startswith(b"HTTP/1.1 401")


@pytest.mark.usefixtures("_looks_often")
def test_a_client_that_does_not_read_is_dropped(serve):
    sent = []

    async def endless(scope, receive, send):
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not server.should_exit and server.server_state.connections:
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            sent.append(65536)
            await asyncio.sleep(0)

    whole = f"{HEAD}Content-Length: 2\r\n\r\n{{}}"
    with serve(endless, transfer_timeout_s=0.3) as server, connect(server.url, whole):
        wait_until(lambda: sent and not server.server_state.connections)


@pytest.mark.usefixtures("_looks_often")
def test_a_slow_answer_is_waited_for(serve):
    async def slow(scope, receive, send):
        if scope["type"] != "http":
            return
        await asyncio.sleep(0.6)  # deadlines are looked at several times after each has passed
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    with serve(slow, head_timeout_s=0.1, transfer_timeout_s=0.1) as server:
        assert ask(server.url).text == "done"


def waits_for(server, expected_s):
    """Waits until the only client of the server has this many seconds to act."""
    wait_until(lambda: len(server.server_state.connections) == 1)
    (connection,) = server.server_state.connections
    wait_until(lambda: connection.due - connection.since == pytest.approx(expected_s))


def test_after_an_answer_a_client_has_the_time_of_a_head_for_its_next_request(serve):
    with serve(head_timeout_s=70, transfer_timeout_s=110) as server, httpx.Client(trust_env=False) as client:
        assert client.get(f"{server.url}/health").status_code == 200
        waits_for(server, 70)


def test_an_answer_has_its_own_time_to_be_read_and_then_the_connection_is_idle(serve):
    """More than the buffers of the system hold, so that the end is still unread when the application is done."""
    size = 16 << 20

    async def large(scope, receive, send):
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
            await send({"type": "http.response.body", "body": b"x" * size})

    whole = f"{HEAD}Content-Length: 2\r\n\r\n{{}}"
    with serve(large, head_timeout_s=70, transfer_timeout_s=110) as server, connect(server.url, whole) as client:
        waits_for(server, 110)
        num_read = 0
        while num_read < size:
            num_read += len(client.recv(1 << 20))
        waits_for(server, 70)


def test_a_head_without_end_is_dropped(serve):
    with serve() as server, connect(server.url, HEAD) as waiting:
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            waiting.sendall(b"X-More: x\r\n" * 10_000_000)
        assert ask(server.url).status_code == 200


# --------------------------------------------------------------------------------------------------- many connections


@pytest.mark.parametrize("sent", UNFINISHED, ids=["nothing", "a line", "a head", "a body", "a chunk"])
def test_half_open_connections_keep_nobody_out(serve, sent):
    """With time-outs that never come, there is room for the next client all the same: the oldest has to go."""
    with serve(max_connections=10, head_timeout_s=1e6, transfer_timeout_s=1e6) as server:
        waiting = [connect(server.url, sent) for _ in range(40)]
        assert ask(server.url).status_code == 200
        wait_until(lambda: len(server.server_state.connections) <= 10)
        if "\r\n\r\n" not in sent:  # of whole heads, one that was not read yet may have to go before the oldest
            assert was_dropped(waiting[0])
        for connection in waiting:
            connection.close()


def test_who_has_asked_before_stays_when_others_never_ask(serve):
    with serve(max_connections=10, head_timeout_s=1e6) as server, httpx.Client(trust_env=False, timeout=30) as known:
        assert known.get(f"{server.url}/health").status_code == 200
        (connection,) = server.server_state.connections
        waiting = [connect(server.url) for _ in range(40)]
        wait_until(lambda: was_dropped(waiting[30 - 1]))
        assert connection in server.server_state.connections
        for one in waiting:
            one.close()


def test_with_all_connections_at_work_another_is_told_so(serve):
    gate = threading.Event()

    async def held(scope, receive, send):
        if scope["type"] == "http":
            await asyncio.to_thread(gate.wait, 30)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"done"})

    with serve(held, max_connections=3) as server:
        working = [connect(server.url, f"{HEAD}Content-Length: 2\r\n\r\n{{}}") for _ in range(3)]
        wait_until(lambda: len(server.server_state.tasks) == 3)
        with connect(server.url) as another:
            assert another.recv(4096).startswith(b"HTTP/1.1 503")
        gate.set()
        for connection in working:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            connection.close()


def test_three_hundred_half_open_clients_and_128_descriptors(index, tmp_path):
    """What was found: nobody was answered, and 26 MB of tracebacks were written in 20 s."""
    command = [sys.executable, "-m", "quaere", "serve-search", "--index", str(index.path), "--port", "0"]
    limited = ["sh", "-c", 'ulimit -n 128 && exec "$@"', "sh", *command]
    log = tmp_path / "log"
    with log.open("w") as stderr:
        server = subprocess.Popen(limited, stderr=stderr)
    waiting = []
    try:
        wait_until(lambda: "serving 1 passage " in log.read_text() or server.poll() is not None)
        url = log.read_text().split(" at ")[1].split("/retrieve")[0]
        for number in range(300):
            try:
                waiting.append(connect(url, UNFINISHED[number % 2 + 1]))
            except ConnectionError:  # dropped while it was still being made
                continue
            if number % 100 == 99:
                assert ask(url).status_code == 200
        assert ask(url).status_code == 200
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=30) == 0
    finally:
        server.kill()
        server.wait()
        for connection in waiting:
            connection.close()
    said = log.read_text()
    assert "Traceback" not in said
    assert len(said.splitlines()) < 400


@pytest.mark.parametrize(("soft", "limit"), [(128, 128 - 20 - 64), (1024, 940), (4096, 1024), (-1, 1024)])
def test_the_limit_of_connections_is_below_that_of_open_files(monkeypatch, soft, limit):
    monkeypatch.setattr(server_module.resource, "getrlimit", lambda kind: (soft, soft))
    monkeypatch.setattr(server_module, "os", SimpleNamespace(listdir=lambda folder: range(20)))
    assert resource.RLIM_INFINITY == -1
    assert connection_limit(1024) == limit


def test_too_few_open_files_are_said(monkeypatch):
    monkeypatch.setattr(server_module.resource, "getrlimit", lambda kind: (64, 64))
    with pytest.raises(BadInput, match="the limit of open files is 64") as caught:
        connection_limit(1024)
    assert caught.value.hint == "ulimit -n 1024"


async def test_a_burst_is_accepted_in_turns():
    """asyncio asks until there is no more; the rest of a burst waits for the next turn of the loop."""
    with Listener(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        listener.setblocking(False)
        clients = [socket.create_connection(listener.getsockname()) for _ in range(3 * ACCEPTED_AT_ONCE // 2)]
        accepted = []
        for expected in (ACCEPTED_AT_ONCE, len(clients)):
            with contextlib.suppress(BlockingIOError):
                while True:
                    accepted.append(listener.accept()[0])
            assert len(accepted) == expected
            await asyncio.sleep(0)
        for connection in [*clients, *accepted]:
            connection.close()
