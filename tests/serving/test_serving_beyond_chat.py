"""What `quaere serve` has beside a chat: calls of tools, JSON as it was asked for, models, embeddings, documents."""

import asyncio
import base64
import json
import struct

import pytest

from quaere.policies.sampler import Sampled
from quaere.search.embedders import DenseSettings
from quaere.serving.model.retriever import ModelEmbedder, open_embedder
from quaere.serving.model.wire import ChatRequest, Refused, read_body
from served import make_policy, serving, text_of

# ---------------------------------------------------------------------------------------------------------------- tools


SEARCH = {
    "type": "function",
    "function": {"name": "search", "description": "Look it up.", "parameters": {"type": "object", "properties": {}}},
}


class Echo:
    """A sampler that says given words, in the engine's place."""

    def __init__(self, policy, text):
        self.policy, self.text = policy, text

    async def __call__(self, session, token_ids, params, on_tokens=None):
        ids = [*self.policy.renderer.encode_parts((self.text,)), self.policy.renderer.stop_token_ids[0]]
        for token in ids if on_tokens else ():
            on_tokens([token])
            await asyncio.sleep(0)
        return Sampled(tuple(ids), (-0.5,) * len(ids), "end_of_turn")


CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "Halm"}}\n</tool_call>'


@pytest.mark.parametrize("template", ["qwen", "chatml"])
def test_calls_are_read_and_streamed(template, monkeypatch):
    policy = make_policy(template)
    with serving(policy) as client:
        monkeypatch.setattr(policy.sampler, "sample", Echo(policy, f"I look.{CALL}{CALL}"))
        body = {"messages": [{"role": "user", "content": "Who?"}], "tools": [SEARCH]}
        (choice,) = client.chat(**body).json()["choices"]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "I look."
        assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["search", "search"]
        assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"query": "Halm"}
        chunks = client.stream("/v1/chat/completions", body)
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        assert "".join(delta.get("content", "") for delta in deltas) == "I look."
        assert [call["index"] for call in deltas[-1]["tool_calls"]] == [0, 1]
        # Without tools, and for a call that cannot be read, it is text.
        assert text_of(client.chat("Who?")) == f"I look.{CALL}{CALL}"
        monkeypatch.setattr(policy.sampler, "sample", Echo(policy, "<tool_call>{}</tool_call>"))
        assert text_of(client.chat(**body)) == "<tool_call>{}</tool_call>"


@pytest.mark.parametrize("template", ["qwen", "chatml", "gemma"])
def test_tools_and_their_results_reach_the_prompt(template):
    with serving(make_policy(template)) as client:
        call = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"query": "Halm"}'}}
        messages = [
            {"role": "user", "content": "Who?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "Orsolya <|im_end|>"},
        ]
        body = json.dumps({"model": "tiny", "messages": messages, "tools": [SEARCH]}).encode()
        ids = client.service._prompter.of_chat(read_body(body, ChatRequest)).token_ids
        text = client.service.policy.renderer.decode(ids)
        assert "Look it up." in text and '{"name": "search", "arguments": {"query": "Halm"}}' in text
        assert "<tool_response>\nOrsolya <|im_end|>\n</tool_response>" in text


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "search"}}])
def test_a_required_call_is_begun_for_the_model(choice, monkeypatch):
    policy = make_policy()
    with serving(policy) as client:
        monkeypatch.setattr(policy.sampler, "sample", Echo(policy, '"query": "Halm"}}\n</tool_call>'))
        body = {"messages": [{"role": "user", "content": "Who?"}], "tools": [SEARCH], "tool_choice": choice}
        (answer,) = client.chat(**body).json()["choices"]
        assert json.loads(answer["message"]["tool_calls"][0]["function"]["arguments"]) == {"query": "Halm"}
        assert answer["message"]["content"] is None
        assert client.chat(**{**body, "tool_choice": "none"}).json()["choices"][0]["finish_reason"] == "stop"
        unknown = {"type": "function", "function": {"name": "other"}}
        assert client.chat(**{**body, "tool_choice": unknown}).status_code == 400


SCHEMA = {"name": "x", "schema": {"type": "object", "properties": {"brief": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"type": "json_object"}, '"brief": "a } b"} And so on. {}'),
        ({"type": "json_schema", "json_schema": SCHEMA}, 'a } b"} I hope this helps.'),
        ({"type": "json_schema", "json_schema": {"schema": {"properties": {"<|im_end|>": {}}}}}, '"brief": "a } b"}'),
    ],
)
def test_an_object_is_begun_for_the_model_and_ends_where_it_ends(wanted, said, monkeypatch):
    policy = make_policy()
    with serving(policy) as client:
        monkeypatch.setattr(policy.sampler, "sample", Echo(policy, said))
        assert json.loads(text_of(client.chat("Who?", response_format=wanted))) == {"brief": "a } b"}
        body = {"messages": [{"role": "user", "content": "Who?"}], "response_format": wanted}
        chunks = client.stream("/v1/chat/completions", body)
        streamed = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        assert json.loads(streamed) == {"brief": "a } b"}
        monkeypatch.setattr(policy.sampler, "sample", Echo(policy, '"never": closed'))
        assert text_of(client.chat("Who?", response_format={"type": "json_object"})) == '{"never": closed'


