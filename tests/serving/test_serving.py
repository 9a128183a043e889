"""`quaere serve` over a real socket: what clients of this interface rely on."""

import asyncio
import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from quaere.errors import BadInput, SamplingFailed
from quaere.policies.openai import OpenAISampler, parse_endpoint
from quaere.policies.sampler import SamplingParams
from quaere.serving.model.app import Service
from quaere.serving.model.wire import ChatRequest, read_body
from served import make_policy, serving, text_of


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


def test_the_temperature_of_requests_that_name_none_can_be_set():
    with serving(temperature=0) as client:
        assert text_of(client.chat("Hello", seed=1)) == text_of(client.chat("Hello", seed=2))
        assert text_of(client.chat("Hello", seed=1, temperature=1)) != text_of(
            client.chat("Hello", seed=2, temperature=1)
        )


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


@pytest.mark.parametrize("fields", [{}, {"stop": ["e", "zq"]}, {"n": 3}, {"max_tokens": 60, "temperature": 1.5}])
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
    expected = [text_of(client.chat(f"Question {number}", seed=number)) for number in range(6)]
    steps = []
    client.engine.observe = steps.append
    try:
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda number: text_of(client.chat(f"Question {number}", seed=number)), range(6)))
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
def test_a_client_that_goes_away_frees_its_row(client, stream, logged):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Go"}], "max_tokens": 512, "stream": stream}
    content = json.dumps({**body, "n": 4, "seed": 11, "temperature": 2}).encode()
    host, port = client.url.removeprefix("http://").split(":")
    client.wait_until_idle()
    drawn = client.engine.counts.drawn
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        deadline = time.monotonic() + 20
        while client.engine.counts.drawn < drawn + 8:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    client.wait_until_idle()
    assert client.engine.counts.drawn - drawn < 4 * 512
    assert client.service._writer._num_active == 0
    deadline = time.monotonic() + 20
    while not logged:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert f"POST /v1/chat/completions {200 if stream else 499} " in logged[-1].getMessage()


def test_beyond_what_may_wait_it_says_so():
    with serving(make_policy(max_rows=1), max_waiting=1) as client:
        assert client.chat("Hello", n=2).status_code == 200
        reply = client.chat("Hello", n=3)
        assert reply.status_code == 429 and reply.json()["error"]["type"] == "rate_limit_error"
        assert client.chat("Hello", n=3, stream=True).status_code == 429
        assert "retry-after" in reply.headers


@pytest.mark.parametrize("wrong", [{"max_tokens": 0}, {"max_waiting": -1}, {"temperature": -0.1}, {"temperature": 2.1}])
def test_limits_under_which_nothing_could_be_served_are_refused(wrong):
    Service(name="tiny", policy=make_policy(), max_tokens=1, max_waiting=0, temperature=2.0)
    with pytest.raises(BadInput, match="max_tokens must be at least 1"):
        Service(name="tiny", policy=make_policy(), **wrong)


async def test_a_server_that_ends_lets_go_of_its_model():
    with serving() as client:
        assert client.chat("Hello").status_code == 200
    with pytest.raises(SamplingFailed):
        await client.service.policy.sampler.sample("later", (1,), SamplingParams())


# ------------------------------------------------------------------------------------------------------- our own client


async def test_quaere_itself_can_speak_to_it(client):
    """What `quaere ask --model openai:...` relies on: the stop string is known, so it can be put back."""
    whole = text_of(client.chat("Hello", max_tokens=40))
    async with OpenAISampler(parse_endpoint(f"openai:tiny@{client.url}/v1")) as sampler:
        params = SamplingParams(max_tokens=40, seed=7, stop=(word_in(whole),))
        reply = await sampler.reply([{"role": "user", "content": "Hello"}], params)
    assert reply.text == whole[: whole.index(word_in(whole)) + 2] and reply.stop_reason == "stop_string"
