"""`mcp:COMMAND` and `mcp:URL`: the search tool of an MCP server as a searcher, ours and servers of other forms."""

import asyncio
import json
import shlex
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from asked import SENTENCE, write_documents
from loopback import serve_chat
from mcp_parts import Server, command, index_tools, served_over_http, types
from quaere.cli.main import main
from quaere.errors import BadInput, ExtraMissing, SearchFailed
from quaere.search.mcp_client import McpSearcher
from quaere.search.searcher import find_opener, open_searcher
from quaere.training.run_setup import open_documents, open_run
from quaere.training.settings import RunConfig

QUERY = "backups moved to Oslo"


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return write_documents(tmp_path_factory.mktemp("mcp-search")).opened


def typed_command(*words):
    """What a person would type after `mcp:` to start our own server with this Python."""
    start = command(*words)
    variables = [f"{name}={value}" for name, value in start.env.items()]
    return "mcp:" + shlex.join(["env", *variables, start.command, *start.args])


async def search(where, queries=(QUERY,), topk=2, **how):
    searcher = McpSearcher(where, **how)
    try:
        return await searcher.search(queries, topk)
    finally:
        await searcher.close()


class Foreign:
    """A server of somebody else's: its tools, and what they answer; `calls` are those it got."""

    tools, close = (), None

    def __init__(self, answer, takes=("query", "limit"), names=("web_search",)):
        self.answer, self.calls = answer, []
        properties = {name: {"type": "integer" if name == "limit" else "string"} for name in takes}
        schema = {"type": "object", "properties": properties, "required": list(takes[:1])}
        self.listed = [types.Tool(name=name, input_schema=schema) for name in names]

    async def list_tools(self, context, params):
        return types.ListToolsResult(tools=self.listed)

    async def call_tool(self, context, params):
        self.calls.append((params.name, params.arguments))
        found = self.answer() if callable(self.answer) else self.answer
        return await found if asyncio.iscoroutine(found) else found

    @contextmanager
    def served(self, monkeypatch):
        server = Server("foreign", on_list_tools=self.list_tools, on_call_tool=self.call_tool)
        monkeypatch.setattr("mcp_parts.make_server", lambda tools: server)
        with served_over_http(self) as url:
            yield f"mcp:{url}"


def said(*texts, **more):
    return types.CallToolResult(content=[types.TextContent(text=text) for text in texts], **more)


# ---------------------------------------------------------------------------------------------------------- our own


async def test_our_own_server_finds_what_the_index_finds(documents):
    wanted = documents.search([QUERY, "Korrin"], 2)
    found = await search(typed_command("mcp", "--index", documents.path), (QUERY, "Korrin"))
    assert found == wanted and SENTENCE in found[0][0].passage.text


async def test_a_url_gets_the_key_of_search_servers_and_no_error_repeats_it(documents, monkeypatch):
    with served_over_http(index_tools(documents), key="sesame-opens") as url:
        with pytest.raises(SearchFailed) as refused:
            await search(f"mcp:{url}")
        monkeypatch.setenv("QUAERE_SEARCH_KEY", "sesame-opens")
        assert await search(f"mcp:{url}") == documents.search([QUERY], 2)
        monkeypatch.setenv("QUAERE_SEARCH_KEY", "wrong-sesame")
        with pytest.raises(SearchFailed) as wrong:
            await search(f"mcp:{url}")
    assert refused.value.kind == wrong.value.kind == "rejected"
    assert "(401)" in str(refused.value) and refused.value.hint == "export QUAERE_SEARCH_KEY=..."
    assert "\n" not in str(wrong.value) and "sesame" not in str(wrong.value)


async def test_a_host_that_is_refused_is_not_blamed_on_the_key(documents, monkeypatch):
    monkeypatch.setattr("quaere.serving.guard.name_of", lambda host: "elsewhere" if ":" in host else host)
    with served_over_http(index_tools(documents)) as url, pytest.raises(SearchFailed) as refused:
        await search(f"mcp:{url}")
    assert (refused.value.kind, "(403)" in str(refused.value)) == ("rejected", True)
    assert "key" not in str(refused.value) + refused.value.hint


