"""Chat with a search agent: the question in a request, and the interface of what answers it.

    read_question(request)                         -> "Who built the Halm bridge?"
    await answerer.answer(question, params)        -> Reply(text="Orsolya Venn\\n\\nFound in: ...", ...)

An agent answers a question by itself and keeps no conversation, so only the last message counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from quaere.policies.sampler import SamplingParams
from quaere.serving.model.generation import Written
from quaere.serving.model.replies import ChatForm, as_error_event, as_event, usage_of
from quaere.serving.model.wire import ChatRequest, Refused, as_refusal

MODEL = ":model"
"""Suffix of an agent's name under which its model answers alone, without searching."""


class Reply(Struct, frozen=True):
    """An agent's reply: the answer with its source. `num_prompt_tokens` counts all tokens it did not sample.

    Reply(text="Orsolya Venn\\n\\nFound in: ...", num_prompt_tokens=812, num_tokens=59)
    """

    text: str
    num_prompt_tokens: int
    num_tokens: int

    @property
    def written(self) -> Written:
        """The reply in the form of a model's response."""
        return Written(self.text, "stop", None, (), (), self.num_tokens)


class Answerer(Protocol):
    """A search agent on the event loop of its server."""

    async def answer(self, question: str, params: SamplingParams) -> Reply:
        """Answer a question; cancelling the call stops the model. `params.max_tokens` bounds each turn."""
        ...

    async def close(self) -> None:
        """Release the search threads; the model is not the agent's own."""
        ...


def read_question(request: ChatRequest) -> str:
    """The last message's text; raises `Refused` for what an agent cannot do."""
    wants_json = (request.response_format or {}).get("type", "text") != "text"
    refused = {
        "n": request.num_choices > 1,
        "stop": bool(request.stops),
        "tools": bool(request.tools),
        "logprobs": bool(request.logprobs),
        "response_format": wants_json,
    }
    for name, is_given in refused.items():
        if is_given:
            said = f"an agent does not take {name}; {request.model}{MODEL} is its model without the search"
            raise Refused(said, param=name)
    last = request.messages[-1]
    if last.role != "user" or not last.text.strip():
        raise Refused("the last message must be a user's question", param="messages")
    return last.text.strip()


async def stream_reply(
    agent: Answerer,
    question: str,
    params: SamplingParams,
    form: ChatForm,
    admit: Callable[[int], AbstractContextManager[None]],
    *,
    usage: bool,
) -> AsyncIterator[bytes]:
    """Events of an agent's answer. It is sent in one piece: which turn is the answer, and its source, is known last.

    Closing the generator early, as on a disconnect, stops the agent.
    """
    with admit(1):
        if opening := form.opening():
            yield as_event(form.chunk(0, opening))
        try:
            reply = await agent.answer(question, params)
        except Exception as error:
            yield as_error_event(as_refusal(error))
        else:
            yield as_event(form.chunk(0, form.piece(reply.text)))
            yield as_event(form.chunk(0, form.closing(reply.written), form.ending(reply.written)))
            if usage:
                yield as_event(form.last_chunk(usage_of(reply.num_prompt_tokens, [reply.written])))
        yield as_event("[DONE]")
