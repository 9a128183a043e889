"""Request formats, and `Refused`, which describes an invalid request in the API's error format.

    {"error": {"message": "n must be 1 to 16, not 0", "type": "invalid_request_error", "param": "n", "code": null}}

Unknown fields are ignored, as other servers do. Known fields that are not supported are refused, so that no client gets
something other than it requested.
"""

import re
from typing import Any, Literal, TypeVar

import msgspec

from quaere.errors import QuaereError, failure_line
from quaere.policies.sampler import SamplingParams
from quaere.records.foreign_json import decode_json
from quaere.serving.guard import log

MAX_CHOICES = 16
MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_TOOLS = 128

_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
_PLACE = re.compile(r" - at `(key in )?\$\.?([\w.\[\]]*)`")
_Body = TypeVar("_Body", bound=msgspec.Struct)


class Refused(Exception):
    """Raised to refuse a request, with the status and message of the error response.

    Refused("n must be 1 to 16, not 0", param="n")
    """

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    def as_json(self) -> dict[str, Any]:
        """The body of the error response."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


def refuse_if(is_wrong: object, message: str, param: str) -> None:
    """Raise `Refused` with this message if `is_wrong` is true; `param` is the field of the request that is wrong."""
    if is_wrong:
        raise Refused(message, param=param)


def error_form(status: int, message: str) -> dict[str, Any]:
    """Body of the error response for a request that was refused before the application saw it."""
    return Refused(message, status=status, code="invalid_api_key" if status == 401 else None).as_json()


def as_refusal(error: Exception) -> Refused:
    """The error response for an exception; an unexpected one is logged, and the client gets only its type."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, QuaereError):
        return Refused(str(error), status=500)
    log.error("a request failed: %s", failure_line(error))
    return Refused(f"the server failed: {type(error).__name__}", status=500)


# ------------------------------------------------------------------------------------------------------------ requests


class _TextPart(msgspec.Struct):
    type: str
    text: str = ""


class _FunctionCall(msgspec.Struct):
    name: str
    arguments: str = "{}"  # JSON in a string


class _EarlierCall(msgspec.Struct):
    """A tool call in an earlier assistant message, with its id.

    {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    """

    function: _FunctionCall
    id: str = ""


class ChatMessage(msgspec.Struct):
    """A message of a conversation.

    {"role": "user", "content": "Who built the bridge?"}
    """

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[_TextPart] | None = None
    tool_calls: list[_EarlierCall] | None = None

    @property
    def text(self) -> str:
        """The text of the message, its parts joined; raises `Refused` if a part is not text."""
        parts = self.content if isinstance(self.content, list) else [_TextPart("text", self.content or "")]
        if any(part.type != "text" for part in parts):
            raise Refused("only message parts of type text are supported", param="messages")
        return "".join(part.text for part in parts)


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None  # a JSON schema


class _Tool(msgspec.Struct):
    function: _Function
    type: Literal["function"] = "function"


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class WriteRequest(msgspec.Struct, kw_only=True):
    """Fields shared by chat and plain completions."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None

    @property
    def wanted_tokens(self) -> int | None:
        """The requested maximum length in tokens; None if not given."""
        return self.max_tokens

    @property
    def num_choices(self) -> int:
        """Number of answers requested."""
        return 1 if self.n is None else self.n

    @property
    def wants_usage(self) -> bool:
        """True if the stream should end with token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings, at which generation ends."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def check(self) -> None:
        """Raise `Refused` for values out of range and unsupported options."""
        _within("n", self.num_choices, 1, MAX_CHOICES)
        _within("temperature", self.temperature, 0, 2)
        _within("top_k", self.top_k, -1, 1 << 31)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise Refused(f"top_p must be above 0 and at most 1, not {self.top_p}", param="top_p")
        if self.wanted_tokens is not None and self.wanted_tokens < 1:
            raise Refused(f"max_tokens must be at least 1, not {self.wanted_tokens}", param="max_tokens")
        if len(self.stops) > MAX_STOPS or not all(0 < len(text) <= MAX_STOP_CHARS for text in self.stops):
            said = f"stop may contain at most {MAX_STOPS} strings of 1 to {MAX_STOP_CHARS} characters"
            raise Refused(said, param="stop")
        for name in ("frequency_penalty", "presence_penalty", "logit_bias"):
            refuse_if(getattr(self, name), f"{name} is not supported here", name)

    def sampling(self, max_tokens: int, temperature: float, seed: int) -> SamplingParams:
        """Sampling parameters; `temperature` is the default for requests without one."""
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=temperature if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(0, self.top_k or 0),
            stop=self.stops,
            seed=seed,
        )


