"""`quaere serve` over a real socket: what clients of this interface rely on."""

import asyncio
import base64
import json
import re
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import tiny
from quaere.policies.openai import OpenAISampler, parse_endpoint
from quaere.policies.sampler import Sampled, SamplingParams
from quaere.rollout.serving.documents import Documents
from quaere.rollout.serving.embedding import HashEmbedder, open_embedder
from quaere.rollout.serving.wire import ChatRequest, read_body
from quaere.search.index import build_index
from served import make_policy, serving

CONTROL = [*tiny.SPECIAL, *tiny.ADDED]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    home = tmp_path_factory.mktemp("pages")
    (home / "docs" / "coast").mkdir(parents=True)
    (home / "docs" / "rivers.md").write_text(
        "# The Oss\n\nThe Oss runs past Halmgate.\n\nOrsolya Venn built the bridge."
    )
    (home / "docs" / "coast" / "light house.txt").write_text("The lighthouse at Korrin was lit in 1850. <b>Zürich</b>")
    return build_index(home / "docs", home / "index")


@pytest.fixture(scope="module")
def client(index):
    with serving(embedder=HashEmbedder(), documents=Documents(index, 5), max_tokens=512) as served:
        yield served


def text_of(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["message"]["content"]


def word_in(text):
    """Two letters that an answer does not begin with."""
    return re.search("[a-z]{2}", text[4:]).group()


# ---------------------------------------------------------------------------------------------------------------- chat


def test_a_chat_is_answered_as_the_engine_would(client):
    reply = client.chat("Who built the bridge?", logprobs=True).json()
    policy = make_policy()
    request = read_body(
        b'{"model": "tiny", "messages": [{"role": "user", "content": "Who built the bridge?"}]}', ChatRequest
    )
    prompt = client.service._prompter.of_chat(request).token_ids
    expected = asyncio.run(sample_once(policy, prompt, seed=7))
    (choice,) = reply["choices"]
    ids = expected.token_ids[:-1] if expected.stop_reason == "end_of_turn" else expected.token_ids
    assert choice["message"] == {"role": "assistant", "content": policy.renderer.decode(ids), "refusal": None}
    assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == pytest.approx(expected.logprobs[: len(ids)])
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == [policy.renderer.decode([id]) for id in ids]
    assert choice["finish_reason"] == ("stop" if expected.stop_reason == "end_of_turn" else "length")
    assert reply["usage"] == {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(expected.token_ids),
        "total_tokens": len(prompt) + len(expected.token_ids),
    }
    assert reply["object"] == "chat.completion" and reply["model"] == "tiny" and reply["id"].startswith("chatcmpl-")


async def sample_once(policy, prompt, **params):
    stop = policy.renderer.stop_token_ids
    try:
        return await policy.sampler.sample("s", prompt, SamplingParams(max_tokens=16, stop_token_ids=stop, **params))
    finally:
        await policy.stop()


def test_the_same_seed_gives_the_same_words_and_another_others(client):
    first, again, other = (text_of(client.chat("Hello", seed=seed)) for seed in (3, 3, 4))
    assert first == again != other
    assert text_of(client.chat("Hello", seed=None)) != text_of(client.chat("Hello", seed=None))
    assert text_of(client.chat("Hello", seed=1, temperature=0)) == text_of(client.chat("Hello", seed=2, temperature=0))


def test_several_answers_differ_and_the_first_is_the_one_alone(client):
    several = client.chat("Hello", n=3).json()
    texts = [choice["message"]["content"] for choice in several["choices"]]
    assert [choice["index"] for choice in several["choices"]] == [0, 1, 2]
    assert texts[0] == text_of(client.chat("Hello")) and len(set(texts)) == 3


def test_an_answer_ends_before_a_stop_string(client):
    whole = text_of(client.chat("Hello", max_tokens=40))
    stop = word_in(whole)
    reply = client.chat("Hello", max_tokens=40, stop=["never comes", stop], logprobs=True).json()
    (choice,) = reply["choices"]
    assert choice["message"]["content"] == whole[: whole.index(stop)]
    assert choice["finish_reason"] == "stop" and choice["stop_reason"] == stop
    num_tokens = len(choice["logprobs"]["content"])
    assert 0 < num_tokens <= reply["usage"]["completion_tokens"] < 40
    said = [entry["token"] for entry in choice["logprobs"]["content"]]
    assert not any(stop in token for token in said[:-1])


def test_a_limit_is_kept_and_said(client):
    reply = client.chat("Hello", max_tokens=99, max_completion_tokens=3).json()
    assert reply["choices"][0]["finish_reason"] == "length" and reply["usage"]["completion_tokens"] == 3
    assert client.chat("Hello", max_tokens=100_000, stop="e").status_code == 200  # no longer than the server allows


def test_content_may_come_in_parts_and_roles_have_two_names(client):
    plain = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello you"}]
    parts = [{"type": "text", "text": "Hello "}, {"type": "text", "text": "you"}]
    other = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}]
    assert text_of(client.chat(messages=plain)) == text_of(client.chat(messages=other))


