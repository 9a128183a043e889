"""Servers that other machines can reach: nothing without a key, and with it no more than on the loopback.

Requests go to an address of this machine that is not a loopback address, where it has one.
"""

import json
import socket
import threading
from contextlib import contextmanager

import httpx
import pytest

from quaere.errors import BadInput
from quaere.serving.model.app import Service
from quaere.serving.server import ServerSettings, make_model_server, make_search_server
from quaere.viewer.app import make_view_server
from quaere.viewer.run_folder import open_folder
from served import make_policy
from viewing import write_run

KEY = "s3cret"
SHOWN = {"authorization": f"Bearer {KEY}"}
JSON = {"content-type": "application/json"}
# Of each server: what is read, what is asked for, and one that is not there.
ROUTES = {
    "search": [("POST", "/retrieve", {"queries": ["Oss"]}), ("GET", "/nowhere", None)],
    "model": [
        (
            "POST",
            "/v1/chat/completions",
            {"model": "tiny", "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 2},
        ),
        ("POST", "/v1/completions", {"model": "tiny", "prompt": "Who?", "max_tokens": 2}),
        ("GET", "/v1/models", None),
        ("GET", "/nowhere", None),
    ],
    "viewer": [
        ("GET", "/", None),
        ("GET", "/run/alpha", None),
        ("GET", "/json/run/alpha", None),
        ("GET", "/static/viewer.js", None),
        ("POST", "/run/alpha/verdict", {"id": "c0", "verdict": "kept"}),
        ("GET", "/nowhere", None),
    ],
}
SERVERS = list(ROUTES)


def find_address(family, far):
    """The address that this machine would be reached at from `far`; no packet is sent. "" if it has none."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 9))
            return probe.getsockname()[0]
    except OSError:
        return ""


ADDRESS = find_address(socket.AF_INET, "198.51.100.1")
ADDRESS_6 = find_address(socket.AF_INET6, "2001:db8::1")
needs_address = pytest.mark.skipif(
    not ADDRESS or ADDRESS.startswith("127."), reason="this machine has no address beyond the loopback"
)


@pytest.fixture(scope="module")
def make(index, tmp_path_factory):
    """Makes one of the three servers."""
    runs = tmp_path_factory.mktemp("runs")
    write_run(runs / "alpha", num_steps=1)

    def make(kind, key, **settings):
        settings = ServerSettings(port=0, **settings)
        if kind == "search":
            return make_search_server(index, settings, key=key)
        if kind == "model":
            return make_model_server(Service(name="tiny", policy=make_policy()), settings, key=key)
        return make_view_server(open_folder(str(runs)), settings, key=key)

    return make


@contextmanager
def running(server):
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server.listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        assert not thread.is_alive()


def ask(port, route, headers=(), *, address=""):
    method, path, body = route
    host = address or ADDRESS
    url = f"http://[{host}]:{port}{path}" if ":" in host else f"http://{host}:{port}{path}"
    content = None if body is None else json.dumps(body).encode()
    return httpx.request(method, url, headers={**JSON, **dict(headers)}, content=content, timeout=30, trust_env=False)


@pytest.mark.parametrize("kind", SERVERS)
def test_no_server_listens_beyond_the_loopback_without_a_key(make, kind):
    hosts = ["0.0.0.0", "", *filter(None, (ADDRESS, ADDRESS_6)), *(["::"] if ADDRESS_6 else [])]
    for host in hosts:
        with pytest.raises(BadInput, match="an API key is required") as caught:
            make(kind, "", host=host)
        assert "QUAERE_API_KEY" in caught.value.hint


@needs_address
@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_on_the_loopback_is_not_reached_from_elsewhere(make, kind):
    with running(make(kind, "")) as port:
        for route in ROUTES[kind]:
            assert ask(port, route, address="127.0.0.1").status_code not in (401, 403)
            with pytest.raises(httpx.ConnectError):
                ask(port, route)


@needs_address
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("host", [ADDRESS, "0.0.0.0"], ids=["one address", "all"])
def test_every_route_needs_the_key(make, kind, host):
    wrong = [{}, {"authorization": "Bearer other"}, {"authorization": f"Basic {KEY}"}, {"cookie": f"quaere_view={KEY}"}]
    wrong += [{"authorization": f"Bearer {KEY} {KEY}"}, {"x-api-key": KEY}, {"authorization": "Bearer"}]
    wrong += [{"x-forwarded-for": "127.0.0.1", "forwarded": "for=127.0.0.1"}]
    with running(make(kind, KEY, host=host)) as port:
        for route in ROUTES[kind]:
            for headers in wrong:
                reply = ask(port, route, headers)
                assert reply.status_code == 401 and list(reply.json()) == ["error"], (route, headers)
                assert KEY not in reply.text
            assert ask(port, route, SHOWN).status_code not in (401, 403), route
        if kind != "viewer":
            assert ask(port, ("GET", "/health", None)).status_code == 200


@needs_address
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("host", [ADDRESS, "0.0.0.0"], ids=["one address", "all"])
def test_hosts_and_origins_count_with_the_key_as_well(make, kind, host):
    """A page whose name leads to this machine, in the browser of somebody who has the cookie."""
    with running(make(kind, KEY, host=host, allow_hosts=("search.lan",))) as port:
        own = f"{ADDRESS}:{port}"
        for route in ROUTES[kind]:
            for foreign in ("evil.example", f"{ADDRESS}.evil.example", "0.0.0.0", "192.0.2.254", f"evil.example@{own}"):
                if foreign == host:
                    continue  # it listens on all addresses, and was told so
                assert ask(port, route, {**SHOWN, "host": foreign}).status_code == 403, foreign
            for origin in ("https://evil.example", "null", f"http://{ADDRESS}:1", f"https://{own}.evil.example"):
                assert ask(port, route, {**SHOWN, "origin": origin}).status_code == 403, origin
            for allowed in (own, f"search.lan:{port}", f"localhost:{port}"):
                headers = {**SHOWN, "host": allowed, "origin": f"http://{allowed}"}
                assert ask(port, route, headers).status_code not in (401, 403), allowed


@needs_address
def test_a_key_in_the_address_becomes_a_cookie_of_this_server(make):
    with running(make("viewer", KEY, host=ADDRESS)) as port:
        reply = ask(port, ("GET", f"/run/alpha?api_key={KEY}", None))
        cookie = reply.headers["set-cookie"]
        assert (reply.status_code, reply.headers["location"]) == (303, "/run/alpha") and KEY not in cookie
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        shown = {"cookie": cookie.partition(";")[0]}
        assert ask(port, ("GET", "/run/alpha", None), shown).status_code == 200
        assert ask(port, ("GET", "/run/alpha", None), {**shown, "host": "evil.example"}).status_code == 403


@needs_address
@pytest.mark.skipif(not ADDRESS_6 or ADDRESS_6 == "::1", reason="this machine has no IPv6 address")
@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_of_all_addresses_answers_both_kinds(make, kind):
    with running(make(kind, KEY, host="::")) as port:
        for address in (ADDRESS, ADDRESS_6, "127.0.0.1", "::1"):
            route = ROUTES[kind][0]
            assert ask(port, route, address=address).status_code == 401, address
            assert ask(port, route, SHOWN, address=address).status_code == 200, address
            assert ask(port, route, {**SHOWN, "host": "evil.example"}, address=address).status_code == 403
