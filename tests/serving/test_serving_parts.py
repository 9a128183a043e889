"""What an answer shows while it grows, over any tokens at all; and streams for which there is no room."""

import asyncio
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quaere.chat.markup import SEARCH
from quaere.policies.sampler import Sampled, SamplingParams
from quaere.serving.model.app import Service
from quaere.serving.model.generation import Prompt, Writer
from quaere.serving.model.replies import ChatForm
from quaere.serving.model.wire import ChatRequest, Refused, read_body
from served import make_policy

POLICY = make_policy()
WRITER = Writer(POLICY.sampler, POLICY.renderer, max_tokens=64, max_waiting=8)
CALL = '<tool_call>{"name": "search", "arguments": {}}</tool_call>'
ORDINARY = [token for token in range(len(POLICY.renderer.tokenizer)) if token not in POLICY.renderer.stop_token_ids]


def encode(text):
    return list(POLICY.renderer.encode_parts((text,)))


WORDS = st.sampled_from(
    [encode(text) for text in ("the bridge", "</answer>", "</ans", "東京", CALL, "<tool_call>", "{")]
)
TOKENS = st.lists(st.one_of(st.sampled_from(ORDINARY).map(lambda token: [token]), WORDS), max_size=12)


@given(
    pieces=TOKENS,
    stop=st.lists(st.sampled_from(["</answer>", "e", "東", "bridge", "\ufffd", " "]), max_size=2, unique=True),
    prompt=st.sampled_from([Prompt((1,)), Prompt((1,), tools=(SEARCH,)), Prompt((1,), opened='["', is_json=True)]),
    cuts=st.lists(st.integers(1, 5), min_size=1, max_size=5),
)
@example(pieces=[encode("a</answer>b")], stop=["</answer>"], prompt=Prompt((1,)), cuts=[1])
@example(pieces=[encode("東京")], stop=[], prompt=Prompt((1,)), cuts=[1])
def test_what_was_shown_and_the_rest_are_the_answer(pieces, stop, prompt, cuts):
    ids = [token for piece in pieces for token in piece]
    params = SamplingParams(stop=tuple(stop))
    growing = WRITER.follow(prompt, params)
    shown, at, number = "", 0, 0
    while at < len(ids):
        length = cuts[number % len(cuts)]
        shown += growing.push(ids[at : at + length])
        at, number = at + length, number + 1
    written = WRITER._read(prompt, params, Sampled(tuple(ids), (-1.0,) * len(ids), "length"))
    assert written.text.startswith(shown)
    assert shown + growing.rest_of(written) == written.text
    assert not any(text in written.text for text in stop)
    assert len(written.tokens) == len(written.logprobs) <= len(ids)


def test_the_end_of_a_turn_is_not_shown():
    growing = WRITER.follow(Prompt((1,)), SamplingParams())
    assert growing.push([*encode("the bridge"), POLICY.renderer.stop_token_ids[0]]) == "the bridge"


def test_a_prompt_leaves_the_rest_of_the_context_to_the_answer():
    request = ChatRequest(model="tiny", messages=[])
    context = POLICY.sampler.max_positions
    assert WRITER.params_for(Prompt((1,) * (context - 3)), request, seed=0).max_tokens == 3
    with pytest.raises(Refused, match=f"the prompt has {context} tokens; this model takes {context - 1}"):
        WRITER.params_for(Prompt((1,) * context), request, seed=0)


async def test_streams_that_are_let_in_together_are_told_if_there_is_no_room_for_all():
    """The status is sent before a stream begins, so there it is too late for a 429."""
    service = Service(name="tiny", policy=make_policy(max_rows=1), max_waiting=0)
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "stream": True}
    request = read_body(json.dumps(body).encode(), ChatRequest)
    prompt = service._prompter.of_chat(request)
    replies = [await service._answer(None, request, [prompt], ChatForm("tiny", False)) for _ in range(2)]

    async def read(reply):
        return [event.decode() async for event in reply.body_iterator]

    first, second = await asyncio.gather(*map(read, replies))
    assert first[-1] == second[-1] == "data: [DONE]\n\n"
    assert "rate_limit_error" in second[0] and not any("error" in event for event in first)
    assert service._writer._num_active == 0
    await service.policy.stop()
