"""Markup of tool calls: how a model family writes calls and thoughts, and conversion to the form that dialects read.

Dialects read one form: thoughts between `<think>` tags and calls as JSON between `<tool_call>` tags. A markup's reader
finds calls and thoughts in the model's own form and yields their replacements; a call that cannot be parsed stays as it
is, and the dialect rejects it. The token ids of an episode are never changed, only the text that is parsed.

    read_turn(QWEN_XML, "<tool_call><function=search>...</function></tool_call>").text
    -> '<tool_call>{"name": "search", "arguments": {...}}</tool_call>'

Every reader is linear in the length of the text: it only moves forward, searches for an end that is missing at most
once, and reads at most `MAX_CALLS` calls of at most `MAX_CALL_CHARS` characters.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from quaere.chat.tags import THOUGHT, find_blocks
from quaere.chat.tools import MAX_CALL_CHARS, ToolCall

MAX_CALLS = 8  # calls of a turn that are read; dialects act on the first
CALL_TAG = "tool_call"


class Rewrite(Struct, frozen=True):
    """A replacement in a turn's text: characters `[start, end)` are read as `text`.

    Rewrite(0, 17, "<think>")
    """

    start: int
    end: int
    text: str


class CallMarkup(Struct, frozen=True):
    """How the models of a family write calls and thoughts.

    A template has the markup if it contains all `signs`. `find` yields the replacements in a turn, in order. `write`
    makes the text of a call; without it, prompts and demonstrations keep the dialects' form, which every markup's
    reader leaves as it is. `lists_tools` says that the template's own list of tools is used. `stop` are strings that
    end a turn with a call, and `ends` control strings that the model ends such a turn with. `begin` is written
    before text that is not a thought; `thought_end` is the string with which the model ends a thought.

        CallMarkup(name="JSON in <tool_call>")
    """

    name: str
    signs: tuple[str, ...] = ()
    find: Callable[[str], Iterator[Rewrite]] = lambda text: iter(())
    write: Callable[[ToolCall], str] | None = None
    mention: Callable[[ToolCall], str] | None = None  # in a prompt, if it differs from `write`
    write_thought: Callable[[str], str] | None = None
    lists_tools: bool = False
    stop: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    begin: str = ""
    thought_end: str = f"\n</{THOUGHT}>\n\n"
    thought_stop: tuple[str, ...] = (f"</{THOUGHT}>",)  # strings by which a thought's end is seen


class Reading(Struct, frozen=True):
    """A turn in the dialects' form, and the replacements that were made.

    Reading(text="<think>so</think>", rewrites=(Rewrite(0, 30, "<think>"), Rewrite(32, 39, "</think>")))
    """

    text: str
    rewrites: tuple[Rewrite, ...] = ()

    def find_origin(self, offset: int) -> int:
        """The offset in the model's original text of character `offset` of `text`; inside a replacement, its start.

        Reading("<think>so", (Rewrite(0, 30, "<think>"),)).find_origin(8) -> 31
        """
        shift = 0  # how much longer the turn was up to here
        for rewrite in self.rewrites:
            if offset < rewrite.start - shift:
                break
            if offset < rewrite.start - shift + len(rewrite.text):
                return rewrite.start
            shift += rewrite.end - rewrite.start - len(rewrite.text)
        return offset + shift


def read_turn(markup: CallMarkup, text: str) -> Reading:
    """Convert a turn in the model's markup to the dialects' form."""
    rewrites = tuple(markup.find(text))
    return Reading(_apply(rewrites, text), rewrites)


def _apply(rewrites: Iterable[Rewrite], text: str) -> str:
    pieces, position = [], 0
    for rewrite in rewrites:
        pieces += [text[position : rewrite.start], rewrite.text]
        position = rewrite.end
    return "".join([*pieces, text[position:]])


def write_prompt(markup: CallMarkup, text: str) -> str:
    """A prompt with its example calls in the model's own markup.

    write_prompt(GLM, 'To search, write <tool_call>{"name": "search", ...}</tool_call>.')
    """
    write = markup.mention or markup.write
    return _replace_calls(text, write) if write and f"<{CALL_TAG}>" in text else text


def write_turn(markup: CallMarkup, text: str) -> str:
    """Convert a turn in the dialects' form to the model's own markup; the inverse of `read_turn`."""
    if markup.write is None:
        return text
    thought = ""
    blocks = find_blocks(text, (THOUGHT,)) if markup.write_thought else []
    if markup.write_thought and blocks and not text[: blocks[0].start].strip():
        thought, text = markup.write_thought(blocks[0].content), text[blocks[0].end :]
    written = _replace_calls(text, markup.write)
    return thought + (markup.begin + text if written == text else written)


def _replace_calls(text: str, write: Callable[[ToolCall], str]) -> str:
    calls = [block for block in find_blocks(text, (THOUGHT, CALL_TAG)) if block.name == CALL_TAG]
    found = ((block, read_json_call(block.content)) for block in calls)
    return _apply((Rewrite(block.start, block.end, write(call)) for block, call in found if call), text)


# --------------------------------------------------------------------------------------------- what readers share


def json_call(call: ToolCall) -> str:
    """A call in the dialects' form: '<tool_call>{"name": "evaluate", "arguments": {"score": 9}}</tool_call>'."""
    # A closing tag inside a string would end the block: JSON may write it with an escape.
    written = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False).replace("</", "<\\/")
    return f"<{CALL_TAG}>{written}</{CALL_TAG}>"


