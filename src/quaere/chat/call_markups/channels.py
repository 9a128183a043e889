"""Calls and thoughts in channels: GPT-OSS's messages, Muse's recipients, Gemma 4's channel tokens.

    <|channel|>analysis<|message|>I need the builder.<|end|><|start|>assistant<|channel|>commentary to=functions.search
    <|constrain|>json<|message|>{"query_list": ["Halm bridge"]}<|call|>

A turn of several messages: those for the model itself are thoughts, those to a tool are calls, and the rest is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from quaere.chat.call_markups.call_markup import (
    MAX_CALLS,
    CallMarkup,
    Rewrite,
    find_between,
    json_call,
    read_arguments,
    read_json,
)
from quaere.chat.tags import THOUGHT
from quaere.chat.tools import MAX_CALL_CHARS, ToolCall

_OPEN, _CLOSE = f"<{THOUGHT}>", f"</{THOUGHT}>"
_MESSAGE, _ENDS = "<|message|>", re.compile(r"<\|(?:end|call|return|eom|eot|start)\|>")
_TO_TOOL = re.compile(r"\bto=(?:functions\.)?([\w.-]{1,64})")
_TO_BEFORE = re.compile(r" ?\bto=[\w.-]{1,80}\Z")  # the recipient may stand before the channel
_MAX_HEADER_CHARS = 200


def _find_messages(text: str) -> Iterator[Rewrite]:
    """Headers become nothing or the start of a thought, ends its end, and a message to a tool a call."""
    position = num_calls = 0
    while (header_end := text.find(_MESSAGE, position)) >= 0:
        begin = _find_header(text, position, header_end)
        header = text[begin:header_end]
        body = header_end + len(_MESSAGE)
        ended = _ENDS.search(text, body)
        end = ended.start() if ended else len(text)
        # `<|start|>` is the next message's; any other end belongs to this one.
        after = end if ended is None or ended.group() == "<|start|>" else ended.end()
        kind = _kind_of(header)
        if kind == "thought":
            yield Rewrite(begin, body, _OPEN)
            yield from (Rewrite(at, at + len(_CLOSE), "") for at in _occurrences(text, _CLOSE, body, end))
            if ended:
                yield Rewrite(end, after, _CLOSE)
        elif kind and num_calls < MAX_CALLS:
            num_calls += 1
            yield Rewrite(begin, after, _write_call(kind, text[body:end]))
        else:
            yield Rewrite(begin, body, "")
            if after > end:
                yield Rewrite(end, after, "")
        position = after


def _find_header(text: str, position: int, header_end: int) -> int:
    """Where the header that ends at `header_end` begins; what stands before it is text."""
    begun = text.rfind("<|start|>", position, header_end)
    if begun < 0:
        begun = text.find("<|channel|>", position, header_end)
        if begun < 0:  # the template wrote the header's start
            begun = position
        elif to := _TO_BEFORE.search(text, max(position, begun - _MAX_HEADER_CHARS), begun):
            begun = to.start()
    return begun if header_end - begun <= _MAX_HEADER_CHARS else header_end


def _kind_of(header: str) -> str:
    """ "thought", the name of the tool that the message is for, or "" for text."""
    to = _TO_TOOL.search(header)
    if to is None or to[1] in ("user", "assistant"):
        return "thought" if "analysis" in header else ""
    return "thought" if to[1] == "self" else to[1]


def _write_call(name: str, body: str) -> str:
    arguments = read_json(body)
    if not isinstance(arguments, dict):
        arguments = _read_invoke(body)
    if arguments is None:  # nothing a dialect could read: it says so
        return f"<tool_call>{body.replace('</', '< /')}</tool_call>"
    return json_call(name, arguments)


_INVOKE = re.compile(r'\s*<atem:function_calls>\s*<atem:invoke name="[^"<>]{1,64}">')
_ATEM = re.compile(r'\s*<atem:parameter name="([^"<>]{1,64})">')


def _read_invoke(body: str) -> dict[str, Any] | None:
    begun = _INVOKE.match(body) if len(body) <= MAX_CALL_CHARS else None
    found = read_arguments(body, begun.end(), _ATEM, "</atem:parameter>") if begun else None
    if found is None:
        return None
    arguments, position = found
    return arguments if body[position:].lstrip().startswith("</atem:invoke>") else None


def _occurrences(text: str, wanted: str, begin: int, end: int) -> Iterator[int]:
    while (begin := text.find(wanted, begin, end)) >= 0:
        yield begin
        begin += len(wanted)


def _harmony_call(call: ToolCall) -> str:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    header = f"<|channel|>commentary to=functions.{call.name} <|constrain|>json"
    return f"{header}{_MESSAGE}{arguments}<|call|>"


def _harmony_mention(call: ToolCall) -> str:
    """A call in a prompt, where control tokens would begin a message."""
    return f"functions.{call.name}({json.dumps(call.arguments, ensure_ascii=False)}) in the commentary channel"


# ------------------------------------------------------------------------------------------------------- Gemma 4

_GEMMA_CALL = re.compile(r"\s*call:([\w.-]{1,64})(?=\{)")
_GEMMA_QUOTE, _GEMMA_END = '<|"|>', "<channel|>"
_GEMMA_KEY = re.compile(r"([{,]\s*)([A-Za-z_][\w-]{0,63})(?=\s*:)")


def _find_gemma(text: str) -> Iterator[Rewrite]:
    found = []
    for start, end, content in find_between(text, "<|channel>", _GEMMA_END, or_rest=True):
        thought = _OPEN + content.removeprefix("thought").strip("\n").replace(_CLOSE, "")
        is_closed = text.startswith(_GEMMA_END, end - len(_GEMMA_END))
        found.append(Rewrite(start, end, thought + _CLOSE * is_closed))
    for start, end, content in islice(find_between(text, "<|tool_call>", "<tool_call|>"), MAX_CALLS):
        call = _read_gemma(content) if len(content) <= MAX_CALL_CHARS else None
        if call is not None:
            found.append(Rewrite(start, end, json_call(call.name, call.arguments)))
    last = 0
    for rewrite in sorted(found, key=lambda one: one.start):
        if rewrite.start >= last:  # a call inside a thought is part of the thought
            yield rewrite
            last = rewrite.end


def _read_gemma(content: str) -> ToolCall | None:
    """`call:search{query:<|"|>Halm<|"|>}`: JSON with bare keys and with strings between tokens of their own."""
    named = _GEMMA_CALL.match(content)
    if named is None:
        return None
    pieces = content[named.end() :].split(_GEMMA_QUOTE)
    if len(pieces) % 2 == 0:
        return None  # a string is not closed
    # Outside of strings only keys are bare; the strings themselves are written as JSON.
    written = [
        json.dumps(piece, ensure_ascii=False) if number % 2 else _GEMMA_KEY.sub(r'\1"\2"', piece)
        for number, piece in enumerate(pieces)
    ]
    arguments = read_json("".join(written))
    return ToolCall(named[1], arguments) if isinstance(arguments, dict) else None


HARMONY = CallMarkup(
    name="GPT-OSS channels",
    signs=("<|channel|>", "<|call|>", _MESSAGE),
    find=_find_messages,
    write=_harmony_call,
    mention=_harmony_mention,
    write_thought=lambda thought: f"<|channel|>analysis{_MESSAGE}{thought}<|end|><|start|>assistant",
    lists_tools=True,
    ends=("<|call|>",),
    begin=f"<|channel|>final{_MESSAGE}",
    thought_end="<|end|><|start|>assistant",
    thought_stop=("<|end|>", _CLOSE),
)
ATEM = CallMarkup(
    name="Muse recipients",
    signs=("<atem:invoke", _MESSAGE),
    find=_find_messages,
    stop=("</atem:function_calls>",),
    begin=f" to=user{_MESSAGE}",
    thought_end="<|eom|><|start|>assistant",
    thought_stop=("<|eom|>", _CLOSE),
)
GEMMA = CallMarkup(
    name="Gemma 4 calls",
    signs=("<|tool_call>", _GEMMA_QUOTE),
    find=_find_gemma,
    stop=("<tool_call|>",),
    thought_end=_GEMMA_END,
    thought_stop=(_GEMMA_END, _CLOSE),
)