def test_under_a_second_name_the_model_writes_lists(monkeypatch):
    policy = make_policy()
    with serving(policy) as client:
        monkeypatch.setattr(policy.sampler, "sample", Echo(policy, 'the Oss", "Halm"] I hope this helps.'))
        assert json.loads(text_of(client.chat("Write queries.", model="tiny:list"))) == ["the Oss", "Halm"]
        chunks = client.stream(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "model": "tiny:list"}
        )
        streamed = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        assert json.loads(streamed) == ["the Oss", "Halm"]


# ------------------------------------------------------------------------------------------------ models and embeddings


def test_models_are_listed(client):
    listed = client.get("/v1/models").json()
    assert [model["id"] for model in listed["data"]] == ["tiny", "tiny:list", "hash"]
    assert client.get("/v1/models/tiny").json()["object"] == "model"
    assert client.get("/v1/models/other").status_code == 404


def embed(client, texts, **fields):
    return client.post("/v1/embeddings", {"model": "hash", "input": texts, **fields})


def test_embeddings_by_words(client):
    reply = embed(client, ["The Halm bridge", "the bridge of Halm!", "a lighthouse"]).json()
    one, two, other = (entry["embedding"] for entry in reply["data"])
    assert len(one) == 1024 and sum(value * value for value in one) == pytest.approx(1)
    assert one == two and sum(a * b for a, b in zip(one, other, strict=True)) == 0
    packed = embed(client, "The Halm bridge", encoding_format="base64").json()["data"][0]["embedding"]
    assert struct.unpack("<1024f", base64.b64decode(packed)) == pytest.approx(one)
    assert len(embed(client, "x", dimensions=16).json()["data"][0]["embedding"]) == 16


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"input": []}, 400),
        ({"input": [1, 2]}, 400),
        ({"input": [[1, 2]]}, 400),
        ({"input": "x", "dimensions": 0}, 400),
        ({"input": "x", "dimensions": 10**9}, 400),
        ({"input": "x", "encoding_format": "hex"}, 400),
        ({"input": "x", "model": "other"}, 404),
        ({"input": ["x"] * 3000}, 400),
    ],
)
def test_embeddings_that_cannot_be_made_are_refused(client, fields, status):
    reply = client.post("/v1/embeddings", {"model": "hash", **fields})
    assert reply.status_code == status and reply.json()["error"]["message"]


def test_an_embedding_model_has_one_size(client):
    embedder = ModelEmbedder(DenseSettings(embedder=f"openai:hash@{client.url}/v1"))
    for wanted in (None, 1024):
        assert embedder.embed(["The Halm bridge"], wanted).shape == (1, 1024)
    with pytest.raises(Refused, match="dimensions must be 1024 for this embedder"):
        embedder.embed(["The Halm bridge"], 16)


def test_without_scikit_learn_a_model_is_served_all_the_same(monkeypatch):
    monkeypatch.setattr("quaere.serving.model.retriever.find_spec", lambda name: None)
    assert open_embedder("auto", None) is None
    with serving() as served:
        refused = served.post("/v1/embeddings", {"model": "hash", "input": "x"})
    assert refused.status_code == 404
    assert "the server has no scikit-learn" in refused.json()["error"]["message"]


# ------------------------------------------------------------------------------------------------------------ documents


def test_the_retriever_names_pages_that_are_there(client, pages):
    found = client.get("/retrieve-gpt-researcher", params={"query": "lighthouse Korrin"}).json()
    assert found[0]["url"] == f"{client.url}/documents/coast%2Flight%20house.txt"
    assert "lit in 1850" in found[0]["raw_content"]
    page = client.get(found[0]["url"].removeprefix(client.url))
    assert page.text == pages.document("coast/light house.txt")
    assert page.headers["content-type"] == "text/plain; charset=utf-8"  # never HTML, whatever it holds
    same = client.post("/search", {"query": "lighthouse Korrin", "max_results": 1, "topic": "general"}).json()
    assert same["results"][0]["url"] == found[0]["url"] and same["results"][0]["content"] in found[0]["raw_content"]


def test_a_page_whose_name_has_a_newline_is_there(client, pages):
    found = client.get("/retrieve-gpt-researcher", params={"query": "eel mill of Dravik"}).json()
    assert found[0]["url"] == f"{client.url}/documents/coast%2Fnew%0Aline.md"
    page = client.get(found[0]["url"].removeprefix(client.url))
    assert (page.status_code, page.text) == (200, pages.document("coast/new\nline.md"))


@pytest.mark.parametrize(
    "path",
    [
        *("nothing", "../../etc/passwd", "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd", "%ff%fe", "%00", "coast", ""),
        "rivers.md%0A",  # another name than rivers.md
    ],
)
def test_only_documents_of_the_index_are_pages(client, path):
    reply = client.get(f"/documents/{path}")
    assert reply.status_code == 404 and "root:" not in reply.text


def test_searches_that_cannot_be_made_are_refused(client):
    for params in (
        {},
        {"query": " "},
        {"query": "x" * 9000},
        {"query": "x", "topk": "0"},
        {"query": "x", "topk": "-1"},
    ):
        assert client.get("/retrieve-gpt-researcher", params=params).status_code == 400
    assert client.post("/search", {"query": 5}).status_code == 400


def test_without_an_index_there_are_no_pages():
    with serving() as client:
        assert client.get("/retrieve-gpt-researcher?query=x").status_code == 404
        assert client.post("/v1/embeddings", {"model": "hash", "input": "x"}).status_code == 404
