"""The agents of docs/agents.md: the requests they send, and, where it is installed, the agent itself.

The shapes of gpt-researcher's (0.15.1, langchain-openai 1.7.3, openai 2.54.0) and of open-deep-research's (0.0.16)
request for a schema were recorded between them and `quaere serve`; its offer of tools and its searches are written down
from its source. The words in them are ours.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

import tiny
from quaere.policies.sampler import Sampled
from quaere.search.index_build import build_index
from quaere.serving.model.retriever import Documents, HashEmbedder
from served import make_policy, serving

QUESTION = "Who built the Halm bridge?"
TEXT = (
    "The Halm bridge crosses the Oss at Halmgate. Orsolya Venn built it in 1702 for the guild of ropers, and was late."
)
OPENAI_CLIENT = {
    "accept": "application/json",
    "accept-encoding": "gzip, deflate, br, zstd",
    "authorization": "Bearer none",
    "content-type": "application/json",
    "user-agent": "OpenAI/Python 2.54.0",
    "x-stainless-lang": "python",
    "x-stainless-retry-count": "0",
}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    home = tmp_path_factory.mktemp("agents")
    (home / "docs").mkdir()
    for number in range(3):
        (home / "docs" / f"halm-{number}.txt").write_text(f"Part {number}. {TEXT}")
    return build_index(home / "docs", home / "index")


@pytest.fixture(scope="module")
def client(index):
    with serving(embedder=HashEmbedder(), documents=Documents(index, 5), max_tokens=32) as served:
        yield served


def ask(client, body):
    return client.post("/v1/chat/completions", body, headers=OPENAI_CLIENT)


# ------------------------------------------------------------------------------------------------------- gpt-researcher


def test_it_chooses_an_agent(client):
    messages = [{"content": "\nChoose a server.\n", "role": "system"}, {"content": f"task: {QUESTION}", "role": "user"}]
    body = {"messages": messages, "model": "tiny", "max_completion_tokens": 4000, "stream": False, "temperature": 0.15}
    (choice,) = ask(client, body).json()["choices"]
    assert isinstance(choice["message"]["content"], str) and choice["finish_reason"] in ("stop", "length")


def test_it_searches_with_the_custom_retriever(client):
    reply = client.get(
        "/retrieve-gpt-researcher?query=Who+built+the+Halm+bridge%3F",
        headers={"user-agent": "python-requests/2.34.2", "accept": "*/*"},
    )
    found = reply.json()
    assert isinstance(found, list) and len(found) == 3
    for entry in found:
        assert entry["url"] == entry["href"] and len(entry["raw_content"]) > 100  # shorter ones would be scraped
        assert TEXT in client.get(entry["url"].removeprefix(client.url)).text
    assert client.get("/retrieve-gpt-researcher?query=xyzzy").json() == []


def test_it_plans_with_a_list(client):
    """Without a limit on tokens, and under the name that makes an untrained model write a list."""
    messages = [{"content": f'Write 2 search queries to research the following task: "{QUESTION}"', "role": "user"}]
    body = {"messages": messages, "model": "tiny:list", "stream": False, "temperature": 0.4}
    assert ask(client, body).json()["choices"][0]["message"]["content"].startswith('["')


def test_it_compares_passages(client):
    body = {"input": [TEXT, "A lighthouse."], "model": "hash", "encoding_format": "base64"}
    data = client.post("/v1/embeddings", body, headers=OPENAI_CLIENT).json()["data"]
    assert [entry["index"] for entry in data] == [0, 1] and all(isinstance(one["embedding"], str) for one in data)


def test_it_has_the_report_streamed(client):
    messages = [
        {"content": "You are a researcher.", "role": "system"},
        {"content": f"Information: {TEXT}", "role": "user"},
    ]
    body = {"messages": messages, "model": "tiny", "max_completion_tokens": 400, "stream": True, "temperature": 0.35}
    chunks = client.stream("/v1/chat/completions", body)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] in ("stop", "length")


RESEARCH = """
import asyncio, sys
from gpt_researcher import GPTResearcher

async def main():
    researcher = GPTResearcher(query=sys.argv[1], report_type="research_report", verbose=False)
    await researcher.conduct_research()
    print(await researcher.write_report())
    print("SOURCES", *sorted({source["url"] for source in researcher.get_research_sources()}))

asyncio.run(main())
"""


def find_python(package):
    """The Python a package is installed for: its own environment's, such as $GPT_RESEARCHER_PYTHON, or this one."""
    if python := os.environ.get(f"{package.upper()}_PYTHON"):
        return python
    return sys.executable if importlib.util.find_spec(package) else None


