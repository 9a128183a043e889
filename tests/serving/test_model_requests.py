"""Requests to a served model, without a server: where their limits lie, and what is read from them."""

import sys

import msgspec
import pytest

import tiny
from quaere.chat.markup import SEARCH, ToolCall
from quaere.chat.renderer import Renderer
from quaere.errors import ExtraMissing
from quaere.serving.model import retriever
from quaere.serving.model.generation import Prompt, Prompter, Written, _first_of, _json_length, _safe_length
from quaere.serving.model.replies import ChatForm, TextForm, usage_of
from quaere.serving.model.wire import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    Refused,
    error_form,
    read_body,
)

HELLO = {"role": "user", "content": "Hello"}


def chat(**fields):
    return read_body(msgspec.json.encode({"model": "m", "messages": [HELLO], **fields}), ChatRequest)


def completion(**fields):
    return read_body(msgspec.json.encode({"model": "m", "prompt": "Hello", **fields}), CompletionRequest)


# -------------------------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("make", "inside", "outside"),
    [
        (chat, {"messages": [HELLO]}, {"messages": []}),
        (chat, {"n": 1}, {"n": 0}),
        (chat, {"n": 16}, {"n": 17}),
        (chat, {"temperature": 0}, {"temperature": -0.1}),
        (chat, {"temperature": 2}, {"temperature": 2.1}),
        (chat, {"top_k": -1}, {"top_k": -2}),
        (chat, {"top_p": 0.01}, {"top_p": 0}),
        (chat, {"top_p": 1}, {"top_p": 1.01}),
        (chat, {"max_tokens": 1}, {"max_tokens": 0}),
        (chat, {"stop": ["x"] * 16}, {"stop": ["x"] * 17}),
        (chat, {"stop": "x" * 256}, {"stop": "x" * 257}),
        (chat, {"stop": "x"}, {"stop": ["x", ""]}),
        (chat, {"top_logprobs": 0}, {"top_logprobs": 1}),
        (chat, {"tools": [{"function": {"name": "f"}}] * 128}, {"tools": [{"function": {"name": "f"}}] * 129}),
        (chat, {"response_format": {"type": "json_list"}}, {"response_format": {"type": "xml"}}),
        (completion, {"prompt": ["a"] * 16}, {"prompt": ["a"] * 17}),
        (completion, {"prompt": ["a"] * 8, "n": 2}, {"prompt": ["a"] * 9, "n": 2}),
        (completion, {"logprobs": 1}, {"logprobs": 2}),
        (completion, {"logprobs": 0}, {"logprobs": -1}),
        (completion, {"best_of": 2, "n": 2}, {"best_of": 3, "n": 2}),
        (completion, {"echo": False}, {"echo": True}),
        (completion, {"suffix": ""}, {"suffix": "x"}),
    ],
)
def test_a_limit_is_allowed_and_what_lies_beyond_it_is_not(make, inside, outside):
    make(**inside).check()
    with pytest.raises(Refused) as caught:
        make(**outside).check()
    assert (caught.value.status, caught.value.param) == (400, next(iter(outside)))


def test_the_type_of_an_error_follows_its_status():
    said = {status: error_form(status, "no")["error"] for status in (400, 401, 429, 499, 500, 503)}
    assert {status: error["type"] for status, error in said.items()} == {
        400: "invalid_request_error",
        401: "authentication_error",
        429: "rate_limit_error",
        499: "invalid_request_error",
        500: "server_error",
        503: "server_error",
    }
    assert [status for status, error in said.items() if error["code"] == "invalid_api_key"] == [401]
    assert {error["message"] for error in said.values()} == {"no"}


# ------------------------------------------------------------------------------------------------------ what is read


