"""What a policy writes: blocks between tags, and calls of tools in the markup of a model family.

    find_blocks("<think>hm</think><answer>42</answer>", ("think", "answer"))
    -> [Block(name="think", content="hm", start=0, end=17), Block(name="answer", content="42", start=17, end=36)]
    read_call('{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}', (SEARCH,))
    -> ToolCall(name="search", arguments={"query_list": ["Halm bridge"]})
    read_turn(QWEN_XML, "<tool_call><function=search>...</function></tool_call>").text
    -> '<tool_call>{"name": "search", "arguments": {...}}</tool_call>'

Dialects read one form: thoughts between `<think>` tags and calls as JSON between `<tool_call>` tags. A markup's reader
finds calls and thoughts in the model's own form and yields their replacements; a call that cannot be parsed stays as it
is, and the dialect rejects it. The token ids of an episode are never changed, only the text that is parsed.

Every reader is linear in the length of the text: it only moves forward, searches for an end that is missing at most
once, and reads at most `MAX_CALLS` calls of at most `MAX_CALL_CHARS` characters.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, structs

THOUGHT = "think"


class Block(Struct, frozen=True):
    """A top-level block. `text[start:end]` is the block with its tags; `content` is the text between them.

    Block(name="answer", content="42", start=17, end=36)
    """

    name: str
    content: str
    start: int
    end: int


@lru_cache(maxsize=64)
def _opening_pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("<(" + "|".join(map(re.escape, names)) + ")>")


def find_blocks(text: str, names: Sequence[str]) -> list[Block]:
    """All top-level blocks with these names, in order.

    Tags inside a block are part of its content: an `<answer>` inside `<think>` is not an answer. An opening tag without
    a closing one, or the reverse, is ignored; except that no block begins after a `<think>` that is never closed.

        find_blocks("<think><answer>1</answer></think><answer>2</answer>", ("think", "answer"))[1].content -> "2"
        find_blocks("<note>unclosed <answer>2</answer>", ("note", "answer"))[0].content -> "2"
        find_blocks("<think>unclosed <answer>2</answer>", ("think", "answer")) -> []
    """
    blocks: list[Block] = []
    closable = tuple(names)
    position = 0
    while closable:
        opening = _opening_pattern(closable).search(text, position)
        if opening is None:
            break
        name = opening.group(1)
        end = text.find(f"</{name}>", opening.end())
        if end < 0:
            if name == THOUGHT:  # the stop string </answer> can end a turn inside a thought: that is no answer
                break
            closable = tuple(other for other in closable if other != name)
            continue
        position = end + len(name) + 3
        blocks.append(Block(name, text[opening.end() : end], opening.start(), position))
    return blocks


def has_unclosed(text: str, name: str) -> bool:
    """True if the text ends inside a block with this name.

    has_unclosed('<tool_call>{"name": "sea', "tool_call") -> True
    """
    return text.rfind(f"<{name}>") > text.rfind(f"</{name}>")


# ------------------------------------------------------------------------------------------------------------- tools

MAX_CALL_CHARS = 8192
MAX_CALL_DEPTH = 8
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)


class ToolSchema(Struct, frozen=True):
    """A tool's description for the policy; `parameters` is a JSON schema.

    ToolSchema("search", "Search the documents.", {"type": "object", "properties": {...}, "required": [...]})
    """

    name: str
    description: str
    parameters: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """The schema in the JSON form of chat templates and endpoints."""
        return {"type": "function", "function": structs.asdict(self)}


class ToolCall(Struct, frozen=True):
    """A parsed tool call.

    ToolCall(name="search", arguments={"query_list": ["Halm bridge"]})
    """

    name: str
    arguments: dict[str, Any]


class CallRefused(Exception):
    """The call is invalid; the message is a few fixed words, safe to show to the policy."""


MAX_QUERIES = 5
MAX_QUERY_CHARS = 500

SEARCH = ToolSchema(
    name="search",
    description="Look passages up in the document collection. Each query brings back its best passages.",
    parameters={
        "type": "object",
        "properties": {
            "query_list": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": MAX_QUERIES,
                "description": "One or more complete search queries.",
            }
        },
        "required": ["query_list"],
    },
)


def read_call(text: str, tools: Sequence[ToolSchema]) -> ToolCall:
    """Parse one tool call, bounded in size and depth, or raise `CallRefused` with the reason.

    read_call('{"name": "serch", "arguments": {}}', (SEARCH,)) raises CallRefused("there is no tool of that name")
    """
    text = text.strip()
    if len(text) > MAX_CALL_CHARS:
        raise CallRefused("the tool call is too long")
    if _nesting_depth(text) > MAX_CALL_DEPTH:
        raise CallRefused("the tool call is nested too deeply")
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        raise CallRefused("the tool call is not JSON") from None
    if not isinstance(call, dict) or not isinstance(call.get("arguments"), dict):
        raise CallRefused("the tool call needs a name and arguments")
    tool = next((tool for tool in tools if tool.name == call.get("name")), None)
    if tool is None:
        raise CallRefused("there is no tool of that name")
    return ToolCall(name=tool.name, arguments=call["arguments"])


def read_queries(call: ToolCall) -> tuple[str, ...]:
    """The queries of a search call; `CallRefused` if they are invalid.

    read_queries(ToolCall("search", {"query_list": [" Halm bridge "]})) -> ("Halm bridge",)
    """
    queries = call.arguments.get("query_list")
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise CallRefused("query_list must be a list of strings")
    stripped = tuple(query.strip() for query in queries)
    if fault := first_fault(
        (not all(stripped) or not stripped, "query_list must hold at least one query, and no empty one"),
        (len(stripped) > MAX_QUERIES, f"query_list may hold at most {MAX_QUERIES} queries"),
        *query_faults(*stripped),
    ):
        raise CallRefused(fault)
    return stripped


def first_fault(*faults: tuple[object, str]) -> str:
    """The text of the first fault that is true; "" if none is.

    first_fault((False, "the query is empty"), (True, "the query is too long")) == "the query is too long"
    """
    return next((reason for is_found, reason in faults if is_found), "")


def query_faults(*queries: str) -> tuple[tuple[bool, str], ...]:
    """What can make a query unusable in any dialect, for `first_fault`."""
    is_long = any(len(query) > MAX_QUERY_CHARS for query in queries)
    return (
        (is_long, f"a query may have at most {MAX_QUERY_CHARS} characters"),
        (not all(map(is_text, queries)), "a query holds half a character"),
    )


def is_text(text: str) -> bool:
    """False for a string that cannot be encoded as UTF-8: JSON escapes can produce half a surrogate pair.

    is_text("Halm") -> True; is_text("\\ud800") -> False
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _nesting_depth(text: str) -> int:
    """Maximum nesting depth of brackets outside strings, computed without recursion.

    _nesting_depth('{"a": [1, "[["]}') -> 2
    """
    depth = deepest = 0
    for character in _STRING.sub("", text):
        depth += (character in "{[") - (character in "}]")
        deepest = max(deepest, depth)
    return deepest


def describe_tools(tools: Sequence[ToolSchema]) -> str:
    """The tools as a paragraph for the system prompt, for templates and endpoints without tools."""
    listed = "\n".join(json.dumps(tool.as_json()["function"], ensure_ascii=False) for tool in tools)
    return f"\n\nTools you can call, one JSON object a line:\n{listed}"


# ------------------------------------------------------------------------------------------------- markup of a family

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


# ------------------------------------------------------------------------------------------------------- calls as JSON


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