@pytest.mark.skipif(not find_python("gpt_researcher"), reason="gpt-researcher is not installed; see docs/agents.md")
def test_gpt_researcher_itself_runs_to_its_end(client, tmp_path):
    python = find_python("gpt_researcher")
    where = "import os, litellm; print(os.path.dirname(litellm.__file__))"
    package = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    setting = {
        "OPENAI_BASE_URL": f"{client.url}/v1",
        "OPENAI_API_KEY": "none",
        "FAST_LLM": "openai:tiny",
        "SMART_LLM": "openai:tiny",
        "STRATEGIC_LLM": "openai:tiny:list",
        "EMBEDDING": "custom:hash",
        "SIMILARITY_THRESHOLD": "0.1",
        "COMPRESSION_THRESHOLD": "0",
        "RETRIEVER": "custom",
        "RETRIEVER_ENDPOINT": f"{client.url}/retrieve-gpt-researcher",
        "MAX_ITERATIONS": "1",
        "TIKTOKEN_CACHE_DIR": f"{package}/litellm_core_utils/tokenizers",
    }
    done = subprocess.run(
        [python, "-c", RESEARCH, QUESTION],
        env={**os.environ, **setting},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    report, _, sources = done.stdout.rpartition("SOURCES")
    assert report.strip()
    assert f"{client.url}/documents/halm-0.txt" in sources.split()


# --------------------------------------------------------------------------------------------------- open-deep-research


def test_it_asks_for_an_object_by_schema(client):
    schema = {
        "name": "ResearchQuestion",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"research_brief": {"type": "string", "description": "A research question."}},
            "required": ["research_brief"],
            "additionalProperties": False,
        },
    }
    body = {
        "messages": [{"content": QUESTION, "role": "user"}],
        "model": "tiny",
        "max_completion_tokens": 300,
        "response_format": {"type": "json_schema", "json_schema": schema},
        "stream": False,
    }
    assert ask(client, body).json()["choices"][0]["message"]["content"].startswith('{"research_brief": "')


def test_it_offers_tools(client):
    function = {
        "name": "ConductResearch",
        "description": "Call this tool to conduct research on a specific topic.",
        "parameters": {"type": "object", "properties": {"research_topic": {"type": "string"}}},
    }
    messages = [{"content": "You lead.", "role": "system"}, {"content": QUESTION, "role": "user"}]
    body = {"messages": messages, "model": "tiny", "max_completion_tokens": 300, "stream": False}
    reply = ask(client, {**body, "tools": [{"type": "function", "function": function}]})
    assert reply.status_code == 200, reply.text


def test_it_searches_as_tavily_is_searched(client):
    body = {"query": "Halm bridge", "topic": "general", "include_raw_content": True, "max_results": 2, "timeout": 60}
    reply = client.post("/search", body, headers={"authorization": "Bearer none", "x-client-source": "tavily-python"})
    results = reply.json()["results"]
    assert len(results) == 2 and json.dumps(results)
    for result in results:
        assert {"url", "title", "content", "raw_content", "score"} <= set(result)


def next_words(prompt):
    """What a good model would write next, for the prompts of open-deep-research."""
    if prompt.endswith('{"research_brief": "'):
        return 'Find out who built the Halm bridge."}'
    if prompt.endswith('{"summary": "'):
        return 'Orsolya Venn built the Halm bridge.", "key_excerpts": "Orsolya Venn built it in 1702"}'
    offered, called = prompt.partition("</tools>")[0], "<tool_response>" in prompt
    if offered == prompt:
        return "Orsolya Venn built it in 1702 [1]." if "Orsolya Venn" in prompt else "Nothing was found."
    if '"ConductResearch"' in offered and not called:
        return call("ConductResearch", research_topic="The builder of the Halm bridge, in detail.")
    if '"tavily_search"' in offered and not called:
        return call("tavily_search", queries=["Halm bridge builder"])
    return call("ResearchComplete")


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


DEEP_RESEARCH = """
import asyncio, functools, sys
import open_deep_research.utils as utils
url, question = sys.argv[1:]
utils.AsyncTavilyClient = functools.partial(utils.AsyncTavilyClient, api_base_url=url)
from open_deep_research.deep_researcher import deep_researcher

setting = {f"{part}_model": "openai:tiny" for part in ("summarization", "research", "compression", "final_report")}
setting |= {"allow_clarification": False, "search_api": "tavily"}
asked = {"messages": [{"role": "user", "content": question}]}
state = asyncio.run(deep_researcher.ainvoke(asked, {"configurable": setting}))
print(state["final_report"])
print("NOTES", *state["raw_notes"])
"""


@pytest.mark.skipif(
    not find_python("open_deep_research"), reason="open-deep-research is not installed; see docs/agents.md"
)
def test_open_deep_research_itself_searches_and_reports_with_a_scripted_model(index, tmp_path, monkeypatch):
    policy = make_policy(model=tiny.model(max_position_embeddings=1 << 17))
    renderer = policy.renderer

    async def sample(session, token_ids, params, on_tokens=None):
        ids = [*renderer.encode_parts((next_words(renderer.decode(token_ids)),)), renderer.stop_token_ids[0]]
        return Sampled(tuple(ids), (-0.5,) * len(ids), "end_of_turn")

    monkeypatch.setattr(policy.sampler, "sample", sample)
    with serving(policy, documents=Documents(index, 5)) as client:
        setting = {"OPENAI_BASE_URL": f"{client.url}/v1", "OPENAI_API_KEY": "none", "TAVILY_API_KEY": "none"}
        done = subprocess.run(
            [find_python("open_deep_research"), "-c", DEEP_RESEARCH, client.url, QUESTION],
            env={**os.environ, **setting},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    report, _, notes = done.stdout.partition("NOTES")
    assert report.strip() == "Orsolya Venn built it in 1702 [1]."
    assert f"URL: {client.url}/documents/halm-0.txt" in notes