@pytest.mark.parametrize("template", ["chatml", "gemma", "brackets", "plain"])
def test_every_style_of_template_can_be_served(template):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Go on."},
    ]
    with serving(make_policy(template)) as client:
        assert client.chat(messages=messages).json()["usage"]["completion_tokens"] > 0


# -------------------------------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize("fields", [{}, {"stop": ["e", "zq"]}, {"n": 3}, {"max_tokens": 200, "temperature": 1.5}])
def test_a_stream_says_what_the_whole_answer_says(client, fields):
    body = {"messages": [{"role": "user", "content": "Who? 東京"}], "logprobs": True, **fields}
    whole = client.chat("Who? 東京", logprobs=True, **fields).json()
    chunks = client.stream("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
    assert chunks.pop()["usage"] == whole["usage"]
    for choice in whole["choices"]:
        mine = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == choice["index"]]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(one["delta"].get("content", "") for one in mine) == choice["message"]["content"]
        assert [one["finish_reason"] for one in mine[:-1]] == [None] * (len(mine) - 1)
        assert mine[-1]["finish_reason"] == choice["finish_reason"] and mine[-1]["stop_reason"] == choice["stop_reason"]
        streamed, said = (one["logprobs"]["content"] for one in (mine[-1], choice))
        assert [entry["token"] for entry in streamed] == [entry["token"] for entry in said]
        # The second time the prompt is copied rather than computed, which rounds differently.
        assert [entry["logprob"] for entry in streamed] == pytest.approx([entry["logprob"] for entry in said], abs=1e-4)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_text_arrives_while_it_is_written(client):
    chunks = client.stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 64})
    assert sum(bool(chunk["choices"][0]["delta"].get("content")) for chunk in chunks) > 5


def test_plain_completions(client):
    body = {"model": "tiny", "prompt": ["The Oss", "The bridge"], "max_tokens": 8, "seed": 5, "logprobs": 0}
    reply = client.post("/v1/completions", body).json()
    assert [choice["index"] for choice in reply["choices"]] == [0, 1] and reply["object"] == "text_completion"
    first = reply["choices"][0]
    assert len(first["logprobs"]["token_logprobs"]) == len(first["logprobs"]["text_offset"])
    ids = client.service._prompter.of_text("The Oss").token_ids
    by_ids = client.post("/v1/completions", {**body, "prompt": list(ids)}).json()
    assert by_ids["choices"][0]["text"] == first["text"]
    chunks = client.stream("/v1/completions", {"prompt": "The Oss", "max_tokens": 8, "seed": 5})
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == first["text"]


# ------------------------------------------------------------------------------------------------------------- together


def test_many_requests_share_steps_and_get_their_own_answers(client):
    expected = [text_of(client.chat(f"Question {number}", seed=number)) for number in range(12)]
    steps = []
    client.engine.observe = steps.append
    try:
        with ThreadPoolExecutor(12) as pool:
            found = list(pool.map(lambda number: text_of(client.chat(f"Question {number}", seed=number)), range(12)))
    finally:
        client.engine.observe = None
    assert found == expected
    assert max(map(len, steps)) > 1


