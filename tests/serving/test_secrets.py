"""Twelve secrets, each placed where people place them: none is found in a file, a log, a terminal or a process list."""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from quaere.cli.main import main
from quaere.endpoint import read_secret
from quaere.errors import BadInput, SearchFailed, hide_logins
from quaere.runs import Run
from quaere.search.client import SearchClient
from quaere.search.wire import Health

SECRETS = {
    name: f"{name}-7Hq2"
    for name in (
        "serverenv",  # QUAERE_API_KEY of a server
        "serverfile",  # --api-key-file of a server
        "wrongkey",  # what a client shows a server instead
        "querykey",  # the same in the query of a URL
        "searchkey",  # QUAERE_SEARCH_KEY
        "searchfile",  # QUAERE_SEARCH_KEY_FILE
        "searchlogin",  # the password in QUAERE_SEARCH_LOGIN
        "indexurl",  # a password in --index
        "seturl",  # a password in --set search_url
        "yamlurl",  # a password in search_url of a config file
        "modelurl",  # a password in an endpoint's URL
        "modelkey",  # OPENAI_API_KEY
    )
}
CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["Oss"]}}</tool_call>'


def assert_nowhere(*texts, folder=None):
    """None of the secrets is in these texts, nor in any file of the folder; nor as Basic authentication writes them."""
    parts = {name: secret[:-2] for name, secret in SECRETS.items()}  # a cut one is one, too
    files = [path for path in folder.rglob("*") if path.is_file()] if folder else []
    held = [text.encode() for text in texts] + [path.read_bytes() for path in files]
    for name, secret in parts.items():
        for form in (secret.encode(), base64.b64encode(f"me:{secret}".encode())):
            assert not any(form in one for one in held), name


