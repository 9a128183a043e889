"""Calls in JSON or Python between tokens of their own: DeepSeek, Mistral, LFM2; and Llama's, which have none.

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\\n```json\\n{...}\\n```<｜tool▁call▁end｜>...
[TOOL_CALLS][{"name": "search", "arguments": {...}}]          [TOOL_CALLS]search[ARGS]{...}
<|tool_call_start|>[search(query="Halm bridge")]<|tool_call_end|>
{"name": "search", "parameters": {...}}
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice

from quaere.chat.call_markups.call_markup import (
    MAX_CALLS,
    CallMarkup,
    Rewrite,
    find_between,
    json_call,
    read_json,
    read_json_call,
    read_json_prefix,
)
from quaere.chat.tags import THOUGHT, find_blocks
from quaere.chat.tools import MAX_CALL_CHARS, ToolCall

_BEGIN, _END, _SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
_ALL_BEGIN, _ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_NAME = re.compile(r"\s*([\w.-]{1,64})\s*")
_MAX_PYTHON_CHARS = 2000


def _find_deepseek(text: str) -> Iterator[Rewrite]:
    position = 0
    for start, end, content in islice(find_between(text, _BEGIN, _END), MAX_CALLS):
        call = _read_deepseek(content)
        if call is None:
            continue
        begin = start - len(_ALL_BEGIN) if text.endswith(_ALL_BEGIN, position, start) else start
        position = end + len(_ALL_END) if text.startswith(_ALL_END, end) else end
        yield Rewrite(begin, position, json_call(call.name, call.arguments))


def _read_deepseek(content: str) -> ToolCall | None:
    """`function<｜tool▁sep｜>NAME` and a fenced block of JSON; since V3.1 `NAME<｜tool▁sep｜>JSON`."""
    head, separator, rest = content.partition(_SEP)
    if not separator or len(content) > MAX_CALL_CHARS:
        return None
    name, fence, body = rest.partition("```json")
    if fence:
        arguments = read_json(body.strip().removesuffix("```"))
    else:
        name, arguments = head, read_json(rest)
    named = _NAME.fullmatch(name)
    return ToolCall(named[1], arguments) if named and isinstance(arguments, dict) else None


_CALLS, _ARGS = "[TOOL_CALLS]", re.compile(r"\s*([\w.-]{1,64}?)(?:\[CALL_ID\][\w-]{1,64})?\[ARGS\]")


def _find_mistral(text: str) -> Iterator[Rewrite]:
    position = 0
    for _ in range(MAX_CALLS):
        start = text.find(_CALLS, position)
        if start < 0:
            return
        inner = start + len(_CALLS)
        named = _ARGS.match(text, inner)
        value, position = read_json_prefix(text, named.end() if named else inner)
        if named and isinstance(value, dict):
            yield Rewrite(start, position, json_call(named[1], value))
        elif not named and isinstance(value, list):
            calls = [call for item in value[:MAX_CALLS] if (call := _read_item(item))]
            if calls:
                yield Rewrite(start, position, "".join(json_call(call.name, call.arguments) for call in calls))


def _read_item(item: object) -> ToolCall | None:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        return None
    return ToolCall(item["name"], item["arguments"]) if isinstance(item.get("arguments"), dict) else None


_PYTHON_TAG = "<|python_tag|>"


def _find_llama(text: str) -> Iterator[Rewrite]:
    """A JSON object that is all of the turn but for a thought before it."""
    thoughts = find_blocks(text, (THOUGHT,))
    start = thoughts[-1].end if thoughts else 0
    content = text[start:].strip().removeprefix(_PYTHON_TAG)
    if content.startswith("{") and (call := read_json_call(content)) is not None:
        yield Rewrite(start, len(text), json_call(call.name, call.arguments))


def _find_python(text: str) -> Iterator[Rewrite]:
    found = find_between(text, "<|tool_call_start|>", "<|tool_call_end|>")
    for start, end, content in islice(found, MAX_CALLS):
        call = _read_python(content) if len(content) <= _MAX_PYTHON_CHARS else None
        if call is not None:
            yield Rewrite(start, end, json_call(call.name, call.arguments))


def _read_python(content: str) -> ToolCall | None:
    """The first call of a list such as `[search(query="Halm")]`; it is parsed and never run."""
    try:
        listed = ast.parse(content.strip(), mode="eval").body
        call = listed.elts[0] if isinstance(listed, ast.List) and listed.elts else listed
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            return None
        arguments = {given.arg: ast.literal_eval(given.value) for given in call.keywords if given.arg}
        return read_json_call(_as_json(call.func.id, arguments))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _as_json(name: str, arguments: object) -> str:
    """The call as JSON, which also refuses values that JSON does not have, such as sets and bytes."""
    return json_call(name, arguments).removeprefix("<tool_call>").removesuffix("</tool_call>")


DEEPSEEK = CallMarkup(name="DeepSeek calls", signs=(_BEGIN,), find=_find_deepseek, stop=(_ALL_END,))
MISTRAL = CallMarkup(name="[TOOL_CALLS]", signs=(_CALLS,), find=_find_mistral)
LLAMA = CallMarkup(name="JSON as a whole turn", signs=('"parameters": ', "<|start_header_id|>"), find=_find_llama)
PYTHON = CallMarkup(name="Python calls", signs=("<|tool_call_start|>",), find=_find_python, stop=("<|tool_call_end|>",))
