"""The chat sampler against a real HTTP server on this machine, one that can also misbehave."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from quaere.errors import BadInput, SamplingFailed
from quaere.policies.openai import Endpoint, OpenAISampler, parse_endpoint, restore_stop
from quaere.policies.sampler import ChatReply, SamplingParams

MESSAGES = [{"role": "user", "content": "Who built the Halm bridge?"}]


class Server:
    """An endpoint whose model name says how it behaves; it keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], dict[str, object]]] = []
        route = Route("/v1/chat/completions", self.complete, methods=["POST"])
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        config = uvicorn.Config(Starlette(routes=[route]), log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)

    async def complete(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.requests.append((dict(request.headers), body))
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        match body["model"]:
            case "echo":
                return completion(body["messages"][-1]["content"])
            case "long":
                return completion("The Halm", finish_reason="length")
            case "cut":
                return completion("<tool_call>{}")
            case "vllm":
                return completion("<answer>Venn", stop_reason="</answer>")
            case "vllm-eos":
                return completion("<answer>Venn", stop_reason=None)
            case "sglang":
                return completion("<answer>Venn", matched_stop="</answer>")
            case "filtered":
                return completion("", finish_reason="content_filter")
            case "silent":
                return completion(None)
            case "odd":
                return completion("x", finish_reason="tool_calls")
            case "locked":
                return JSONResponse({"error": {"message": f"Incorrect API key provided: {key}"}}, 401)
            case "busy-always":
                return JSONResponse({"error": {"message": "rate limit"}}, 429, {"Retry-After": "0"})
            case "busy-mute":
                return JSONResponse({"detail": "overloaded"}, 503)
            case "html":
                return PlainTextResponse("<html>\x1b[31m\ngateway</html>", 502)
            case "garbage":
                return PlainTextResponse("{not json")
            case "empty":
                return JSONResponse({"choices": []})
            case "wrong-type":
                return JSONResponse({"choices": [{"message": {"content": 7}}]})
            case "huge":
                return StreamingResponse(spaces())
            case "slow":
                return StreamingResponse(drip())
        return JSONResponse({"error": {"message": f"The model `{body['model']}` does not exist"}}, 404)


def completion(text: str | None, finish_reason: str = "stop", **extra: object) -> Response:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason, **extra}
    return JSONResponse(
        {"id": "x", "object": "chat.completion", "choices": [choice], "usage": {"completion_tokens": 5}}
    )


async def spaces() -> AsyncIterator[bytes]:
    for _ in range(64):
        yield b" " * (1 << 20)


async def drip() -> AsyncIterator[bytes]:
    for _ in range(1000):
        yield b" "
        await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def server(running: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    running.requests.clear()
    return running


async def ask(server: Server, model: str, params: SamplingParams | None = None, *, timeout_s: float = 20) -> ChatReply:
    endpoint = Endpoint(model=model, base_url=server.base_url)
    async with OpenAISampler(endpoint, timeout_s=timeout_s) as sampler:
        return await sampler.reply(MESSAGES, params or SamplingParams())


async def test_a_reply_and_what_was_sent_for_it(server: Server) -> None:
    params = SamplingParams(max_tokens=9, temperature=0.5, top_p=0.9, stop=("</answer>",), seed=3)
    assert await ask(server, "echo", params) == ChatReply(
        text="Who built the Halm bridge?", stop_reason="end_of_turn", num_tokens=5
    )
    ((headers, body),) = server.requests
    assert body == {
        "model": "echo",
        "messages": MESSAGES,
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 3,
        "stop": ["</answer>"],
    }
    assert "authorization" not in headers


async def test_extensions_are_sent_only_where_they_say_something(server: Server) -> None:
    await ask(server, "echo", SamplingParams(top_k=20, stop_token_ids=(2,)))
    await ask(server, "echo", SamplingParams())
    (_, extended), (_, plain) = server.requests
    assert (extended["top_k"], extended["stop_token_ids"]) == (20, [2])
    assert not {"top_k", "stop_token_ids", "stop"} & plain.keys()


@pytest.mark.parametrize(
    ("model", "text", "stop_reason"),
    [
        ("long", "The Halm", "length"),
        ("cut", "<tool_call>{}</tool_call>", "stop_string"),
        ("vllm", "<answer>Venn</answer>", "stop_string"),
        ("vllm-eos", "<answer>Venn", "end_of_turn"),
        ("sglang", "<answer>Venn</answer>", "stop_string"),
        ("silent", "", "end_of_turn"),
    ],
)
async def test_how_a_reply_stopped(server: Server, model: str, text: str, stop_reason: str) -> None:
    reply = await ask(server, model, SamplingParams(stop=("</tool_call>", "</answer>")))
    assert (reply.text, reply.stop_reason) == (text, stop_reason)


async def test_the_key_goes_to_the_server_and_nowhere_else(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-1234")
    await ask(server, "echo")
    assert server.requests[0][0]["authorization"] == "Bearer sk-secret-1234"
    endpoint = Endpoint(model="locked", base_url=server.base_url)
    sampler = OpenAISampler(endpoint)
    with pytest.raises(SamplingFailed, match="does not accept the key in OPENAI_API_KEY: Incorrect") as caught:
        await sampler.reply(MESSAGES, SamplingParams())
    await sampler.stop()
    assert "sk-secret" not in f"{caught.value} {caught.value.hint} {sampler.name} {vars(sampler)}"
    assert str(caught.value).endswith("provided: ***")

    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    await ask(server, "echo")
    assert server.requests[-1][0]["authorization"] == "Bearer sk-other"

    monkeypatch.setenv("OPENAI_API_KEY", "sk-\nbroken")
    with pytest.raises(SamplingFailed, match="must be printable ASCII"):
        await ask(server, "echo")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("locked", "asks for a key in OPENAI_API_KEY"),
        ("nonesuch", "has no model nonesuch, .*: The model `nonesuch` does not exist"),
        ("busy-always", "allows no more requests for now: rate limit"),
        ("busy-mute", "answered with status 503: overloaded"),
        ("html", r"answered with status 502: <html> \[31m gateway</html>$"),
        ("garbage", "sent no readable completion"),
        ("empty", "sent no readable completion: it has no choices"),
        ("wrong-type", "sent no readable completion: Expected `str | null`, got `int`"),
        ("huge", "answered with more than 8 MiB"),
        ("filtered", r"content filter blocked it"),
        ("odd", "an unknown finish_reason: tool_calls"),
    ],
)
async def test_what_goes_wrong_is_one_line(server: Server, model: str, message: str) -> None:
    with pytest.raises(SamplingFailed, match=message.replace("str | null", r"str \| null")) as caught:
        await ask(server, model)
    assert str(caught.value).isprintable()
    assert len(server.requests) == 1  # nothing is retried


