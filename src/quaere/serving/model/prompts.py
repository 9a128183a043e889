"""From a request to the token ids a model goes on from.

Whatever a message says is encoded as plain text: `<|im_end|>` in it is a word like any other. Only the template's own
words, and the tags around calls and results, become control tokens.

    Prompter(renderer).of_chat(request) -> Prompt(token_ids=(1, 9690, ...))
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from msgspec import Struct

from quaere.chat.messages import Message, Part, Quoted, Role
from quaere.chat.renderer import Renderer, describe_tools
from quaere.chat.tools import ToolSchema
from quaere.chat.untrusted_text import PlainEncoder
from quaere.serving.model.wire import ChatMessage, ChatRequest, Refused

_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
_ROLES: dict[str, Role] = {"developer": "system", "function": "tool"}
_HOW_TO_CALL = (
    '\nTo call one, write <tool_call>{"name": its name, "arguments": an object}</tool_call> and nothing else.'
)


class Prompt(Struct, frozen=True):
    """What the model goes on from. `opened` are the first words of its turn, where they are not left to it.

    Prompt(token_ids=(1, 9690, 198), opened='<tool_call>\\n{"name": "search", "arguments": {')
    """

    token_ids: tuple[int, ...]
    opened: str = ""
    tools: tuple[ToolSchema, ...] = ()
    is_json: bool = False  # JSON is wanted: what follows it is no part of the answer

    @property
    def calls(self) -> bool:
        """Is the turn opened as a call?"""
        return bool(self.opened) and not self.is_json


class Prompter:
    """Writes prompts in one tokenizer's chat template."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._plain = PlainEncoder(renderer.tokenizer)
        tokenizer = renderer.tokenizer
        self.max_token_chars = max(map(len, tokenizer.get_vocab()))
        self._begin = tuple(tokenizer.encode("")[:1]) if tokenizer.bos_token_id in tokenizer.encode("")[:1] else ()

    def of_chat(self, request: ChatRequest) -> Prompt:
        """A conversation, ending where the model starts to write."""
        tools = () if request.tool_choice == "none" else self._read_tools(request)
        messages = [_as_message(message) for message in request.messages]
        if tools and not self._renderer.speaks_tools:
            messages = _describe(messages, tools)
        shown = tools if self._renderer.speaks_tools else ()
        try:
            ids = self._renderer.opening(messages, shown)
        except Exception as error:  # templates refuse conversations by raising errors of their own making
            reason = " ".join(str(error).split())[:200]
            raise Refused(
                f"the model's chat template cannot write these messages: {reason}", param="messages"
            ) from error
        called, begun = _open_call(request, tools), self._open_json(request)
        opened = called or begun
        return Prompt(
            (*ids, *self._renderer.encode_parts((opened,))), opened, tools, is_json=bool(begun and not called)
        )

    def of_text(self, prompt: str | list[int]) -> Prompt:
        """Text as it is, or token ids, which alone may be control tokens."""
        if isinstance(prompt, str):
            return self._not_empty((*self._begin, *self._plain.encode(prompt)))
        if not all(0 <= token < len(self._renderer.tokenizer) for token in prompt):
            raise Refused("prompt holds numbers that are no token ids of this model", param="prompt")
        return self._not_empty(tuple(prompt))

    def _not_empty(self, token_ids: tuple[int, ...]) -> Prompt:
        if not token_ids:
            raise Refused("prompt is empty: there is no token to go on from", param="prompt")
        return Prompt(token_ids)

    def _open_json(self, request: ChatRequest) -> str:
        """How the turn begins where JSON is wanted: with the JSON, not with words about it or a fence around it."""
        wanted = request.response_format or {}
        if wanted.get("type", "text") == "text":
            return ""
        if wanted["type"] == "json_list":
            return '["'
        try:
            name, schema = next(iter(wanted["json_schema"]["schema"]["properties"].items()))
        except (KeyError, TypeError, AttributeError, StopIteration):
            return "{"
        opened = f"{{{json.dumps(name)}:"
        if isinstance(schema, dict) and schema.get("type") == "string":
            opened += ' "'
        is_plain = self._plain.control_ids.isdisjoint(self._renderer.encode_parts((opened,)))
        return opened if is_plain else "{"

    def _read_tools(self, request: ChatRequest) -> tuple[ToolSchema, ...]:
        """The tools, which templates write out as they are; so nothing in them may act as a control token."""
        functions = [tool.function for tool in request.tools or ()]
        tools = tuple(
            ToolSchema(function.name, function.description or "", function.parameters or {"type": "object"})
            for function in functions
        )
        if not all(_NAME.fullmatch(tool.name) for tool in tools):
            raise Refused("a tool's name is 1 to 64 letters, digits, dots, dashes or underscores", param="tools")
        ids = self._renderer.encode_parts((json.dumps([tool.as_json() for tool in tools], ensure_ascii=False),))
        if not self._plain.control_ids.isdisjoint(ids):
            raise Refused("a tool's description holds a control string of this model", param="tools")
        return tools


def _as_message(message: ChatMessage) -> Message:
    parts: list[Part] = [Quoted(message.text)]
    for call in message.tool_calls or ():
        try:
            arguments = json.loads(call.function.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = call.function.arguments  # what the model wrote then, readable or not
        written = json.dumps({"name": call.function.name, "arguments": arguments}, ensure_ascii=False)
        parts += ["\n<tool_call>\n" if message.text else "<tool_call>\n", Quoted(written), "\n</tool_call>"]
    role: Role = _ROLES.get(message.role) or message.role  # type: ignore[assignment]
    return Message(role, tuple(parts))


def _describe(messages: list[Message], tools: Sequence[ToolSchema]) -> list[Message]:
    """The tools at the end of the system message, for templates that know none."""
    parts: tuple[Part, ...] = (Quoted(describe_tools(tools).strip()), _HOW_TO_CALL)
    if messages[0].role != "system":
        return [Message("system", parts), *messages]
    return [Message("system", (*messages[0].parts, "\n\n", *parts)), *messages[1:]]


def _open_call(request: ChatRequest, tools: Sequence[ToolSchema]) -> str:
    """How the turn begins where a call is required: small models finish a call far more often than they begin one."""
    choice = request.tool_choice
    if choice in (None, "auto", "none"):
        return ""
    if not tools:
        raise Refused("tool_choice asks for a call and there are no tools", param="tool_choice")
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else choice.get("name")
        if name not in {tool.name for tool in tools}:
            raise Refused("tool_choice names no tool of this request", param="tool_choice")
    elif choice in ("required", "any"):
        if len(tools) > 1:
            return '<tool_call>\n{"name": "'
        name = tools[0].name
    else:
        raise Refused("tool_choice must be none, auto, required, or name a function", param="tool_choice")
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{'
