"""Who is answered: Host, Origin, key, content type and size. The search server stands for every server."""

import json
import logging
import re
import socket

import httpx
import pytest

from quaere.cli.main import main
from quaere.errors import BadInput
from quaere.serving.guard import name_of
from quaere.serving.server import ServerSettings, bind

BODY = json.dumps({"queries": ["Oss"]})
JSON = {"content-type": "application/json"}
FOREIGN_HOSTS = [
    "evil.example",
    "evil.example:8000",
    "127.0.0.1.evil.example",
    "localhost.evil.example:80",
    "127.0.0.1@evil.example",
    "evil.example@127.0.0.1",
    "192.0.2.7",
    "[2001:db8::1]:8000",
    "127.0.0.1, evil.example",
]
FOREIGN_ORIGINS = ["https://evil.example", "http://127.0.0.1:1", "null", "http://localhost.evil.example", "file://"]


def ask(url, headers=(), method="POST", path="/retrieve", content=BODY):
    headers = {**JSON, **dict(headers)}
    return httpx.request(method, url + path, headers=headers, content=content, timeout=20, trust_env=False)


def ask_raw(url, request):
    """The status of the answer to these bytes."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(request)
        return int(connection.recv(4096).split()[1])


# -------------------------------------------------------------------------------------------------- hosts and origins


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_foreign_host_is_refused(url, host):
    """A page whose name was made to point at this machine (DNS rebinding) sends its own name as Host."""
    for method, path in (("POST", "/retrieve"), ("GET", "/health"), ("GET", "/nowhere")):
        reply = ask(url, {"host": host}, method, path)
        assert reply.status_code == 403
        assert "--allow-host" in reply.json()["error"]


def test_no_host_and_two_hosts_are_refused(url):
    assert ask_raw(url, b"GET /health HTTP/1.0\r\n\r\n") == 403
    assert ask_raw(url, b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n") == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"])
def test_this_machine_may_be_called_by_its_names(url, host):
    assert ask(url, {"host": host}).status_code == 200


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_a_foreign_origin_is_refused(url, origin):
    for method, path in (("POST", "/retrieve"), ("GET", "/health"), ("OPTIONS", "/retrieve")):
        reply = ask(url, {"origin": origin}, method, path)
        assert reply.status_code == 403
        assert "access-control-allow-origin" not in reply.headers


def test_a_page_of_its_own_is_answered(url):
    assert ask(url, {"origin": url}).status_code == 200


def test_hosts_and_origins_can_be_let_in(serve):
    with serve(allow_hosts=("search.lan",), allow_origins=("https://app.example/",)) as server:
        assert ask(server.url, {"host": "search.lan:8000"}).status_code == 200
        assert ask(server.url, {"host": "other.lan:8000"}).status_code == 403
        reply = ask(server.url, {"origin": "https://app.example"})
        assert reply.status_code == 200
        assert reply.headers["access-control-allow-origin"] == "https://app.example"
        assert ask(server.url, {"origin": "https://other.example"}).status_code == 403
        assert "access-control-allow-origin" not in ask(server.url).headers


def test_a_browser_may_ask_first_and_needs_the_key_for_the_rest(serve):
    with serve(key="s3cret", allow_origins=("https://app.example",)) as server:
        asked = {"origin": "https://app.example", "access-control-request-method": "POST"}
        reply = ask(server.url, asked, "OPTIONS", content=b"")
        assert reply.status_code == 204
        assert "content-type" in reply.headers["access-control-allow-headers"]
        assert ask(server.url, asked).status_code == 401


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("LocalHost:8000", "localhost"),
        ("[::1]:8000", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("a@b", ""),
        ("a b", ""),
        ("a/b", ""),
        ("a:b", ""),
        ("", ""),
    ],
)
def test_the_name_in_a_host_header(header, name):
    assert name_of(header) == name


# ----------------------------------------------------------------------------------------------- keys, types and sizes


def test_a_key_is_asked_for(serve):
    with serve(key="s3cret") as server:
        assert ask(server.url, method="GET", path="/health").status_code == 200
        for headers in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "Basic s3cret"},
            {"api_key": "s3cret"},
        ):
            reply = ask(server.url, headers)
            assert (reply.status_code, list(reply.json())) == (401, ["error"])
        assert ask(server.url, path="/retrieve?api_key=wrong").status_code == 401
        assert ask(server.url, {"authorization": "Bearer s3cret"}).status_code == 200
        assert ask(server.url, path="/retrieve?api_key=s3cret").status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
def test_a_body_must_say_that_it_is_json(url, kind):
    """What a form or a page without permission can send is none of these."""
    assert ask(url, {"content-type": kind}).status_code == 415


def test_a_charset_does_no_harm(url):
    assert ask(url, {"content-type": "application/JSON; charset=utf-8"}).status_code == 200


def test_a_body_is_bounded_whether_or_not_it_says_its_size(url):
    large = b" " * (5 << 20)
    pieces = (b" " * 65536 for _ in range(80))
    for content in (large, pieces):
        reply = ask(url, content=content)
        assert reply.status_code == 413
        assert list(reply.json()) == ["error"]
    assert ask(url).status_code == 200


def test_all_bodies_together_are_bounded(serve, monkeypatch):
    monkeypatch.setattr("quaere.serving.guard.BUFFERED_BODIES", 0)
    with serve() as server:
        assert ask(server.url).status_code == 429


def test_a_search_may_have_four_mebibytes_and_not_a_byte_more(url):
    large = b" " * (4 << 20)
    assert ask(url, content=large).status_code != 413
    assert ask(url, content=large + b" ").json()["error"] == "the request is larger than 4194304 bytes"


# -------------------------------------------------------------------------------------------------------------- binding


def test_a_port_can_be_taken_again_right_after_its_server_has_ended():
    """The system keeps the connection that the server has closed for a minute more."""
    with bind(ServerSettings(port=0), key="") as listener:
        listener.listen()
        address = listener.getsockname()
        with socket.create_connection(address) as client:
            socket.socket.accept(listener)[0].close()
            assert client.recv(1) == b""
    bind(ServerSettings(port=address[1]), key="").close()


def test_the_url_of_an_ipv6_address_has_brackets(serve):
    try:
        starting = serve(host="::1")
    except BadInput:
        pytest.skip("this machine has no IPv6")
    with starting as server:
        assert server.url == f"http://[::1]:{server.listener.getsockname()[1]}"


@pytest.mark.parametrize("host", ["0.0.0.0", ""])
def test_other_machines_are_let_in_with_a_key_only(host):
    with pytest.raises(BadInput, match="an API key is required") as caught:
        bind(ServerSettings(host=host, port=0), "")
    assert "QUAERE_API_KEY" in caught.value.hint
    bind(ServerSettings(host=host, port=0), "s3cret").close()


def test_the_commands_refuse_it_in_one_line(index, monkeypatch, capsys):
    monkeypatch.delenv("QUAERE_API_KEY", raising=False)
    for what in (["serve-search", "--index", str(index.path)], ["serve", "--model", "./nowhere"]):
        assert main([*what, "--host", "0.0.0.0", "--port", "0"]) == 2
        said = capsys.readouterr().err
        assert "an API key is required" in said and said.count("\n") == 2
        assert main([*what, "--api-key", "s3cret"]) == 2
        said = capsys.readouterr().err
        assert "--api-key-file" in said and "s3cret" not in said


def test_a_key_file_that_cannot_be_used_is_said(index, tmp_path, capsys):
    empty, odd, missing = (tmp_path / name for name in ("empty", "odd", "missing"))
    empty.write_text("\n")
    odd.write_bytes(b"s3cret\xe9")
    for file in (empty, odd, missing):
        assert main(["serve-search", "--index", str(index.path), "--api-key-file", str(file)]) == 2
        said = capsys.readouterr().err
        assert str(file) in said and "s3cret" not in said


# -------------------------------------------------------------------------------------------------------------- the log


def test_one_line_a_request_and_nothing_of_the_query(serve, logged):
    with serve(key="s3cret") as server:
        ask(server.url, {"authorization": "Bearer s3cret"})
        ask(server.url, path="/retrieve?api_key=s3cret")
        ask(server.url, path="/no%0awhere")
        assert ask_raw(server.url, b"\x16\x03\x01 this is no HTTP\r\n\r\n") == 400
    lines = [record.getMessage() for record in logged]
    assert [re.sub(r"\d+ ms", "N ms", line) for line in lines] == [
        "127.0.0.1 POST /retrieve 200 N ms",
        "127.0.0.1 POST /retrieve 200 N ms",
        "127.0.0.1 POST /no%0awhere 401 N ms",
        "127.0.0.1 - 400 not HTTP",
    ]


def test_an_application_that_fails_is_one_line_and_a_500(serve, logged):
    async def broken(scope, receive, send):
        if scope["type"] == "http":
            raise ZeroDivisionError("oh\nno")

    with serve(broken) as server:
        reply = ask(server.url)
    assert (reply.status_code, reply.json()) == (500, {"error": "the server failed: ZeroDivisionError"})
    (record,) = [record for record in logged if record.levelno >= logging.ERROR and "lifespan" not in record.msg]
    assert "failed: ZeroDivisionError at test_guard.py" in record.getMessage()
    assert record.exc_info is None and "\n" not in record.getMessage()


def test_a_client_that_hangs_up_in_the_middle_leaves_no_traceback(serve, logged):
    with serve() as server:
        host, port = server.url.removeprefix("http://").split(":")
        head = (
            f"POST /retrieve HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
        )
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + b'{"queries"')
        assert ask(server.url).status_code == 200
    assert not any(record.exc_info for record in logged)
