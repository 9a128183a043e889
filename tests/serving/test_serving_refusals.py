"""`quaere serve` and requests that are wrong, hostile, odd or not allowed: none does harm to the next."""

import json
import threading

import pytest

import tiny
from quaere.serving.model.wire import ChatRequest, read_body
from served import make_policy, serving

CONTROL = [*tiny.SPECIAL, *tiny.ADDED]


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


@pytest.mark.parametrize(
    "fields", [{"temperature": -1}, {"n": 0}, {"stop": ""}, {"logit_bias": {"5": 100}}, {"best_of": 2}, {"echo": True}]
)
def test_a_completion_is_refused_for_what_a_chat_is_and_for_its_own_options(client, fields):
    reply = client.post("/v1/completions", {"model": "tiny", "prompt": "Hello", **fields})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, *fields)


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


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 1_400_000}]}),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "x"}], "tools": [{"function": {"name": "f" * 7_000_000}}]},
        ),
        ("/v1/completions", {"prompt": "word " * 1_400_000}),
    ],
)
def test_a_prompt_that_is_too_long_is_refused_before_it_is_tokenised(client, monkeypatch, path, body):
    """7 MB took half a minute to find out."""
    for name in ("of_chat", "of_text"):
        monkeypatch.setattr(client.service._prompter, name, lambda *given: pytest.fail("it was tokenised"))
    reply = client.post(path, {"model": "tiny", **body})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_no_prompt_that_fits_is_refused_by_its_length(client):
    """The longest text of as many tokens as the model takes is within the bound."""
    renderer, service = client.service.policy.renderer, client.service
    longest = max(renderer.tokenizer.get_vocab().values(), key=lambda token: len(renderer.decode([token])))
    text = renderer.decode([longest]) * service.policy.sampler.max_positions
    assert len(text) <= service.policy.sampler.max_positions * service._prompter.max_token_chars


def test_what_is_being_tokenised_is_counted():
    gate, entered = threading.Event(), threading.Event()
    with serving(make_policy(max_rows=1), max_waiting=0) as client:
        tokenise = client.service._prompter.of_chat

        def held(request):
            entered.set()
            assert gate.wait(timeout=30)
            return tokenise(request)

        client.service._prompter.of_chat = held
        replies = []
        first = threading.Thread(target=lambda: replies.append(client.chat("Hello")))
        first.start()
        assert entered.wait(timeout=30)
        refused = client.chat("Hello")
        assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
        gate.set()
        first.join(timeout=30)
        assert replies[0].status_code == 200
        assert client.chat("Hello").status_code == 200


def test_conversations_of_long_ago_are_let_go():
    """As many stay as there are rows, for their next turns."""
    with serving(make_policy(max_rows=2)) as client:
        for _ in range(4):
            assert client.chat("Hello", max_tokens=1).status_code == 200
        assert len(client.service.policy.sampler._sessions) == 2


def test_pages_from_elsewhere_and_bodies_that_are_not_json_are_refused(client):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]}
    for headers, status in (
        ({"host": "evil.example"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"content-type": "text/plain"}, 415),
    ):
        reply = client.post("/v1/chat/completions", body, headers=headers)
        assert reply.status_code == status
        assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
    assert client.get("/documents/rivers.md", headers={"host": "evil.example"}).status_code == 403


def test_health_is_503_with_the_reason_after_the_engine_has_ended(monkeypatch):
    def fail():
        raise RuntimeError("the device is lost")

    with serving() as client:
        assert (client.get("/health").status_code, client.get("/health").json()["status"]) == (200, "ok")
        for name in ("step", "reset"):
            monkeypatch.setattr(client.engine, name, fail)
        for _ in range(2):  # the first may be answered while the engine is ending
            assert client.chat("Hello").status_code == 500
        reply = client.get("/health")
        assert (reply.status_code, reply.json()["status"]) == (503, "ended")
        assert reply.json()["reason"] == "the model failed while sampling: RuntimeError: the device is lost"


def test_a_key_is_asked_for():
    with serving(key="s3cret") as client:
        assert client.get("/health").status_code == 200
        for path in ("/v1/models", "/v1/models?api_key=wrong"):
            reply = client.get(path)
            assert reply.status_code == 401 and reply.json()["error"]["code"] == "invalid_api_key"
        assert client.get("/v1/models", headers={"Authorization": "Bearer s3cret"}).status_code == 200
        assert client.get("/v1/models?api_key=s3cret").status_code == 200