class ChatRequest(WriteRequest, kw_only=True):
    """The body of POST /v1/chat/completions.

    {"model": "smollm2-135m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64}
    """

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None  # best effort: only the start of the JSON is enforced

    @property
    def wanted_tokens(self) -> int | None:
        """`max_completion_tokens`, the newer name, else `max_tokens`."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def wanted_format(self) -> Any:
        """The type of `response_format`; "text" if not given."""
        return (self.response_format or {}).get("type", "text")

    @property
    def num_chars(self) -> int:
        """Number of characters of messages, tool calls and tool descriptions, to bound the prompt's length."""
        called = (call.function for message in self.messages for call in message.tool_calls or ())
        described = msgspec.json.encode(self.tools).decode() if self.tools else ""
        return len(described) + sum(
            [len(message.text) for message in self.messages] + [len(call.name + call.arguments) for call in called]
        )

    def check(self) -> None:
        """Raise `Refused` for values out of range and unsupported options."""
        super().check()
        refuse_if(not self.messages, "messages must contain at least one message", "messages")
        if self.top_logprobs:
            said = "top_logprobs is not supported: logprobs=true gives the log-probs of the tokens that were chosen"
            raise Refused(said, param="top_logprobs")
        refuse_if(len(self.tools or ()) > MAX_TOOLS, f"at most {MAX_TOOLS} tools are allowed", "tools")
        if self.wanted_format not in ("text", "json_object", "json_schema", "json_list"):
            said = "response_format must be text, json_object, json_schema or json_list"
            raise Refused(said, param="response_format")


class CompletionRequest(WriteRequest, kw_only=True):
    """The body of POST /v1/completions; a prompt is text or token ids.

    {"model": "smollm2-135m", "prompt": "The Oss rises in", "max_tokens": 16}
    """

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts; a list of numbers is one prompt of token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        numbers = [item for item in self.prompt if isinstance(item, int)]
        others = [item for item in self.prompt if not isinstance(item, int)]
        refuse_if(numbers and others, "prompt must not mix token ids with other prompts", "prompt")
        return [numbers] if numbers else others

    @property
    def num_chars(self) -> int:
        """Number of characters of the longest prompt."""
        return max((len(prompt) for prompt in self.prompts), default=0)

    def check(self) -> None:
        """Raise `Refused` for values out of range and unsupported options."""
        super().check()
        _within("prompt", len(self.prompts) * self.num_choices, 1, MAX_CHOICES, "answers")
        _within("logprobs", self.logprobs, 0, 1)
        _within("best_of", self.best_of, self.num_choices, self.num_choices)
        for name in ("echo", "suffix"):
            refuse_if(getattr(self, name), f"{name} is not supported here", name)


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """The body of POST /v1/embeddings.

    {"model": "hash", "input": ["The Oss rises in the Korrin hills."]}
    """

    model: str
    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None

    @property
    def texts(self) -> list[str]:
        """The texts to embed; raises `Refused` for token ids and for an empty input."""
        items = [self.input] if isinstance(self.input, str) else self.input
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) < len(items):
            said = "input must be text, not token ids (LangChain: check_embedding_ctx_length=False)"
            raise Refused(said, param="input")
        refuse_if(not texts, "input is empty", "input")
        return texts


# ------------------------------------------------------------------------------------------------------------- reading


def read_body(content: bytes, kind: type[_Body]) -> _Body:
    """The body decoded as `kind`; raises `Refused` with the name of the invalid field."""
    try:
        return decode_json(content, kind)
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        raise Refused(str(error), param=place.group(2) or None if place else None) from error
    except msgspec.DecodeError as error:
        raise Refused(f"the body is not JSON: {error}") from error


def _within(name: str, value: float | None, low: float, high: float, what: str = "") -> None:
    if value is not None and not low <= value <= high:
        raise Refused(f"{what or name} must be {low} to {high}, not {value}", param=name)
