"""No telemetry: what runs on this machine connects to nothing else, and looks up no name.

The commands run one after another in a new process (libraries read their settings when they are loaded, and those of
the tests forbid the hub), with a hook that sees every connection and refuses those that would leave the machine.
"""

import json
import os
import subprocess
import sys

import pytest

from asked import write_documents
from exported_runs import make_base

COMMANDS = """
import io, json, os, re, signal, sys, threading, time
from ipaddress import ip_address

seen = []

def is_local(host):
    try:
        return host in (None, "", "localhost") or ip_address(host).is_loopback
    except ValueError:
        return False

def watch(event, args):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        place = args[1]
        host = place[0] if isinstance(place, tuple) else None  # a path is a socket of this machine
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = args[0].decode() if isinstance(args[0], bytes) else args[0]
    else:
        return
    seen.append([event, host])
    if not is_local(host):
        raise OSError("the connection was refused by the test")

sys.addaudithook(watch)

import httpx
from quaere.cli.main import main

def view(runs):
    heard, sys.stderr = sys.stderr, io.StringIO()
    def visit():
        while not (found := re.search(r"http://[0-9.:]+", sys.stderr.getvalue())):
            time.sleep(0.05)
        with httpx.Client(base_url=found[0], trust_env=False) as http:
            page = http.get("/")
            assert page.status_code == 200
            for path in set(re.findall(r'(?:href|src)="(/[^"#]*)"', page.text)):
                assert http.get(path).status_code == 200, path
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=visit).start()
    try:
        return main(["view", "--runs", runs, "--port", "0"])
    finally:
        sys.stderr = heard

def mcp(index):
    told, tell = os.pipe()
    listen, said = os.pipe()
    kept = os.dup(0), os.dup(1)
    os.dup2(told, 0)
    os.dup2(said, 1)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    call = {"name": "search", "arguments": {"query": "backups"}}
    def ask():
        with open(tell, "w", closefd=False) as out, open(listen, closefd=False) as answers:
            for id, (method, params) in enumerate([("initialize", hello), ("tools/call", call)]):
                message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
                print(json.dumps(message), file=out, flush=True)
                assert "result" in json.loads(answers.readline())
        os.close(tell)
    threading.Thread(target=ask).start()
    try:
        return main(["mcp", "--index", index])
    finally:
        os.dup2(kept[0], 0)
        os.dup2(kept[1], 1)

def run(what):
    name, *words = what
    return {"view": view, "mcp": mcp}[name](*words) if name in ("view", "mcp") else main(words)

for what in json.loads(sys.argv[1]):
    seen.clear()
    code = run(what)
    print("SEEN " + json.dumps([what[0], code, seen]), flush=True)
"""


def watched(commands):
    """For each command its exit code and what it connected to or looked up."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    words = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
    done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    lines = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("SEEN ")]
    assert [name for name, _, _ in lines] == [name for name, *_ in commands], done.stderr
    return {name: (code, seen, done.stderr) for name, code, seen in lines}


def is_loopback(host):
    return host in (None, "", "localhost", "127.0.0.1", "::1")


@pytest.mark.parametrize("model", ["tiny", pytest.param("smollm2-135m", marks=[pytest.mark.model, pytest.mark.slow])])
def test_index_search_ask_report_view_and_mcp_connect_to_nothing_but_loopback(tmp_path, model):
    index = str(write_documents(tmp_path).path)
    named = str(make_base(tmp_path)) if model == "tiny" else model
    runs = str(tmp_path / "runs")
    short = ["--guided", "--max-turns", "2", "--turn-tokens", "16"] if model == "tiny" else ["--max-turns", "2"]
    found = watched(
        [
            ["index", "index", str(tmp_path / "docs"), "--out", str(tmp_path / "new")],
            ["search", "search", "backups", "--index", index],
            ["ask", "ask", "When?", "--index", index, "--model", named, "--runs", runs, "--device", "cpu", *short],
            ["report", "report", "When were the backups moved?", "--index", index, "--runs", runs],
            ["view", runs],
            *([["mcp", index]] if _has_mcp() else []),
        ]
    )
    for name, (code, seen, err) in found.items():
        assert code in ((0, 3) if name == "ask" else (0,)), (name, err)
        assert [place for place in seen if not is_loopback(place[1])] == [], name
    assert found["view"][1], "the visit of the viewer's own pages is seen"


def test_an_endpoint_is_what_documents_leave_for_and_the_hook_sees_it(tmp_path):
    index = str(write_documents(tmp_path).path)
    asked = [
        "ask",
        "ask",
        "When?",
        "--index",
        index,
        "--runs",
        str(tmp_path),
        "--model",
        "openai:m@http://192.0.2.1/v1",
    ]
    code, seen, _ = watched([asked])["ask"]
    assert code == 2 and "192.0.2.1" in [host for _, host in seen]


def _has_mcp():
    try:
        import mcp_types  # noqa: F401
    except ImportError:
        return False
    return True