def read_json_call(text: str) -> ToolCall | None:
    """The call in a JSON object with a name and arguments (or parameters); None if the text is not such an object."""
    call = read_json(text)
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", call.get("parameters"))
    if isinstance(arguments, str):  # some models write the arguments as a string of JSON
        arguments = read_json(arguments)
    return ToolCall(call["name"], arguments) if isinstance(arguments, dict) else None


def read_json(text: str) -> Any:
    """The JSON value that the text consists of; None if it is not JSON or is too long."""
    if len(text) > MAX_CALL_CHARS:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def read_json_prefix(text: str, position: int) -> tuple[Any, int]:
    """The JSON value at a position and where it ends; None and the position if there is none."""
    shown = text[position : position + MAX_CALL_CHARS]
    try:
        value, end = json.JSONDecoder().raw_decode(shown, len(shown) - len(shown.lstrip()))
    except (ValueError, RecursionError):
        return None, position
    return value, position + end


def read_arguments(
    text: str, position: int, begin: re.Pattern[str], end: str, clean: Callable[[str], str] = str
) -> tuple[dict[str, Any], int] | None:
    """Arguments that follow each other from `position` on, and where they end; None if one of them is not closed.

    `begin` matches the text before a value, its first group being the argument's name, and `end` the text after it;
    `clean` removes from a value what belongs to the markup.

        read_arguments("<p=k>3</p>", 0, re.compile("<p=(.)>"), "</p>") == ({"k": 3}, 10)
    """
    arguments: dict[str, Any] = {}
    while given := begin.match(text, position):
        until = text.find(end, given.end())
        if until < 0:
            return None
        arguments[given[1].strip()] = read_value(clean(text[given.end() : until]))
        position = until + len(end)
    return arguments, position


def read_value(text: str) -> Any:
    """An argument without quotes: JSON if it is a number, a list, an object or the like, else the text.

    read_value('["Halm"]') == ["Halm"]; read_value("Halm bridge") == "Halm bridge"; read_value("9") == 9
    """
    value = read_json(text)
    return text if value is None or isinstance(value, str) else value


def write_value(value: Any) -> str:
    """The inverse of `read_value`."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def find_between(text: str, begin: str, end: str, *, or_rest: bool = False) -> Iterator[tuple[int, int, str]]:
    """Start, end and content of each part between two strings; with `or_rest`, the last may lack its end.

    list(find_between("a[b]c", "[", "]")) == [(1, 4, "b")]
    """
    position = 0
    while (start := text.find(begin, position)) >= 0:
        inner = start + len(begin)
        stop = text.find(end, inner)
        if stop < 0 and not or_rest:
            return
        position = stop + len(end) if stop >= 0 else len(text)
        yield start, position, text[inner:stop] if stop >= 0 else text[inner:]


def find_calls(
    text: str, begin: str, end: str, read: Callable[[str], ToolCall | None], max_chars: int = MAX_CALL_CHARS
) -> Iterator[Rewrite]:
    """Replacements, in the dialects' form, for the calls between two strings that `read` can parse."""
    for start, stop, content in islice(find_between(text, begin, end), MAX_CALLS):
        if len(content) <= max_chars and (call := read(content)):
            yield Rewrite(start, stop, json_call(call))