def test_a_command_takes_it_as_an_index(documents, capsys):
    with served_over_http(index_tools(documents)) as url:
        assert main(["search", QUERY, "--index", f"mcp:{url}", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert SENTENCE in found["hits"][0]["passage"]["text"]


def test_a_model_answers_from_it(documents, tmp_path, capsys):
    def say(body):
        if len(body["messages"]) < 3:
            return '<tool_call>{"name": "search", "arguments": {"query_list": ["backups Oslo"]}}</tool_call>'
        return "<answer>May 2019</answer>"

    with served_over_http(index_tools(documents)) as url, serve_chat(say) as endpoint:
        asked = ["ask", "When did we move the backups?", "--index", f"mcp:{url}", "--runs", str(tmp_path), "--json"]
        assert main([*asked, "--model", f"openai:m@{endpoint}"]) == 0
    found = json.loads(capsys.readouterr().out)
    start = documents.document("ops.md").index(SENTENCE)
    assert (found["support"]["doc_id"], found["support"]["start"]) == ("ops.md", start)


async def test_a_run_searches_with_it(documents, monkeypatch):
    async def stop():
        pass

    actors = SimpleNamespace(policy=SimpleNamespace(stop=stop))
    monkeypatch.setattr("quaere.training.run_setup.open_actors", lambda *given: actors)
    with served_over_http(index_tools(documents)) as url:
        config = RunConfig(model="m", index=str(documents.path), search_url=f"mcp:{url}")
        async with open_run(config, ("solver",), SimpleNamespace(note=None)) as opened:
            assert await opened.searcher.search([QUERY], 2) == documents.search([QUERY], 2)
    with pytest.raises(BadInput, match="not from a server") as refused:
        open_documents(RunConfig(index="mcp:server"))
    assert "--search mcp:server" in refused.value.hint


def test_a_report_is_composed_from_it(documents, tmp_path, capsys):
    """A report reads as many passages as a search may give."""
    with served_over_http(index_tools(documents)) as url:
        written = []
        for place in (str(documents.path), f"mcp:{url}"):
            where = ["--search", place, "--runs", str(tmp_path), "--json"]
            assert main(["report", "What is known of the backups in Oslo?", *where]) == 0
            written.append(json.loads(capsys.readouterr().out)["report"])
    assert written[0] == written[1] and "Oslo" in written[0]


# ------------------------------------------------------------------------------------------------------- other servers


ROWS = [
    {"title": "Oss", "url": "https://oss.example/a", "content": "The Oss rises.", "score": 0.5},
    {"snippet": "Rain."},
]
FORMS = [
    said("ignored", structured_content={"results": ROWS}),
    said("ignored", structured_content={"result": {"items": ROWS, "total": 2}}),
    said(json.dumps(ROWS)),
    said("Two results:", json.dumps({"hits": ROWS})),
]


@pytest.mark.parametrize("form", FORMS, ids=["structured", "nested", "json", "json-after-text"])
async def test_results_of_other_forms_are_read(form, monkeypatch):
    foreign = Foreign(form)
    with foreign.served(monkeypatch) as where:
        (hits,) = await search(where, topk=5)
    assert foreign.calls == [("web_search", {"query": QUERY, "limit": 5})]
    first, second = (hit.passage for hit in hits)
    assert (first.title, first.text, first.doc_id) == ("Oss", "The Oss rises.", "https://oss.example/a")
    assert (first.start, first.end, hits[0].score) == (0, 14, 0.5)
    assert second.text == "Rain." and second.id.startswith("text-")


async def test_every_text_is_a_passage_where_nothing_else_is_known(monkeypatch):
    note = types.TextResourceContents(uri="file:///b", text="Second.")
    blocks = [types.TextContent(text="First."), types.EmbeddedResource(resource=note), types.TextContent(text=" ")]
    with Foreign(types.CallToolResult(content=blocks), takes=("q",)).served(monkeypatch) as where:
        assert [hit.passage.text for hit in (await search(where, topk=3))[0]] == ["First.", "Second."]
        assert [hit.passage.text for hit in (await search(where, topk=1))[0]] == ["First."]


async def test_no_more_is_asked_for_than_the_tool_gives(monkeypatch):
    foreign = Foreign(said("found"))
    foreign.listed[0].input_schema["properties"]["limit"]["maximum"] = 20
    with foreign.served(monkeypatch) as where:
        for topk in (100, 5):
            await search(where, topk=topk)
    assert [arguments["limit"] for _, arguments in foreign.calls] == [20, 5]


async def test_nothing_found_is_an_empty_result(monkeypatch):
    with Foreign(said("[]")).served(monkeypatch) as where:
        assert await search(where) == [[]]


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ({"names": ("fetch", "list")}, "no tool that is clearly its search; its tools are: fetch, list"),
        ({"names": ("search_web", "search_mail")}, "no tool that is clearly its search"),
        ({"takes": ("first", "second")}, None),
        ({"takes": ("limit",)}, "takes no query"),
    ],
)
async def test_the_tool_must_be_clear(how, line, monkeypatch):
    foreign = Foreign(said("found"), **how)
    with foreign.served(monkeypatch) as where:
        if line is None:  # the only required text is the query
            await search(where)
            assert foreign.calls == [("web_search", {"first": QUERY})]
        else:
            with pytest.raises(BadInput, match=line):
                await search(where)