def test_how_an_answer_is_sampled():
    plain = chat().sampling(64, 0.7, seed=5)
    assert (plain.max_tokens, plain.temperature, plain.top_p, plain.top_k) == (64, 0.7, 1.0, 0)
    assert (plain.stop, plain.seed) == ((), 5)
    asked = chat(temperature=0, top_p=0.5, top_k=9, stop="x", n=3, stream_options={"include_usage": True})
    chosen = asked.sampling(64, 0.7, seed=5)
    assert (chosen.temperature, chosen.top_p, chosen.top_k, chosen.stop) == (0.0, 0.5, 9, ("x",))
    assert chat(top_k=-1).sampling(64, 0.7, seed=5).top_k == 0  # -1 is how some clients say "all"
    assert (asked.num_choices, asked.wants_usage) == (3, True)
    assert (chat().num_choices, chat().wants_usage) == (1, False)
    assert chat(max_tokens=7).wanted_tokens == 7
    assert chat(max_tokens=7, max_completion_tokens=9).wanted_tokens == 9


def test_all_that_is_tokenised_is_counted():
    assert chat().num_chars == 5
    call = {"function": {"name": "search", "arguments": '{"q": 1}'}}
    assert chat(messages=[HELLO, {"role": "assistant", "tool_calls": [call]}]).num_chars == 5 + 6 + 8
    tools = [{"function": {"name": "é"}}]
    assert chat(tools=tools).num_chars == 5 + len(msgspec.json.encode(chat(tools=tools).tools).decode())
    assert completion(prompt=["ab", "abcd", [1, 2, 3]]).num_chars == 4
    assert completion(prompt=[]).num_chars == 0


def test_prompts_are_text_or_token_ids():
    assert completion().prompts == ["Hello"]
    assert completion(prompt=[1, 2]).prompts == [[1, 2]]
    assert completion(prompt=["a", [1, 2]]).prompts == ["a", [1, 2]]
    with pytest.raises(Refused, match="must not mix"):
        _ = completion(prompt=[1, "a"]).prompts


def test_texts_to_embed():
    def texts(given):
        return read_body(msgspec.json.encode({"model": "hash", "input": given}), EmbeddingRequest).texts

    assert texts("a") == ["a"]
    assert texts(["a", "b"]) == ["a", "b"]
    for given, said in (([], "input is empty"), (["a", 1], "not token ids"), ([[1, 2]], "not token ids")):
        with pytest.raises(Refused, match=said):
            texts(given)


def test_hashed_words_need_scikit_learn_and_have_bounds(monkeypatch):
    embedder = retriever.HashEmbedder()
    assert embedder.embed(["the Oss"], None).shape == (1, 1024)
    assert embedder.embed(["the Oss", ""], 1).tolist() == [[1.0], [0.0]]
    assert embedder.embed(["the Oss"], 8192).shape == (1, 8192)
    for wrong in (0, 8193):
        with pytest.raises(Refused, match="dimensions must be 1 to 8192"):
            embedder.embed(["the Oss"], wrong)
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    with pytest.raises(ExtraMissing, match="need scikit-learn"):
        retriever.HashEmbedder()


# ------------------------------------------------------------------------------------------------------------- prompts


SEARCH_TOOL = {"function": {"name": "search", "description": "Looks it up.", "parameters": {"type": "object"}}}
OTHER_TOOL = {"function": {"name": "read"}}


@pytest.fixture(scope="module")
def prompter():
    return Prompter(Renderer(tiny.tokenizer("qwen")))


@pytest.mark.parametrize(
    ("choice", "tools", "opened"),
    [
        ("auto", [SEARCH_TOOL], ""),
        (None, [SEARCH_TOOL], ""),
        ("required", [SEARCH_TOOL], '<tool_call>\n{"name": "search", "arguments": {'),
        ("any", [SEARCH_TOOL], '<tool_call>\n{"name": "search", "arguments": {'),
        ("required", [SEARCH_TOOL, OTHER_TOOL], '<tool_call>\n{"name": "'),
        ({"name": "read"}, [SEARCH_TOOL, OTHER_TOOL], '<tool_call>\n{"name": "read", "arguments": {'),
        ({"function": {"name": "read"}}, [OTHER_TOOL], '<tool_call>\n{"name": "read", "arguments": {'),
    ],
)
def test_a_call_that_is_required_is_begun(prompter, choice, tools, opened):
    prompt = prompter.of_chat(chat(tools=tools, tool_choice=choice))
    assert (prompt.opened, len(prompt.tools), prompt.calls) == (opened, len(tools), bool(opened))
    assert prompter._renderer.decode(prompt.token_ids).endswith(opened)