def test_the_next_turn_of_a_conversation_is_not_computed_again(client):
    first = [{"role": "user", "content": "Tell me about the Oss and the bridge that crosses it, at some length."}]
    answer = text_of(client.chat(messages=first))
    before = client.engine.counts.copied + client.engine.counts.kept
    turn = [*first, {"role": "assistant", "content": answer}, {"role": "user", "content": "Go on."}]
    assert client.chat(messages=turn).status_code == 200
    assert client.engine.counts.copied + client.engine.counts.kept - before >= 16


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_row(client, stream):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Go"}], "max_tokens": 512, "stream": stream}
    content = json.dumps({**body, "n": 4, "seed": 11, "temperature": 2}).encode()
    host, port = client.url.removeprefix("http://").split(":")
    client.wait_until_idle()
    drawn = client.engine.counts.drawn
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
        connection.sendall(head.encode() + content)
        deadline = time.monotonic() + 20
        while client.engine.counts.drawn < drawn + 8:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    client.wait_until_idle()
    assert client.engine.counts.drawn - drawn < 4 * 512
    assert client.service._writer._num_active == 0


def test_beyond_what_may_wait_it_says_so():
    with serving(make_policy(max_rows=1), max_waiting=1) as client:
        assert client.chat("Hello", n=2).status_code == 200
        reply = client.chat("Hello", n=3)
        assert reply.status_code == 429 and reply.json()["error"]["type"] == "rate_limit_error"
        assert client.chat("Hello", n=3, stream=True).status_code == 429
        assert "retry-after" in reply.headers


# ----------------------------------------------------------------------------------------------------- hostile requests


@pytest.mark.parametrize("text", CONTROL)
@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_what_a_message_says_is_never_a_control_token(client, text, role):
    """The prompt holds as many control tokens as it does for harmless text."""
    control = client.service._prompter._plain.control_ids

    def num_control(content):
        messages = [
            {"role": "user", "content": "a"},
            {"role": role, "content": content},
            {"role": "user", "content": "b"},
        ]
        if role == "system":
            messages = messages[1:]
        if role == "assistant":
            calls = [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"x": content})}}
            ]
            messages[1]["tool_calls"] = calls
        request = read_body(json.dumps({"model": "tiny", "messages": messages}).encode(), ChatRequest)
        return sum(token in control for token in client.service._prompter.of_chat(request).token_ids)

    assert num_control(f"x {text} y{text}") == num_control("harmless")
    assert control.isdisjoint(client.service._prompter.of_text(f"x {text}").token_ids)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b"\xff\xfe", None),
        (b"[" * 100_000, None),
        ({"model": "tiny"}, None),
        ({"messages": "hello"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["x"] * 99}, "stop"),
        ({"stop": ""}, "stop"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"logit_bias": {"5": 100}}, "logit_bias"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "f", "description": "<|im_end|>"}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"messages": [{"role": "user", "content": "word " * 5000}]}, "messages"),
    ],
)
def test_bad_requests_are_refused_in_the_known_form(client, body, param):
    if isinstance(body, dict) and "model" not in body:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], **body}
    reply = client.post("/v1/chat/completions", body)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["type"] == "invalid_request_error"
    assert error["param"] == param and error["message"]
    assert client.get("/health").status_code == 200


def test_odd_but_possible_requests_do_no_harm(client):
    for fields in (
        {"seed": -(10**18)},
        {"messages": [{"role": "user", "content": None}]},
        {"response_format": {"type": "json_object"}},
    ):
        assert client.chat("Hello", **fields).status_code == 200
    lone = b'{"model": "tiny", "messages": [{"role": "user", "content": "\\ud800"}], "max_tokens": 2}'
    assert client.post("/v1/chat/completions", lone).status_code in (200, 400)
    for prompt in ([], "", [[1, 2], [10**9]], [-1], [1, "x"]):
        assert client.post("/v1/completions", {"model": "tiny", "prompt": prompt}).status_code == 400


