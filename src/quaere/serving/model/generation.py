"""From a request to the token ids of its prompt, and from sampled tokens to the response, whole or streamed.

    prompt = Prompter(renderer).of_chat(request)                 # Prompt(token_ids=(1, 9690, ...))
    writer = Writer(sampler, renderer, max_tokens=2048, max_waiting=256)
    with writer.admit(num_choices=2):
        written = await writer.write(prompt, params)             # Written(text="Hello.", finish="stop", ...)

The text of a message is encoded as plain text: `<|im_end|>` in it is an ordinary word. Only the template's own text,
and the tags around calls and results, become control tokens.

The stop string and the end-of-turn token are not part of a response. While streaming, text is held back as long as it
may be the start of a stop string or of a tool call, or an incomplete character. The chunks of a stream together
therefore equal the whole response.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Literal

from msgspec import Struct, structs

from quaere.chat.markup import CallRefused, ToolCall, ToolSchema, describe_tools, find_blocks, read_call
from quaere.chat.protocol import Message, Part, Quoted, Role
from quaere.chat.renderer import PlainEncoder, Renderer
from quaere.policies.native.sampler import NativeSampler, OnTokens
from quaere.policies.sampler import Sampled, SamplingParams
from quaere.serving.model.wire import ChatMessage, ChatRequest, Refused, WriteRequest, refuse_if

Finish = Literal["stop", "length", "tool_calls"]

_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
_ROLES: dict[str, Role] = {"developer": "system", "function": "tool"}
_HOW_TO_CALL = (
    '\nTo call one, write <tool_call>{"name": its name, "arguments": an object}</tool_call> and nothing else.'
)
_CALL, _CALL_END = "<tool_call>", "</tool_call>"


# ------------------------------------------------------------------------------------------------------------- prompts


class Prompt(Struct, frozen=True):
    """The prompt of a response. `opened` is the text that the model's turn must start with, if the request requires it.

    Prompt(token_ids=(1, 9690, 198), opened='<tool_call>\\n{"name": "search", "arguments": {')
    """

    token_ids: tuple[int, ...]
    opened: str = ""
    tools: tuple[ToolSchema, ...] = ()
    is_json: bool = False  # JSON was requested: text after it is not part of the response

    @property
    def calls(self) -> bool:
        """True if the turn is opened as a tool call."""
        return bool(self.opened) and not self.is_json


class Prompter:
    """Renders prompts with one tokenizer's chat template."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer, tokenizer = renderer, renderer.tokenizer
        self._plain = PlainEncoder(tokenizer)
        self.max_token_chars = max(map(len, tokenizer.get_vocab()))
        self._begin = tuple(token for token in tokenizer.encode("")[:1] if token == tokenizer.bos_token_id)

    def of_chat(self, request: ChatRequest) -> Prompt:
        """The prompt of a conversation, ending where the model starts to write."""
        tools = () if request.tool_choice == "none" else self._read_tools(request)
        messages, shown = [_as_message(message) for message in request.messages], tools
        if tools and not self._renderer.lists_tools:
            messages, shown = _describe(messages, tools), ()
        try:
            ids = self._renderer.opening(messages, shown)
        except Exception as error:  # chat templates may raise any exception for conversations they do not support
            reason = " ".join(str(error).split())[:200]
            raise Refused(
                f"the model's chat template cannot render these messages: {reason}", param="messages"
            ) from error
        called, begun = _open_call(request, tools), self._open_json(request)
        opened = called or begun
        written = self._renderer.encode_parts((self._renderer.begin_turn(opened),))
        return Prompt((*ids, *written), opened, tools, is_json=bool(begun and not called))

    def of_text(self, prompt: str | list[int]) -> Prompt:
        """The prompt of plain text, or of token ids; only the latter may contain control tokens."""
        token_ids = (*self._begin, *self._plain.encode(prompt)) if isinstance(prompt, str) else tuple(prompt)
        if not all(0 <= token < len(self._renderer.tokenizer) for token in token_ids):
            raise Refused("prompt contains numbers that are not token ids of this model", param="prompt")
        refuse_if(not token_ids, "prompt is empty; it must have at least one token", "prompt")
        return Prompt(token_ids)

    def _open_json(self, request: ChatRequest) -> str:
        """The start of the turn if JSON is requested: small models would otherwise begin with prose or a code fence."""
        if request.wanted_format in ("text", "json_list"):
            return '["' if request.wanted_format == "json_list" else ""
        try:
            wanted: dict[str, Any] = request.response_format or {}
            name, schema = next(iter(wanted["json_schema"]["schema"]["properties"].items()))
        except (KeyError, TypeError, AttributeError, StopIteration):
            return "{"
        is_string = isinstance(schema, dict) and schema.get("type") == "string"
        opened = f"{{{json.dumps(name)}:" + ' "' * is_string
        is_plain = self._plain.control_ids.isdisjoint(self._renderer.encode_parts((opened,)))
        return opened if is_plain else "{"

    def _read_tools(self, request: ChatRequest) -> tuple[ToolSchema, ...]:
        """The tools of a request. Templates write them verbatim, so they must not contain control tokens."""
        tools = tuple(
            ToolSchema(each.name, each.description or "", each.parameters or {"type": "object"})
            for each in (tool.function for tool in request.tools or ())
        )
        if not all(_NAME.fullmatch(tool.name) for tool in tools):
            raise Refused("a tool's name must be 1 to 64 letters, digits, dots, dashes or underscores", param="tools")
        ids = self._renderer.encode_parts((json.dumps([tool.as_json() for tool in tools], ensure_ascii=False),))
        if not self._plain.control_ids.isdisjoint(ids):
            raise Refused("a tool's description contains a control token of this model", param="tools")
        return tools