@pytest.mark.parametrize("choice", ["other", {"name": "write"}, {"function": "read"}, {}])
def test_a_call_that_cannot_be_made_is_refused(prompter, choice):
    with pytest.raises(Refused) as caught:
        prompter.of_chat(chat(tools=[OTHER_TOOL], tool_choice=choice))
    assert caught.value.param == "tool_choice"


def test_tools_are_described_to_the_model(prompter):
    def said(**fields):
        return prompter._renderer.decode(prompter.of_chat(chat(**fields)).token_ids)

    assert "Looks it up." in said(tools=[SEARCH_TOOL])
    assert "Looks it up." not in said(tools=[SEARCH_TOOL], tool_choice="none")


def test_a_conversation_that_the_template_refuses_is_refused():
    late = [HELLO, {"role": "system", "content": "Be brief."}]
    with pytest.raises(Refused, match="chat template cannot render these messages: unknown role") as caught:
        Prompter(Renderer(tiny.tokenizer("gemma"))).of_chat(chat(messages=late))
    assert caught.value.param == "messages"


def test_a_prompt_of_token_ids_has_ids_of_the_model(prompter):
    most = len(prompter._renderer.tokenizer)
    assert prompter.of_text([0, most - 1]).token_ids == (0, most - 1)
    for wrong in ([most], [-1], []):
        with pytest.raises(Refused) as caught:
            prompter.of_text(wrong)
        assert caught.value.param == "prompt"


# ------------------------------------------------------------------------------------------------------------- answers


def test_text_is_held_back_while_it_may_become_a_stop_string():
    held = ("</answer>", "END")
    assert _safe_length("good </ans", held) == 5
    assert _safe_length("good </answer> more", held) == 5
    assert _safe_length("good E", held) == 5
    assert _safe_length("good <b>", held) == 8
    assert _safe_length("</answe", held) == 0
    assert _safe_length("any", ()) == 3
    assert _safe_length("good </answe", ("</answer>", "e")) == 5  # "e" is found, but the other may have begun earlier
    assert _first_of("one two three", ("three", "two")) == (4, "two")
    assert _first_of("one", ("two",)) == (3, None)
    assert _json_length('{"a": 1} and so on') == 8
    assert _json_length('{"a": ') == 0


def test_replies_have_what_clients_read():
    written = Written("Hi é", "stop", "x", ("Hi", " é", "\ufffd"), (-0.5, -0.25, -1.0), num_tokens=4)
    whole = ChatForm("m", with_logprobs=True).whole([written, written], 10)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    assert whole["usage"] == {"prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 18}
    first = whole["choices"][0]
    assert (first["finish_reason"], first["stop_reason"], first["message"]["content"]) == ("stop", "x", "Hi é")
    assert [one["bytes"] for one in first["logprobs"]["content"]] == [[72, 105], [32, 195, 169], None]
    plain = TextForm("m", with_logprobs=True).whole([written], 10)["choices"][0]["logprobs"]
    assert (plain["text_offset"], plain["token_logprobs"]) == ([0, 2, 4], [-0.5, -0.25, -1.0])
    assert ChatForm("m").whole([written], 10)["choices"][0]["logprobs"] is None
    assert usage_of(3, []) == {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}


@pytest.mark.parametrize(("before", "content"), [(" ", None), ("So: ", "So: ")])
def test_calls_come_with_the_text_before_them(before, content):
    called = Written(before, "tool_calls", None, (), (), 9, (ToolCall("search", {"query": "é"}),) * 2)
    message = ChatForm("m").content(called)["message"]
    assert message["content"] == content
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == ['{"query": "é"}'] * 2
    assert [call["index"] for call in ChatForm("m").closing(called)["delta"]["tool_calls"]] == [0, 1]
    assert Prompt((1,), opened="<tool_call>", tools=(SEARCH,)).calls
    assert not Prompt((1,), opened="{", is_json=True).calls and not Prompt((1,)).calls