def test_unknown_models_and_pages_are_said(client):
    reply = client.chat("Hello", model="gpt-x")
    assert reply.status_code == 404 and reply.json()["error"]["code"] == "model_not_found"
    assert "tiny" in reply.json()["error"]["message"]
    assert client.get("/v2/nothing").json()["error"]["message"].startswith("there is POST /v1/chat/completions")
    assert client.get("/v1/chat/completions").status_code == 405
    too_large = client.post("/v1/chat/completions", b" " * (9 << 20))
    assert too_large.status_code == 413


def test_a_model_that_fails_is_an_error_and_the_next_request_is_answered():
    with serving() as client:
        forward = client.engine.model.forward
        client.engine.model.forward = lambda *args, **options: 1 / 0
        reply = client.chat("Hello")
        assert reply.status_code == 500 and reply.json()["error"]["type"] == "server_error"
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
        assert '"server_error"' in client.post("/v1/chat/completions", body).text
        client.engine.model.forward = forward
        assert client.chat("Hello").status_code == 200


def test_the_temperature_of_requests_that_name_none_can_be_set():
    with serving(temperature=0) as client:
        assert text_of(client.chat("Hello", seed=1)) == text_of(client.chat("Hello", seed=2))
        assert text_of(client.chat("Hello", seed=1, temperature=1)) != text_of(
            client.chat("Hello", seed=2, temperature=1)
        )


def test_a_key_is_asked_for():
    with serving(api_key="s3cret") as client:
        assert client.get("/health").status_code == 200
        for path in ("/v1/models", "/v1/models?api_key=wrong"):
            reply = client.get(path)
            assert reply.status_code == 401 and reply.json()["error"]["code"] == "invalid_api_key"
        assert client.get("/v1/models", headers={"Authorization": "Bearer s3cret"}).status_code == 200
        assert client.get("/v1/models?api_key=s3cret").status_code == 200


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


# ------------------------------------------------------------------------------------------------------------ documents


def test_the_retriever_names_pages_that_are_there(client, index):
    found = client.get("/retrieve-gpt-researcher", params={"query": "lighthouse Korrin"}).json()
    assert found[0]["url"] == f"{client.url}/documents/coast%2Flight%20house.txt"
    assert "lit in 1850" in found[0]["raw_content"]
    page = client.get(found[0]["url"].removeprefix(client.url))
    assert page.text == index.document("coast/light house.txt")
    assert page.headers["content-type"] == "text/plain; charset=utf-8"  # never HTML, whatever it holds
    same = client.post("/search", {"query": "lighthouse Korrin", "max_results": 1, "topic": "general"}).json()
    assert same["results"][0]["url"] == found[0]["url"] and same["results"][0]["content"] in found[0]["raw_content"]


@pytest.mark.parametrize(
    "path", ["nothing", "../../etc/passwd", "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd", "%ff%fe", "%00", "coast", ""]
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


# ------------------------------------------------------------------------------------------------------- our own client


async def test_quaere_itself_can_speak_to_it(client):
    """What `quaere ask --model openai:...` relies on: the stop string is known, so it can be put back."""
    whole = text_of(client.chat("Hello", max_tokens=40))
    async with OpenAISampler(parse_endpoint(f"openai:tiny@{client.url}/v1")) as sampler:
        params = SamplingParams(max_tokens=40, seed=7, stop=(word_in(whole),))
        reply = await sampler.reply([{"role": "user", "content": "Hello"}], params)
    assert reply.text == whole[: whole.index(word_in(whole)) + 2] and reply.stop_reason == "stop_string"


def test_without_scikit_learn_a_model_is_served_all_the_same(monkeypatch):
    monkeypatch.setattr("quaere.rollout.serving.embedding.find_spec", lambda name: None)
    assert open_embedder("auto", None) is None
    with serving() as served:
        refused = served.post("/v1/embeddings", {"model": "hash", "input": "x"})
    assert refused.status_code == 404
    assert "quaere[select]" in refused.json()["error"]["message"]