# ----------------------------------------------------------------------------------------------------------- failures


async def test_a_refusal_a_broken_answer_and_a_slow_one_are_failed_searches(monkeypatch):
    with Foreign(said("no\nsuch", is_error=True)).served(monkeypatch) as where:
        with pytest.raises(SearchFailed, match="refused the search: no such") as failed:
            await search(where)
        assert failed.value.kind == "rejected"
    with Foreign(said(structured_content={"results": [{"text": "a", "start": -1}]})).served(monkeypatch) as where:
        with pytest.raises(SearchFailed) as failed:
            await search(where)
        assert failed.value.kind == "broken" and "\n" not in str(failed.value)

    monkeypatch.setattr("quaere.search.mcp_client._MAX_BYTES", 20_000)
    with Foreign(said("x" * 15_000)).served(monkeypatch) as where:
        assert len((await search(where))[0][0].passage.text) == 15_000
    with Foreign(said("x" * 25_000)).served(monkeypatch) as where:
        with pytest.raises(SearchFailed) as failed:
            await search(where)
        assert failed.value.kind == "unreachable"

    async def wait():
        await asyncio.sleep(30)

    with Foreign(wait).served(monkeypatch) as where:
        searcher = McpSearcher(where, timeout_s=0.5)
        with pytest.raises(SearchFailed, match="did not answer within") as failed:
            await searcher.search([QUERY], 1)
        await searcher.close()
        assert failed.value.kind == "timeout"


# Answers one search, and dies of the second.
MORTAL = """
import asyncio, os
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
calls = []
async def list_tools(context, params):
    return types.ListToolsResult(tools=[types.Tool(name="search", input_schema={"type": "object", "properties": {"q": {}}})])
async def call_tool(context, params):
    calls.append(1)
    if len(calls) > 1:
        os._exit(1)
    return types.CallToolResult(content=[types.TextContent(text=f"from {os.getpid()}")])
async def main():
    server = Server("mortal", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())
asyncio.run(main())
"""  # noqa: E501


async def test_a_command_that_died_is_a_failed_search_and_is_started_again_by_the_next(tmp_path):
    (tmp_path / "mortal.py").write_text(MORTAL)
    start = command()
    words = ["env", *(f"{name}={value}" for name, value in start.env.items()), sys.executable, tmp_path / "mortal.py"]
    searcher = McpSearcher("mcp:" + shlex.join(map(str, words)))
    try:
        ((first,),) = await searcher.search(["a"], 1)
        with pytest.raises(SearchFailed) as failed:
            await searcher.search(["b"], 1)
        ((second,),) = await searcher.search(["c"], 1)
    finally:
        await searcher.close()
    assert failed.value.kind == "unreachable" and "\n" not in str(failed.value)
    assert first.passage.text.startswith("from ") and first.passage.text != second.passage.text


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("mcp:", "needs a command or a URL"),
        ("mcp:'unclosed", "cannot be read"),
        ("mcp:http://", "is not the URL"),
        ("mcp:http://me:secret@127.0.0.1/mcp", "holds a user or password"),
        ("mcp:server --at http://me:secret@127.0.0.1/", "holds a user or password"),
    ],
)
def test_what_is_no_server_is_refused_before_anything_starts(where, line):
    for check in (find_opener, open_searcher):
        with pytest.raises(BadInput, match=line) as refused:
            check(where)
        assert "secret" not in f"{refused.value}{refused.value.hint}"


@pytest.mark.parametrize("where", ["mcp:/no/such/program", "mcp:true", "mcp:echo hello", "mcp:http://127.0.0.1:9/mcp"])
def test_what_does_not_speak_the_protocol_is_one_line(where, capfd):
    assert main(["search", QUERY, "--index", where]) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("quaere: the MCP server mcp:") and err.count("\n") == 1


def test_without_the_extra_the_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ExtraMissing) as missing:
        open_searcher("mcp:http://127.0.0.1:8000/mcp")
    assert "[mcp]" in missing.value.hint
