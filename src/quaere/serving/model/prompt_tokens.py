"""From a request to the token ids of a prompt.

The text of a message is encoded as plain text: `<|im_end|>` in it is an ordinary word. Only the template's own text,
and the tags around calls and results, become control tokens.

    Prompter(renderer).of_chat(request) -> Prompt(token_ids=(1, 9690, ...))
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from msgspec import Struct

from quaere.chat.messages import Message, Part, Quoted, Role
from quaere.chat.renderer import PlainEncoder, Renderer
from quaere.chat.template import describe_tools
from quaere.chat.tools import ToolSchema
from quaere.serving.model.wire import ChatMessage, ChatRequest, Refused

_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
_ROLES: dict[str, Role] = {"developer": "system", "function": "tool"}
_HOW_TO_CALL = (
    '\nTo call one, write <tool_call>{"name": its name, "arguments": an object}</tool_call> and nothing else.'
)


class Prompt(Struct, frozen=True):
    """The prompt of a response. `opened` is the start of the model's turn, if the request determines it.

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
        self._renderer = renderer
        self._plain = PlainEncoder(renderer.tokenizer)
        tokenizer = renderer.tokenizer
        self.max_token_chars = max(map(len, tokenizer.get_vocab()))
        self._begin = tuple(tokenizer.encode("")[:1]) if tokenizer.bos_token_id in tokenizer.encode("")[:1] else ()

    def of_chat(self, request: ChatRequest) -> Prompt:
        """The prompt of a conversation, ending where the model starts to write."""
        tools = () if request.tool_choice == "none" else self._read_tools(request)
        messages = [_as_message(message) for message in request.messages]
        if tools and not self._renderer.lists_tools:
            messages = _describe(messages, tools)
        shown = tools if self._renderer.lists_tools else ()
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
        if isinstance(prompt, str):
            return self._not_empty((*self._begin, *self._plain.encode(prompt)))
        if not all(0 <= token < len(self._renderer.tokenizer) for token in prompt):
            raise Refused("prompt contains numbers that are not token ids of this model", param="prompt")
        return self._not_empty(tuple(prompt))

    def _not_empty(self, token_ids: tuple[int, ...]) -> Prompt:
        if not token_ids:
            raise Refused("prompt is empty; it must have at least one token", param="prompt")
        return Prompt(token_ids)

    def _open_json(self, request: ChatRequest) -> str:
        """The start of the turn if JSON is requested: small models would otherwise begin with prose or a code fence."""
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
        """The tools of a request. Templates write them verbatim, so they must not contain control tokens."""
        functions = [tool.function for tool in request.tools or ()]
        tools = tuple(
            ToolSchema(function.name, function.description or "", function.parameters or {"type": "object"})
            for function in functions
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
    if not tools:
        raise Refused("tool_choice requires a call, but tools is empty", param="tool_choice")
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
