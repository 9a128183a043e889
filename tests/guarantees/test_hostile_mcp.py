"""Hostile calls to `quaere mcp`: each is refused in one line, and the server goes on answering."""

import json
import subprocess
from contextlib import closing

import httpx
import pytest

from asked import write_documents
from mcp_parts import agent_tools, command, served_over_http

HUGE = "x" * 500_000
DEEP = "[" * 2_000 + "]" * 2_000


def call(name, arguments):
    """A request as text: `arguments` may be JSON that Python would not write."""
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return "tools/call", f'{{"name": {json.dumps(name)}, "arguments": {given}}}'


def read(uri):
    return "resources/read", json.dumps({"uri": uri})


# Values that are refused as they are, and arguments, addresses and cursors that are.
QUERIES = (
    5,
    None,
    True,
    ["a"],
    {"a": 1},
    1.5,
    "",
    " \n ",
    HUGE,
    "a\x00b",
    "\x1b[31mred",
    "a\x85b",
    "a\x7fb",
    "\ud800",
)
COUNTS = (-1, 0, 101, 2**63, 2**200, 1.5, "3", None, True, [3])
PATHS = (
    "../../etc/passwd",
    "/etc/passwd",
    "ops.md/../oss.md",
    "..",
    "%2e%2e/ops.md",
    "OPS.MD",
    "ops.md\x00",
    "ops.md#0",
)
NAMES = (*PATHS, "file:///etc/passwd", "x" * 5_000, "", 7)
PARTS = ({"start": -1}, {"start": 10**9}, {"start": 2**60}, {"num_chars": 0}, {"num_chars": 10**9}, {"end": 5})
TOOLS = ("delete", "", "SEARCH", "search ", "__init__", "../search", HUGE, "a\nb\x1b[2J")
METHODS = ("tools/delete", "", "completion/complete", "prompts/list", "logging/setLevel", HUGE)
URIS = ("file:///etc/passwd", "quaere://", "", "quaere://document/ops.md", "http://127.0.0.1/", HUGE)
NUMBERS = ("ops.md", "ops.md%23", "ops.md%23-1", "ops.md%2399999", "ops.md%23x", "ops.md%2300", "ops.md%230%0A")
ESCAPES = ("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd%230", "%00%230", "%ff%fe%230", "", "ops.md%23" + "9" * 5_000)
CURSORS = ("-1", "99999", "x", "", "1e3", "²", "9" * 5_000, 5)
CALLS = [
    *(call("search", {"query": value}) for value in QUERIES),
    *(call("search", value) for value in ({}, {"topk": 3}, {"q": "oss"}, {"query": "oss", "index": "/etc"})),
    *(call("search", value) for value in ("[1]", '"oss"', "7", "null", '{"query": NaN}', '{"query": Infinity}')),
    call("search", {"query": "oss", "a\nb\x1b[2J": 1}),
    call("search", {"query": "oss", HUGE: 1}),
    call("search", f'{{"query": {DEEP}}}'),
    *(call("search", {"query": "oss", "topk": value}) for value in COUNTS),
    *(call("search", f'{{"query": "oss", "topk": {value}}}') for value in ("NaN", "-Infinity", "1e400", "1" * 5_000)),
    *(call("get_document", {"document": value}) for value in NAMES),
    *(call("get_document", {"document": "ops.md", **value}) for value in PARTS),
    *(call(name, {}) for name in TOOLS),
    *(("tools/call", value) for value in ("{}", '{"name": 5}', '{"name": ["search"], "arguments": {}}')),
    *((name, "{}") for name in METHODS),
    *(read(uri) for uri in URIS),
    *(read(f"quaere://passage/{id}") for id in (*NUMBERS, *ESCAPES)),
    *(("resources/list", json.dumps({"cursor": value})) for value in CURSORS),
]
# Of a model's tools.
ASKED = [call(tool, {"question": value}) for tool in ("ask", "report") for value in ("", HUGE, "a\x00b", 5, None)]
GOOD = call("search", {"query": "Korrin hills"})


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return write_documents(tmp_path_factory.mktemp("hostile-mcp")).opened


def message(number, request):
    method, params = request
    return f'{{"jsonrpc": "2.0", "id": {number}, "method": {json.dumps(method)}, "params": {params}}}'


def check_refused(answer, request):
    """One line, short, and nothing of the document or the server in it."""
    if "error" in answer:
        line = answer["error"]["message"]
    else:
        assert answer["result"]["isError"] is True, request
        (line,) = (block["text"] for block in answer["result"]["content"])
    assert line and len(line) <= 300 and line.isprintable(), request
    assert "Traceback" not in line and "root:" not in line and "structuredContent" not in answer.get("result", {})


def check_answered(answer):
    assert answer["result"]["structuredContent"]["passages"][0]["document"] == "oss.md"


def test_there_are_enough_of_them_and_each_is_another():
    assert len({*CALLS, *ASKED}) == len([*CALLS, *ASKED]) >= 60


def test_over_http_every_call_is_refused_and_the_server_goes_on(documents):
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    with served_over_http(agent_tools(documents)) as url, httpx.Client(trust_env=False, headers=headers) as http:
        for number, request in enumerate([*CALLS, *ASKED]):
            refused, answered = (http.post(url, content=message(number, sent)) for sent in (request, GOOD))
            assert refused.status_code < 500, request
            check_refused(read_answer(refused.text), request)
            check_answered(read_answer(answered.text))


def read_answer(text):
    """The message in a body, or in its stream of events."""
    return json.loads(text.partition("data: ")[2] or text)


def test_over_stdio_every_call_is_refused_and_the_server_goes_on(documents):
    start = command("mcp", "--index", documents.path)
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}

    def exchange(process, line):
        print(line, file=process.stdin, flush=True)
        return json.loads(process.stdout.readline())

    with subprocess.Popen([start.command, *start.args], text=True, **streams) as process, closing(process.stdin):
        assert "result" in exchange(process, message(0, ("initialize", json.dumps(hello))))
        for number, request in enumerate(CALLS, start=1):
            check_refused(exchange(process, message(number, request)), request)
            check_answered(exchange(process, message(number, GOOD)))
        for line in ("", "{", "null", "[]", "\x00", '{"jsonrpc": "1.0", "id": 1, "method": "ping"}', DEEP):
            check_refused(exchange(process, line), line)
        check_answered(exchange(process, message(1, GOOD)))
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read().count("\n") == 1  # that it serves, and nothing else
