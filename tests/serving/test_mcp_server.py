"""`quaere mcp` as the SDK's own client sees it: over stdio, over HTTP and in process, in both eras of the protocol."""

import asyncio
import json
import re
import subprocess
from hashlib import sha256

import httpx
import pytest
from msgspec import structs

from asked import SENTENCE, wait_until, write_documents
from loopback import serve_chat
from mcp_parts import (
    ERAS,
    NOTES,
    agent_tools,
    command,
    in_process,
    index_tools,
    over_http,
    over_stdio,
    served_over_http,
    types,
)
from quaere.api.mcp_agent import MAX_ASKED
from quaere.api.mcp_tools import QuestionArguments
from quaere.chat.statements import split_statements
from quaere.cli.main import main
from quaere.errors import BadInput
from quaere.search.index_build import build_index

JSON_RPC = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
TOOLS = ["search", "get_document", "report", "ask"]


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return write_documents(tmp_path_factory.mktemp("mcp")).opened


def check_quotation(found, index):
    """What every result must have: document, heading, characters and hash, and all of them right."""
    text = index.document(found["document"])[found["start"] : found["end"]]
    assert found["text"] == text and found["text"] and isinstance(found["heading"], str)
    assert found["sha256"] == sha256(text.encode()).hexdigest()


async def check_documents(client, index):
    """The tools and resources on documents; the same over every transport."""
    found = await client.call_tool("search", {"query": "backups moved to Oslo", "topk": 2})
    passages = found.structured_content["passages"]
    assert not found.is_error and json.loads(found.content[0].text) == found.structured_content
    assert len(passages) == 2 and SENTENCE in passages[0]["text"]
    assert passages[0]["score"] > passages[1]["score"]
    for passage in passages:
        check_quotation(passage, index)
        (read,) = (await client.read_resource(passage["uri"])).contents
        assert read.text == passage["text"]
        assert {
            name: passage[name] for name in ("document", "heading", "start", "end", "sha256")
        }.items() <= read.meta.items()
    start = index.document("ops.md").index(SENTENCE)
    asked = {"document": "ops.md", "start": start, "num_chars": len(SENTENCE)}
    part = (await client.call_tool("get_document", asked)).structured_content
    check_quotation(part, index)
    assert (part["text"], part["end"], part["num_chars"]) == (
        SENTENCE,
        start + len(SENTENCE),
        len(index.document("ops.md")),
    )


# ---------------------------------------------------------------------------------------------------------- transports


@pytest.mark.parametrize("mode", ERAS)
async def test_documents_over_stdio(documents, mode):
    async with over_stdio("mcp", "--index", documents.path, mode=mode) as client:
        assert (client.protocol_version == "2026-07-28") == (mode == "auto")
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS[:3]
        await check_documents(client, documents)


@pytest.mark.parametrize("mode", ERAS)
async def test_documents_and_answers_over_http(documents, mode):
    with served_over_http(agent_tools(documents), key="sesame") as url:
        async with over_http(url, mode, key="sesame") as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
            await check_documents(client, documents)
            found = (await client.call_tool("ask", {"question": "When did we move the backups?"})).structured_content
            assert (found["status"], found["answer"]) == ("answered", "May 2019")


async def test_a_model_is_asked_over_stdio(documents):
    def say(body):
        asked = "tool_response" in str(body["messages"][-1]) or len(body["messages"]) > 2
        if not asked:
            return '<tool_call>{"name": "search", "arguments": {"query_list": ["backups Oslo"]}}</tool_call>'
        return f"<evidence>{SENTENCE}</evidence><answer>May 2019</answer>"

    with serve_chat(say) as endpoint:
        voted = ("--attempts", "2", "--min-confidence", "0.5")
        async with over_stdio("mcp", "--index", documents.path, "--model", f"openai:m@{endpoint}", *voted) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == TOOLS
            # Only what a remote model answers is open to the world.
            assert [tool.annotations.open_world_hint for tool in tools] == [False, False, True, True]
            found = (await client.call_tool("ask", {"question": "When did we move the backups?"})).structured_content
    assert (found["status"], found["answer"], found["confidence"]) == ("answered", "May 2019", 1.0)  # both agree
    check_quotation(found["evidence"], documents)


def test_stdout_has_nothing_but_messages_and_ends_with_stdin(documents):
    start = command("mcp", "--index", documents.path)
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([start.command, *start.args], text=True, **streams) as process:
        for line, id in [("no message", None), ('{"jsonrpc": "2.0", "id": 7, "method": "none"}', 7), ("[NaN]", None)]:
            print(line, file=process.stdin, flush=True)
            message = json.loads(process.stdout.readline())
            assert message["id"] == id and "\n" not in message["error"]["message"]
        rest, notes = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "") and "serving search, get_document" in notes