async def test_a_slow_drip_meets_the_time_limit(server: Server) -> None:
    with pytest.raises(SamplingFailed, match=r"did not answer within 0\.3 s"):
        await ask(server, "slow", timeout_s=0.3)


async def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with OpenAISampler(Endpoint(model="m", base_url=f"http://127.0.0.1:{port}/v1")) as sampler:
        with pytest.raises(SamplingFailed, match="cannot be reached") as caught:
            await sampler.reply(MESSAGES, SamplingParams())
    assert caught.value.hint == f"is the server running? try: curl http://127.0.0.1:{port}/v1/models"


async def test_many_replies_at_once_share_one_sampler(server: Server) -> None:
    async with OpenAISampler(Endpoint(model="echo", base_url=server.base_url)) as sampler:
        asked = [[{"role": "user", "content": f"question {n}"}] for n in range(30)]
        replies = await asyncio.gather(*(sampler.reply(messages, SamplingParams()) for messages in asked))
    assert [reply.text for reply in replies] == [f"question {n}" for n in range(30)]


# ------------------------------------------------------------------------------------------------ the rule for stops


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("plain", ("</a>",), ("plain", "end_of_turn")),
        ("<a>x", ("</a>",), ("<a>x</a>", "stop_string")),
        ("<a>x</a>", ("</a>",), ("<a>x</a>", "stop_string")),
        ("<a>x</a> y", ("</a>",), ("<a>x</a> y", "end_of_turn")),
        ("<a>x <b>y", ("</a>", "</b>"), ("<a>x <b>y</b>", "stop_string")),
        ("<a>x <b>y", ("</a>",), ("<a>x <b>y</a>", "stop_string")),
        ("<a>x</a><a>y", ("</a>",), ("<a>x</a><a>y</a>", "stop_string")),
        ("Observation", ("\n\n", ""), ("Observation", "end_of_turn")),
        ("<a>x", (), ("<a>x", "end_of_turn")),
    ],
)
def test_the_stop_string_is_restored_where_it_can_be_known(
    text: str, stop: tuple[str, ...], expected: tuple[str, str]
) -> None:
    assert restore_stop(text, stop) == expected


@given(st.text("<a>/b ", max_size=30))
def test_restoring_twice_changes_nothing_more(text: str) -> None:
    stop = ("</a>", "</b>")
    once, reason = restore_stop(text, stop)
    assert once.startswith(text)
    assert restore_stop(once, stop) == (once, reason)


# ------------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("openai:qwen3-4b@http://localhost:8000/v1", Endpoint("qwen3-4b", "http://localhost:8000/v1")),
        ("openai:acme/m:7b@https://api.example.org/v1/", Endpoint("acme/m:7b", "https://api.example.org/v1")),
        ("openai:@cf/llama@http://[::1]:8000", Endpoint("@cf/llama", "http://[::1]:8000")),
    ],
)
def test_an_endpoint_is_read(text: str, expected: Endpoint) -> None:
    assert parse_endpoint(text) == expected
    assert OpenAISampler(expected).name == f"openai:{expected.model}@{expected.base_url}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpt@http://x", "an endpoint must be written as openai:MODEL@BASE_URL"),
        ("openai:gpt", "an endpoint must be written as openai:MODEL@BASE_URL"),
        ("openai:gpt@localhost:8000", "an endpoint must be written as openai:MODEL@BASE_URL"),
        ("openai:@http://x", "names no model"),
        ("openai:m@http://", "has no host"),
        ("openai:m@http://x:port", "URL cannot be parsed"),
        ("openai:m@http://me:secret@x/v1", "holds a user or password"),
        ("openai:m@http://x/v1?key=secret", r"may not contain \? or #"),
    ],
)
def test_an_endpoint_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        parse_endpoint(text)
    assert "secret" not in f"{caught.value} {caught.value.hint}"
