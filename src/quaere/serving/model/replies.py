"""Responses in the format of OpenAI's API: one object, or a stream of events that ends with `[DONE]`.

A search agent answers like a model. It takes a question by itself and keeps no conversation, so only the last message
of a request counts:

    read_question(request)                         -> "Who built the Halm bridge?"
    await answerer.answer(question, params)        -> Reply(text="Orsolya Venn\\n\\nFound in: ...", ...)
"""

import json
import secrets
import time
from itertools import accumulate
from typing import Any, Protocol

from msgspec import Struct

from quaere import __version__
from quaere.chat.markup import ToolCall
from quaere.policies.sampler import SamplingParams
from quaere.serving.model.generation import Written
from quaere.serving.model.wire import ChatRequest, refuse_if


class ChatForm:
    """Builds the JSON of chat completions, whole or as chunks of a stream.

    ChatForm("smollm2-135m").whole([written], num_prompt_tokens=12)
    """

    object, chunk_object, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def __init__(self, model: str, with_logprobs: bool = False) -> None:
        self._with_logprobs = with_logprobs
        self._head = {
            "id": f"{self.prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"quaere-{__version__}",
        }

    def whole(self, answers: list[Written], num_prompt_tokens: int) -> dict[str, Any]:
        """The complete response object with all answers and the token counts, for requests without a stream."""
        choices = [{"index": index, **self.content(one), **self.ending(one)} for index, one in enumerate(answers)]
        usage = usage_of(num_prompt_tokens, answers)
        return {**self._head, "object": self.object, "choices": choices, "usage": usage}

    def chunk(self, index: int, content: dict[str, Any], ending: dict[str, Any] | None = None) -> dict[str, Any]:
        """A stream chunk for answer number `index`; `ending` has the finish reason, None before the last chunk."""
        ending = ending or {"finish_reason": None, "logprobs": None}
        return {**self._head, "object": self.chunk_object, "choices": [{"index": index, **content, **ending}]}

    def last_chunk(self, usage: dict[str, int]) -> dict[str, Any]:
        """The last stream chunk, with the token counts."""
        return {**self._head, "object": self.chunk_object, "choices": [], "usage": usage}

    def content(self, written: Written) -> dict[str, Any]:
        """The field `message` of an answer, with its tool calls if there are any."""
        text = written.text if written.text.strip() or not written.calls else None
        calls = {"tool_calls": [_call(call) for call in written.calls]} if written.calls else {}
        return {"message": {"role": "assistant", "content": text, "refusal": None, **calls}}

    def opening(self) -> dict[str, Any] | None:
        """The first delta (increment of a stream) of an answer, before any text."""
        return {"delta": {"role": "assistant", "content": ""}}

    def piece(self, text: str) -> dict[str, Any]:
        """A delta (increment of a stream) with new text."""
        return {"delta": {"content": text}}

    def closing(self, written: Written) -> dict[str, Any]:
        """The last delta of an answer: its tool calls, if there are any."""
        calls = [{"index": number, **_call(call)} for number, call in enumerate(written.calls)]
        return {"delta": {"tool_calls": calls} if calls else {}}

    def ending(self, written: Written) -> dict[str, Any]:
        """Finish reason and log-probs of an answer."""
        logprobs = self._logprobs(written) if self._with_logprobs else None
        return {"finish_reason": written.finish, "stop_reason": written.stopped_at, "logprobs": logprobs}

    def _logprobs(self, written: Written) -> dict[str, Any]:
        return {
            "content": [
                # An incomplete character has no bytes of its own.
                {
                    "token": token,
                    "logprob": logprob,
                    "bytes": None if "\ufffd" in token else list(token.encode()),
                    "top_logprobs": [],
                }
                for token, logprob in zip(written.tokens, written.logprobs, strict=True)
            ],
            "refusal": None,
        }


class TextForm(ChatForm):
    """Builds the JSON of plain text completions, whole or as chunks of a stream."""

    object = chunk_object = "text_completion"
    prefix = "cmpl"

    def content(self, written: Written) -> dict[str, Any]:
        """The field `text` of an answer."""
        return {"text": written.text}

    def opening(self) -> dict[str, Any] | None:
        """None: plain completions have no first delta."""
        return None

    def piece(self, text: str) -> dict[str, Any]:
        """The field `text` of a stream chunk."""
        return {"text": text}

    def closing(self, written: Written) -> dict[str, Any]:
        """The last chunk of an answer: empty text, since plain completions have no tool calls."""
        return {"text": ""}

    def _logprobs(self, written: Written) -> dict[str, Any]:
        offsets = [*accumulate(map(len, written.tokens), initial=0)][:-1]
        tokens, logprobs = list(written.tokens), list(written.logprobs)
        return {"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": None, "text_offset": offsets}


def usage_of(num_prompt_tokens: int, answers: list[Written]) -> dict[str, int]:
    """The field `usage` of a response: token counts of prompts, of answers, and in total."""
    made = sum(written.num_tokens for written in answers)
    return {"prompt_tokens": num_prompt_tokens, "completion_tokens": made, "total_tokens": num_prompt_tokens + made}


def as_event(content: dict[str, Any] | str) -> bytes:
    """One server-sent event of a stream.

    as_event("[DONE]") == b"data: [DONE]\\n\\n"
    """
    return f"data: {content if isinstance(content, str) else json.dumps(content)}\n\n".encode()


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}


# ---------------------------------------------------------------------------------------------------------- an agent


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
    """A search agent that a model server can ask, with coroutines on the server's event loop."""

    async def answer(self, question: str, params: SamplingParams) -> Reply:
        """Answer a question; cancelling the call stops the model. `params.max_tokens` bounds each turn."""

    async def close(self) -> None:
        """Stop the agent's search threads; the model stays open, since the server shares it."""


def read_question(request: ChatRequest) -> str:
    """The text of the last message; raises `Refused` for options that an agent does not support."""
    refused = {
        "n": request.num_choices > 1,
        "stop": request.stops,
        "tools": request.tools,
        "logprobs": request.logprobs,
        "response_format": request.wanted_format != "text",
    }
    name = next((name for name, is_given in refused.items() if is_given), "")
    refuse_if(name, f"an agent does not take {name}; {request.model}{MODEL} is its model without the search", name)
    last = request.messages[-1]
    refuse_if(last.role != "user" or not last.text.strip(), "the last message must be a user's question", "messages")
    return last.text.strip()