# --------------------------------------------------------------------------------------------------------- descriptions


async def test_tools_have_schemas_and_are_read_only(documents):
    async with in_process(documents, tools=agent_tools(documents)) as client:
        tools = (await client.list_tools()).tools
    for tool in tools:
        assert tool.input_schema["type"] == tool.output_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        hints = tool.annotations
        assert (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint) == (True, False, False)
    found = tools[0].output_schema["$defs"]["FoundPassage"]
    assert {"document", "heading", "start", "end", "sha256"} <= set(found["required"])


@pytest.mark.parametrize("mode", ERAS)
async def test_every_passage_is_listed_once_over_several_pages(documents, mode, monkeypatch):
    monkeypatch.setattr("quaere.api.mcp_tools._PAGE", 3)
    assert len(documents) > 6
    async with in_process(documents, mode) as client:
        names, cursor = [], None
        while cursor is not None or not names:
            listed = await client.list_resources(cursor=cursor)
            names += [resource.name for resource in listed.resources]
            cursor = listed.next_cursor
        assert names == [passage.id for passage in documents.passages()]
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "quaere://passage/{id}"


async def test_documents_of_any_name_are_read_by_what_a_search_gave(tmp_path):
    names = ["ä b.md", "100%.md", "a#1.md", "line\nbreak.md", "\x1b[2J.md", "why?.md", "\u202ereversed.md"]
    for name in names:
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "docs" / name).write_text(f"# Oss\n\nThe Oss rises, says {name!a}.\n")
    index = build_index(tmp_path / "docs", tmp_path / "index")
    async with in_process(index) as client:
        found = await client.call_tool("search", {"query": "Where does the\r\n\u200fOss rise?", "topk": 50})
        passages = found.structured_content["passages"]
        assert sorted(passage["document"] for passage in passages) == sorted(names)
        for passage in passages:
            whole = await client.call_tool("get_document", {"document": passage["document"]})
            assert passage["text"] in whole.structured_content["text"]
            assert (await client.read_resource(passage["uri"])).contents[0].text == passage["text"]


async def test_whole_numbers_are_integers_also_with_a_fraction_of_zero(documents):
    async with in_process(documents) as client:
        found = await client.call_tool("search", {"query": "backups moved to Oslo", "topk": 2.0})
        assert len(found.structured_content["passages"]) == 2
        part = await client.call_tool("get_document", {"document": "ops.md", "start": 1.0, "num_chars": 4e0})
        assert part.structured_content["text"] == documents.document("ops.md")[1:5]


# -------------------------------------------------------------------------------------------------------------- answers


async def ask(client, question, tool="ask"):
    found = await client.call_tool(tool, {"question": question})
    assert not found.is_error, found
    return found.structured_content


async def test_an_answer_has_its_sentence_and_what_was_searched(documents):
    async with in_process(documents, tools=agent_tools(documents)) as client:
        quoted = await ask(client, "When did we move the backups?")
        found = await ask(client, "When was it, without proof?")
        nowhere = await ask(client, "What came out of nowhere?")
    assert quoted["evidence"]["text"] == found["evidence"]["text"] == SENTENCE
    assert quoted["queries"] == ["moved backups Oslo"] and SENTENCE in quoted["said"]
    for quotation in (quoted["evidence"], *quoted["passages"]):
        check_quotation(quotation, documents)
    assert (nowhere["status"], nowhere["answer"], nowhere["evidence"]) == ("answered", "Atlantis", None)


async def test_what_the_documents_do_not_say_is_told_apart_from_what_was_not_found(documents):
    strict = agent_tools(documents, notes=structs.replace(NOTES, min_overlap=0.5))
    async with in_process(documents, tools=strict) as client:
        abstained = await ask(client, "What is not said?")
        nothing = await ask(client, "Is there no answer?")
        doubted = await ask(client, "When did Orsolya Venn of Halmgate move, without proof?")
    assert [each["status"] for each in (abstained, nothing, doubted)] == ["not_in_documents", "not_found", "not_found"]
    assert [each["answer"] for each in (abstained, nothing, doubted)] == [""] * 3
    assert abstained["said"] == "not in these documents; searched for: Korrin; Korrin hills"
    assert doubted["said"].startswith("not found in these documents (")