def _as_message(message: ChatMessage) -> Message:
    parts: list[Part] = [Quoted(message.text)]
    for call in message.tool_calls or ():
        try:
            arguments = json.loads(call.function.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = call.function.arguments  # kept as the model wrote it, even if it is not valid JSON
        written = json.dumps({"name": call.function.name, "arguments": arguments}, ensure_ascii=False)
        parts += ["\n<tool_call>\n" if message.text else "<tool_call>\n", Quoted(written), "\n</tool_call>"]
    role: Role = _ROLES.get(message.role) or message.role  # type: ignore[assignment]
    return Message(role, tuple(parts))


def _describe(messages: list[Message], tools: Sequence[ToolSchema]) -> list[Message]:
    """The messages with the tools appended to the system message, for templates without tools."""
    parts: tuple[Part, ...] = (Quoted(describe_tools(tools).strip()), _HOW_TO_CALL)
    if messages[0].role != "system":
        return [Message("system", parts), *messages]
    return [Message("system", (*messages[0].parts, "\n\n", *parts)), *messages[1:]]


def _open_call(request: ChatRequest, tools: Sequence[ToolSchema]) -> str:
    """The start of the turn if a call is required: small models finish a call far more often than they begin one."""
    choice = request.tool_choice
    if choice in (None, "auto", "none"):
        return ""
    refuse_if(not tools, "tool_choice requires a call, but tools is empty", "tool_choice")
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else choice.get("name")
        if name not in {tool.name for tool in tools}:
            raise Refused("tool_choice names a function that is not in tools", param="tool_choice")
    elif choice in ("required", "any"):
        if len(tools) > 1:
            return '<tool_call>\n{"name": "'
        name = tools[0].name
    else:
        raise Refused("tool_choice must be none, auto, required, or name a function", param="tool_choice")
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{'


# ----------------------------------------------------------------------------------------------------------- responses


class Written(Struct, frozen=True):
    """A finished response. `tokens` and `logprobs` belong to its text; `num_tokens` counts all sampled tokens.

    Written(text="Hello.", finish="stop", stopped_at=None, tokens=("Hello", "."), logprobs=(-0.1, -0.2), num_tokens=3)

    `stopped_at` is the stop string that ended it. With tool calls, `text` is what precedes the first of them.
    """

    text: str
    finish: Finish
    stopped_at: str | None
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    num_tokens: int
    calls: tuple[ToolCall, ...] = ()


class Writer:
    """Generates responses of one model, many at a time."""

    def __init__(
        self, sampler: NativeSampler, renderer: Renderer, *, max_tokens: int, max_waiting: int, temperature: float = 1.0
    ) -> None:
        self.sampler = sampler
        self.renderer = renderer
        self.max_tokens = max_tokens
        self.temperature = temperature
        self._max_rows = sampler.engine.max_rows
        self._max_active = self._max_rows + max_waiting
        self._num_active = 0
        self._numbers = count()
        # The engine reuses a session's key-value cache for a later request with the same prefix, such as the next turn
        # of a conversation. Sessions are therefore closed late, the oldest first.
        self._finished: deque[str] = deque()

    def check_room(self, num_choices: int) -> None:
        """Raise `Refused` with 429 if too many responses are active or waiting."""
        if self._num_active + num_choices > self._max_active:
            raise Refused(f"the server is busy: {self._num_active} answers are active or waiting", status=429)

    @contextmanager
    def admit(self, num_choices: int) -> Iterator[None]:
        """Reserve room for `num_choices` responses; raises `Refused` if there is none."""
        self.check_room(num_choices)
        self._num_active += num_choices
        try:
            yield
        finally:
            self._num_active -= num_choices

    def params_for(self, prompt: Prompt, request: WriteRequest, seed: int) -> SamplingParams:
        """Sampling parameters of a response; its length is bounded by the context and by the server's limit."""
        room = self.sampler.max_positions - len(prompt.token_ids)
        if room < 1:
            said = f"the prompt has {len(prompt.token_ids)} tokens; this model takes {self.sampler.max_positions - 1}"
            raise Refused(said, param="messages", code="context_length_exceeded")
        max_tokens = min(request.wanted_tokens or self.max_tokens, self.max_tokens, room)
        params = request.sampling(max_tokens, self.temperature, seed)
        stop = (*params.stop, _CALL_END) if prompt.calls else params.stop
        return structs.replace(params, stop=stop, stop_token_ids=self.renderer.stop_token_ids)

    async def write(self, prompt: Prompt, params: SamplingParams, on_tokens: OnTokens | None = None) -> Written:
        """Sample one response; cancelling the call frees its row of the engine's batch at the next step."""
        session = f"answer-{next(self._numbers)}"
        try:
            sampled = await self.sampler.sample(session, prompt.token_ids, params, on_tokens)
        finally:
            self._finished.append(session)
            while len(self._finished) > self._max_rows:
                self.sampler.close(self._finished.popleft())
        return self._read(prompt, params, sampled)

    def follow(self, prompt: Prompt, params: SamplingParams) -> Growing:
        """A `Growing` that converts the response's tokens, as they are sampled, to text for a stream."""
        held = [*_visible_stops(prompt, params), *([_CALL] if prompt.tools else [])]
        held += [prompt.opened] if prompt.is_json else []  # only at its end is it known where the JSON ends
        return Growing(self.renderer, held, prompt.opened)

    def _read(self, prompt: Prompt, params: SamplingParams, sampled: Sampled) -> Written:
        ids = sampled.token_ids[:-1] if sampled.stop_reason == "end_of_turn" else sampled.token_ids
        text = prompt.opened + self.renderer.decode(ids)
        end, stopped_at = _first_of(text, _visible_stops(prompt, params))
        text = text[:end]
        ids = ids if stopped_at is None else _ids_within(self.renderer, ids, end - len(prompt.opened))
        tokens = tuple(self.renderer.decode([token]) for token in ids)
        calls, begin = _find_calls(text, prompt)
        finish: Finish = "length" if sampled.stop_reason == "length" else "stop"
        if prompt.is_json and (whole := _json_length(text)):
            text, finish = text[:whole], "stop"
        return Written(
            text=text[:begin] if calls else text,
            finish="tool_calls" if calls else finish,
            stopped_at=stopped_at,
            tokens=tokens,
            logprobs=sampled.logprobs[: len(tokens)],
            num_tokens=len(sampled.token_ids),
            calls=calls,
        )


class Growing:
    """Converts token ids, as they arrive, into text that can be shown.

    growing = Growing(renderer, held=("</answer>",), opened="")
    growing.push([60]) -> ""       # "<" may be the beginning of the stop string
    growing.push([421]) -> "<b>"
    """

    def __init__(self, renderer: Renderer, held: Sequence[str], opened: str) -> None:
        self._renderer = renderer
        self._held = held
        self._ids: list[int] = []
        self._before = 0  # ids[before:done] were shown last: a token's text may depend on the token before it
        self._done = 0
        self._waiting = opened
        self._ended = False
        self.shown = ""

    def push(self, token_ids: Sequence[int]) -> str:
        """Add token ids; returns the new text that can be shown, including text held back before."""
        self._ids += [token for token in token_ids if token not in self._renderer.stop_token_ids]
        self._waiting += self._decode_new()
        end = _safe_length(self._waiting, self._held)
        self._ended = self._ended or any(text in self._waiting for text in self._held)
        new, self._waiting = self._waiting[:end], self._waiting[end:]
        self.shown += new
        return new

    def rest_of(self, written: Written) -> str:
        """The part of the finished response that has not been shown yet."""
        return written.text[len(self.shown) :]

    def _decode_new(self) -> str:
        if self._ended:
            return ""
        known = self._renderer.decode(self._ids[self._before : self._done])
        text = self._renderer.decode(self._ids[self._before :])
        if len(text) <= len(known) or text.endswith("\ufffd"):
            return ""
        self._before, self._done = self._done, len(self._ids)
        return text[len(known) :]


def _visible_stops(prompt: Prompt, params: SamplingParams) -> tuple[str, ...]:
    """The request's stop strings, without `</tool_call>`, which is added if a tool call is required."""
    return params.stop[:-1] if prompt.calls else params.stop


def _first_of(text: str, strings: Sequence[str]) -> tuple[int, str | None]:
    """Start of the first occurrence of any of these strings, and which it is; the end of the text if there is none.

    _first_of("one two three", ("three", "two")) == (4, "two")
    """
    found = [(at, string) for string in strings if (at := text.find(string)) >= 0]
    return min(found, default=(len(text), None), key=lambda place: place[0])


def _safe_length(text: str, held: Sequence[str]) -> int:
    """Length of the text before any of these strings or a possible start of one.

    _safe_length("good </ans", ("</answer>",)) == 5
    """
    end, _ = _first_of(text, held)
    # A string that begins earlier than one that was found may still be completed by the token that completed that one.
    places = range(max(0, len(text) - max(map(len, held), default=1) + 1), end)
    return next((begin for begin in places if any(string.startswith(text[begin:]) for string in held)), end)


def _ids_within(renderer: Renderer, ids: tuple[int, ...], num_chars: int) -> tuple[int, ...]:
    """The leading token ids whose text starts within the first `num_chars` characters.

    Only the tokens of a stop string are removed, so the loop is short.
    """
    while ids and len(renderer.decode(ids[:-1])) >= num_chars:
        ids = ids[:-1]
    return ids


def _json_length(text: str) -> int:
    """Length of the JSON value at the start of the text; 0 if it is incomplete.

    _json_length('{"a": 1} and so on') == 8
    """
    try:
        return json.JSONDecoder().raw_decode(text)[1]
    except (ValueError, RecursionError):
        return 0


def _find_calls(text: str, prompt: Prompt) -> tuple[tuple[ToolCall, ...], int]:
    """The tool calls in a response, and the offset of the first; an invalid call is left as text."""
    if not prompt.tools:
        return (), len(text)
    blocks = [block for block in find_blocks(text, ("think", "tool_call")) if block.name == "tool_call"]
    try:
        calls = tuple(read_call(block.content, prompt.tools) for block in blocks)
    except CallRefused:
        return (), len(text)
    return calls, blocks[0].start if blocks else len(text)
