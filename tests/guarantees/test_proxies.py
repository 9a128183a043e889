"""Proxies of the environment: none gets what is meant for this machine, and a wrong one is one line."""

import socket
import threading
from contextlib import contextmanager, suppress

import pytest

from asked import write_documents
from quaere.cli.main import main
from quaere.endpoint import open_client
from quaere.errors import BadInput, QuaereError
from quaere.policies.tinker import answers
from quaere.policies.vllm import VllmServer

LOCAL, ELSEWHERE = "http://127.0.0.1:9", "http://192.0.2.1:9"
VARIABLES = ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return str(write_documents(tmp_path_factory.mktemp("proxies")).path)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    for name in (*VARIABLES, *map(str.lower, VARIABLES)):
        monkeypatch.setenv(name, "")  # so that it is as before afterwards, even if a test sets it
        monkeypatch.delenv(name)


@contextmanager
def proxy():
    """Its URL, and the first bytes of every connection, which it then closes."""
    heard = []

    def listen():
        with suppress(OSError):  # closed
            while True:
                connection, _ = listening.accept()
                with connection:
                    heard.append(connection.recv(1000))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=listen, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", heard
        listening.shutdown(socket.SHUT_RDWR)


def request(kind, url, index, runs):
    """One request to a server that is not there."""
    if kind == "trainer":
        assert not answers(url)
        return
    if kind == "engine":
        with pytest.raises(QuaereError):
            VllmServer(url).models()
        return
    asked = ["ask", "When?", "--index", index, "--runs", str(runs), "--model", f"openai:m@{url}/v1"]
    places = {"server": url, "web": f"web:searxng@{url}", "mcp": f"mcp:{url}/mcp"}
    assert main(asked if kind == "model" else ["search", "Oslo", "--search", places[kind]]) == 2


@pytest.mark.parametrize("kind", ["server", "web", "mcp", "model", "engine", "trainer"])
def test_what_is_meant_for_this_machine_goes_to_no_proxy(kind, index, tmp_path, monkeypatch, capsys):
    if kind == "mcp":
        pytest.importorskip("mcp_types", reason="needs the extra mcp")
    with proxy() as (url, heard):
        monkeypatch.setenv("HTTP_PROXY", url)
        request(kind, LOCAL, index, tmp_path)
        assert heard == []
        request(kind, ELSEWHERE, index, tmp_path)
        assert heard and ELSEWHERE.encode() in heard[0]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HTTP_PROXY", "ftp://me:s3cret@proxy", "one is not a URL of the right kind"),
        ("HTTP_PROXY", "http://me:s3/cret@proxy", "one is not a URL of the right kind"),
        ("SSL_CERT_FILE", "/no/such/file", "No such file or directory"),
    ],
)
@pytest.mark.parametrize("kind", ["server", "model"])
def test_a_wrong_one_is_one_line(kind, name, value, said, index, tmp_path, monkeypatch, capsys):
    import httpx
    import httpx._transports.default as transports

    monkeypatch.setenv(name, value)
    # Tests share one context otherwise (conftest.py), which was made before.
    monkeypatch.setattr(transports, "create_ssl_context", httpx.create_ssl_context)
    request(kind, ELSEWHERE, index, tmp_path)
    shown = capsys.readouterr().err
    (line,) = [line for line in shown.splitlines() if line.startswith("quaere: ")]
    assert line.startswith("quaere: the proxy or certificates that the environment names cannot be used: ")
    assert said in line and "Traceback" not in shown and "s3" not in shown


def test_a_library_that_a_proxy_needs_is_named():
    def make(trust_env):
        raise ImportError("the package socksio is not installed")

    with pytest.raises(BadInput, match="socksio is not installed"):
        open_client(make, ELSEWHERE)