async def test_a_report_of_a_model_keeps_what_its_sources_support(documents):
    async with in_process(documents, tools=agent_tools(documents)) as client:
        written = await ask(client, "What is known of the backups?", tool="report")
        nothing = await ask(client, "Is anything written at all?", tool="report")
    assert written["status"] == "written" and "May 2019 [1]" in written["text"]
    assert "So it is said" not in written["text"]  # it cites a passage that was never shown
    (source,) = written["sources"]
    assert source["number"] == 1
    check_quotation(source["passage"], documents)
    assert nothing == {"status": "not_written", "text": "", "conclusion": "", "sources": []}


async def test_without_a_model_a_report_is_that_of_the_command_line(documents, tmp_path, capsys):
    question = "What is known of the backups in Oslo?"
    async with in_process(documents) as client:
        written = await ask(client, question, tool="report")
        nothing = await ask(client, "What is known of Zyxwv?", tool="report")
        wrong = await client.call_tool("report", {"question": " "})
    words = ["report", question, "--index", str(documents.path), "--runs", str(tmp_path), "--json"]
    assert await asyncio.to_thread(main, words) == 0
    printed = json.loads(capsys.readouterr().out)
    assert written["status"] == "written" and written["text"] == printed["report"] and "Oslo" in written["text"]
    for source in written["sources"]:
        check_quotation(source["passage"], documents)
    sentences = [source["passage"]["text"] for source in written["sources"]]
    cited = [one for one in split_statements(written["text"]) if one.citations]
    assert cited and all(any(re.sub(r" \[[\d, ]+\]", "", one.text) in text for text in sentences) for one in cited)
    assert nothing["status"] == "not_written" and not nothing["sources"]
    assert wrong.is_error and wrong.content[0].text == "question is empty"


async def test_a_small_model_joins_sentences_and_writes_no_report(documents):
    tools = agent_tools(documents, model="smollm2-135m")
    async with in_process(documents, tools=tools) as client:
        written = await ask(client, "What is known of the backups in Oslo?", tool="report")
    async with in_process(documents) as client:
        assert written == await ask(client, "What is known of the backups in Oslo?", tool="report")


async def test_a_model_that_fails_is_one_line(documents, logged):
    async with in_process(documents, tools=agent_tools(documents)) as client:
        found = await client.call_tool("ask", {"question": "What breaks?"})
        assert found.is_error and "\n" not in found.content[0].text
        assert (await ask(client, "What is not said?"))["status"] == "not_in_documents"


async def test_more_questions_than_the_limit_are_refused_and_cancelled_ones_make_room(documents):
    tools = agent_tools(documents)
    asked = QuestionArguments("wait for it")
    waiting = [asyncio.create_task(tools._ask(asked)) for _ in range(MAX_ASKED)]
    await asyncio.sleep(0)
    with pytest.raises(BadInput, match="ask again later"):
        await tools._ask(asked)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (await tools._ask(QuestionArguments("What is not said?"))).status == "not_in_documents"


# ----------------------------------------------------------------------------------------------------------- the guard


def post(url, body, **headers):
    with httpx.Client(trust_env=False) as http:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return http.post(url, content=content, headers=JSON_RPC | headers)


LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


def test_the_guard_holds_here_too(documents):
    with served_over_http(index_tools(documents), key="sesame") as url:
        right = {"authorization": "Bearer sesame"}
        assert post(url, LIST, **right).status_code == 200
        assert post(url, LIST).status_code == 401
        assert post(url, LIST, authorization="Bearer wrong").status_code == 401
        assert post(url, LIST, **right, host="evil.example").status_code == 403
        assert post(url, LIST, **right, origin="https://evil.example").status_code == 403
        assert post(url, LIST, **right | {"content-type": "text/plain"}).status_code == 415
        assert post(url, b" " * (2 << 20), **right).status_code == 413
        refused = post(url, {"a": 1}, **right)
        assert refused.status_code == 400 and refused.json()["error"]["code"] == types.PARSE_ERROR
        assert "\n" not in refused.text
        with httpx.Client(trust_env=False, headers=right) as http:
            assert http.get(url).status_code == http.delete(url).status_code == 405  # no streams, no sessions
        assert post(url, LIST, **right).status_code == 200


async def test_a_question_whose_client_has_gone_is_cancelled(documents):
    tools = agent_tools(documents)
    with served_over_http(tools) as url:
        async with over_http(url) as client:
            asking = asyncio.create_task(client.call_tool("ask", {"question": "wait for it"}))
            await asyncio.to_thread(wait_until, lambda: tools.sampler.seen)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await asyncio.to_thread(wait_until, lambda: not tools._num_asked)  # else it would wait for ever