@contextmanager
def repeating():
    """A search server and a chat endpoint that fail and say in their answer what they were sent."""

    async def health(request):
        return JSONResponse(msgspec.to_builtins(Health("ok", "", "", "", 1, 1)))

    async def fail(request):
        # As long as what is shown of an answer, so that half of the key would be cut off.
        sent = request.headers.get("authorization", "")
        return PlainTextResponse(f"{sent} {'.' * 160} {sent} {'.' * 50} {sent}", 500)

    async def write(request):
        asked = json.loads(await request.body())["messages"]
        if len(asked) > 2:
            return await fail(request)
        choice = {"message": {"role": "assistant", "content": CALL}, "finish_reason": "stop"}
        return JSONResponse({"choices": [choice]})

    routes = [Route("/health", health), Route("/retrieve", fail, methods=["POST"])]
    app = Starlette(routes=[*routes, Route("/v1/chat/completions", write, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(timeout=20)


@contextmanager
def started(command, log, env):
    """A command of ours that serves, once it answers; gives its process and its URL."""
    with log.open("w") as stderr:
        process = subprocess.Popen([sys.executable, "-m", "quaere", *command], stderr=stderr, env=env)
    try:
        deadline = time.monotonic() + 60
        while " at http" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield process, log.read_text().split(" at ")[1].split("/retrieve")[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)


@pytest.mark.parametrize("given", ["serverenv", "serverfile"])
def test_the_key_of_a_server(index, tmp_path, given):
    key, file = SECRETS[given], tmp_path / "key"
    file.write_text(f"{key}\n")
    command = ["serve-search", "--index", str(index.path), "--port", "0"]
    command += ["--api-key-file", str(file)] if given == "serverfile" else []
    env = {**os.environ, "QUAERE_API_KEY": key if given == "serverenv" else SECRETS["wrongkey"]}
    (tmp_path / "work").mkdir()
    log = tmp_path / "work" / "log"
    with started(command, log, env) as (process, url):
        shown = Path(f"/proc/{process.pid}/cmdline").read_text() if Path("/proc").is_dir() else ""
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
            wrong = client.post("/retrieve", json={}, headers={"authorization": f"Bearer {SECRETS['wrongkey']}"})
            typed = client.get(f"/retrieve?api_key={SECRETS['querykey']}")
            right = client.post("/retrieve", json={"queries": ["Oss"]}, headers={"authorization": f"Bearer {key}"})
        assert (wrong.status_code, typed.status_code, right.status_code) == (401, 401, 200)
    assert "POST /retrieve 401" in log.read_text()
    assert_nowhere(shown, wrong.text, typed.text, right.text, folder=log.parent)


@pytest.mark.parametrize("given", ["searchkey", "searchfile", "searchlogin"])
def test_the_key_for_a_search_server_and_that_of_an_endpoint(tmp_path, monkeypatch, capsys, given):
    """Both repeat in their answers what they were sent; what a run stores and prints of it holds neither."""
    work = tmp_path / "work"
    (tmp_path / "key").write_text(SECRETS["searchfile"])
    if given == "searchkey":
        monkeypatch.setenv("QUAERE_SEARCH_KEY", SECRETS["searchkey"])
    elif given == "searchfile":
        monkeypatch.setenv("QUAERE_SEARCH_KEY_FILE", str(tmp_path / "key"))
    else:
        monkeypatch.setenv("QUAERE_SEARCH_LOGIN", f"me:{SECRETS['searchlogin']}")
    monkeypatch.setenv("OPENAI_API_KEY", SECRETS["modelkey"])
    with repeating() as url:
        code = main(["ask", "Who?", "--index", url, "--model", f"openai:m@{url}/v1", "--runs", str(work), "--json"])
    assert code == 2
    out = capsys.readouterr()
    assert "***" in out.err, "the endpoint's answer was not even shown"
    assert_nowhere(out.out, out.err, folder=work)
    (run,) = work.iterdir()
    assert main(["runs", "show", str(run), "--json"]) == 0
    assert_nowhere(capsys.readouterr().out)


async def test_a_failure_of_a_search_does_not_repeat_the_key(monkeypatch):
    monkeypatch.setenv("QUAERE_SEARCH_KEY", SECRETS["searchkey"])
    with repeating() as url:
        async with SearchClient(url) as client:
            with pytest.raises(SearchFailed, match=r"Bearer \*\*\*") as caught:
                await client.search(["Oss"], 1)
    assert_nowhere(str(caught.value), caught.value.hint, repr(caught.value))


@pytest.mark.parametrize("secret", ["indexurl", "se/cret@indexurl"])
def test_a_password_in_the_url_of_a_search_server_is_refused(tmp_path, capsys, secret):
    url = f"http://me:{secret.replace('indexurl', SECRETS['indexurl'])}@127.0.0.1:9"
    for command in (["search", "x"], ["ask", "Who?", "--model", "none", "--runs", str(tmp_path)]):
        assert main([*command, "--index", url]) == 2
        said = capsys.readouterr()
        assert "QUAERE_SEARCH_LOGIN" in said.err
        assert_nowhere(said.out, said.err, folder=tmp_path)


@pytest.mark.parametrize("recipe", ["drzero", "score", "search-r1"])
def test_a_password_in_search_url_is_refused_before_anything_is_written(index, tmp_path, capsys, recipe):
    file = tmp_path / "mine.yaml"
    file.write_text(f"search_url: http://me:{SECRETS['yamlurl']}@127.0.0.1:9\n")
    command = ["evolve", recipe, "--index", str(index.path), "--model", "none", "--out", str(tmp_path / "run")]
    for given in (["--set", f"search_url=https://{SECRETS['seturl']}@h:9"], ["--config", str(file)]):
        for how in ([], ["--dry-run"], ["--print-config"]):
            assert main([*command, *given, *how]) == 2
            said = capsys.readouterr()
            assert "search_url holds a user or password" in said.err
            assert_nowhere(said.out, said.err)
    assert not (tmp_path / "run").exists()


def test_a_password_in_the_url_of_an_endpoint_is_refused(index, tmp_path, capsys):
    for secret in (SECRETS["modelurl"], f"se/cret@{SECRETS['modelurl']}"):
        model = f"openai:m@http://me:{secret}@127.0.0.1:9/v1"
        assert main(["ask", "Who?", "--index", str(index.path), "--model", model, "--runs", str(tmp_path)]) == 2
        said = capsys.readouterr()
        assert_nowhere(said.out, said.err, folder=tmp_path)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("no answer from http://me:s3cret@host/v1", "no answer from http://***@host/v1"),
        ("https://p@ss@host and http://a:b@c", "https://***@host and http://***@c"),
        ("openai:m@http://host/v1", "openai:m@http://host/v1"),
        ("mail me@home.example", "mail me@home.example"),
    ],
)
def test_no_error_shows_the_login_of_a_url(text, hidden):
    assert hide_logins(text) == hidden
    error = BadInput(text, hint=text)
    assert (str(error), error.hint) == (hidden, hidden)


def test_a_secret_that_no_header_can_carry_is_refused_without_being_shown(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "s3cret\nX-More: 1")
    with pytest.raises(BadInput, match="SOME_KEY") as caught:
        read_secret("SOME_KEY")
    assert "s3cret" not in str(caught.value)


def test_a_search_server_is_shown_one_secret(monkeypatch):
    monkeypatch.setenv("QUAERE_SEARCH_LOGIN", "nobody")
    with pytest.raises(BadInput, match="USER:PASSWORD"):
        SearchClient("http://127.0.0.1:9")
    monkeypatch.setenv("QUAERE_SEARCH_KEY", "k")
    with pytest.raises(BadInput, match="both"):
        SearchClient("http://127.0.0.1:9")


def test_a_run_of_old_with_a_password_in_its_config_is_not_gone_on_with(tmp_path, capsys):
    text = f"search_url: http://me:{SECRETS['yamlurl']}@127.0.0.1:9\n"
    settings = {"recipe": "drzero", "index_fingerprint": "f"}
    with Run.create(tmp_path / "run", "evolve", settings, config=text):
        pass
    assert main(["evolve", "--resume", str(tmp_path / "run")]) == 2
    said = capsys.readouterr()
    assert "search_url holds a user or password" in said.err
    assert_nowhere(said.out, said.err)
