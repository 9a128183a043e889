"""The known markups of tool calls, and the choice of one for a chat template.

| markup | models | prompts write calls so | tools are listed by |
|---|---|---|---|
| JSON in <tool_call> | Qwen2.5, Qwen3, Hermes; all without a markup | yes | the template if it can, else the prompt |
| <function=...> in <tool_call> | Qwen3.5 to 3.8, Nemotron-3 | yes | the template |
| <arg_key> in <tool_call> | GLM-4 | yes | the template |
| GPT-OSS channels | GPT-OSS | yes | the template |
| Muse recipients, Gemma 4, DeepSeek, Mistral, Llama, LFM2 | | read | the prompt |

"read": prompts and demonstrations have JSON in <tool_call> tags; calls in the model's own form are only parsed.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from quaere.chat.markup import (
    CALL_TAG,
    MAX_CALL_CHARS,
    MAX_CALLS,
    THOUGHT,
    CallMarkup,
    Rewrite,
    ToolCall,
    find_blocks,
    json_call,
    read_json,
    read_json_call,
)

# --------------------------------------------------------------------------------------------------- what readers share


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


# ----------------------------------------------------------------------------------------------------- between tags

# <tool_call>                                         <tool_call>search
# <function=search>                                   <arg_key>query</arg_key>
# <parameter=query>                                   <arg_value>Halm bridge</arg_value>
# Halm bridge                                         </tool_call>
# </parameter>
# </function>
# </tool_call>


class _Tagged(NamedTuple):
    """A call format between tags: patterns of the function's name, of an argument's start and end, and of the rest."""

    name: re.Pattern[str]
    argument: re.Pattern[str]
    end: str
    clean: Callable[[str], str]
    rest: tuple[str, ...]

    def read(self, content: str) -> ToolCall | None:
        named = self.name.match(content)
        found = read_arguments(content, named.end(), self.argument, self.end, self.clean) if named else None
        if named is None or found is None or content[found[1] :].strip() not in self.rest:
            return None
        return ToolCall(named[1].strip(), found[0])


_FUNCTION_FORM = _Tagged(
    re.compile(r"\s*<function=([^<>\n]{1,64})>"),
    re.compile(r"\s*<parameter=([^<>\n]{1,64})>"),
    "</parameter>",
    # The line breaks around a value belong to the markup and not to the value.
    lambda value: value.removeprefix("\n").removesuffix("\n"),
    ("", "</function>"),  # the closing tag of the function may be missing
)
_GLM_FORM = _Tagged(
    re.compile(r"\s*([\w.-]{1,64})\s*(?=<arg_key>|\Z)"),
    re.compile(r"\s*<arg_key>([^<>\n]{1,64})</arg_key>\s*<arg_value>"),
    "</arg_value>",
    str.strip,
    ("",),
)


_find_tagged = partial(
    find_calls,
    begin=f"<{CALL_TAG}>",
    end=f"</{CALL_TAG}>",
    read=lambda said: _FUNCTION_FORM.read(said) or _GLM_FORM.read(said),
)


def _write_tagged(call: ToolCall, *, whole: str, argument: str) -> str:
    given = "".join(argument.format(name, write_value(value)) for name, value in call.arguments.items())
    return f"<{CALL_TAG}>{whole.format(call.name, given)}</{CALL_TAG}>"


_write_function = partial(
    _write_tagged, whole="\n<function={}>\n{}</function>\n", argument="<parameter={}>\n{}\n</parameter>\n"
)
_write_glm = partial(_write_tagged, whole="{}\n{}", argument="<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n")


JSON = CallMarkup(name="JSON in <tool_call>")
FUNCTIONS = CallMarkup(
    name="<function=...> in <tool_call>", signs=("<function=",), find=_find_tagged, write=_write_function
)
GLM = CallMarkup(name="<arg_key> in <tool_call>", signs=("<arg_key>",), find=_find_tagged, write=_write_glm)


# ---------------------------------------------------------------------------------------- JSON or Python between tokens

_BEGIN, _END, _SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
_ALL_BEGIN, _ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_NAME = re.compile(r"\s*([\w.-]{1,64})\s*")
_MAX_PYTHON_CHARS = 2000


def _find_deepseek(text: str) -> Iterator[Rewrite]:
    position = 0
    for start, end, content in islice(find_between(text, _BEGIN, _END), MAX_CALLS):
        if call := _read_deepseek(content):
            begin = start - len(_ALL_BEGIN) if text.endswith(_ALL_BEGIN, position, start) else start
            position = end + len(_ALL_END) if text.startswith(_ALL_END, end) else end
            yield Rewrite(begin, position, json_call(call))


def _read_deepseek(content: str) -> ToolCall | None:
    """Parse DeepSeek's call: `function<｜tool▁sep｜>NAME` and fenced JSON; since V3.1 `NAME<｜tool▁sep｜>JSON`."""
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
        if named:
            value = [{"name": named[1], "arguments": value}]
        calls = [call for item in value[:MAX_CALLS] if (call := _read_item(item))] if isinstance(value, list) else []
        if calls:
            yield Rewrite(start, position, "".join(map(json_call, calls)))


def _read_item(item: object) -> ToolCall | None:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        return None
    return ToolCall(item["name"], item["arguments"]) if isinstance(item.get("arguments"), dict) else None


_PYTHON_TAG = "<|python_tag|>"


def _find_llama(text: str) -> Iterator[Rewrite]:
    """The replacement for a Llama call: a JSON object that is the whole turn except for a thought before it."""
    thoughts = find_blocks(text, (THOUGHT,))
    start = thoughts[-1].end if thoughts else 0
    content = text[start:].strip().removeprefix(_PYTHON_TAG)
    if content.startswith("{") and (call := read_json_call(content)) is not None:
        yield Rewrite(start, len(text), json_call(call))


def _read_python(content: str) -> ToolCall | None:
    """The first call of a list such as `[search(query="Halm")]`; it is parsed and never run."""
    try:
        listed = ast.parse(content.strip(), mode="eval").body
        call = listed.elts[0] if isinstance(listed, ast.List) and listed.elts else listed
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            return None
        arguments = {given.arg: ast.literal_eval(given.value) for given in call.keywords if given.arg}
        # `json.dumps` raises for values that JSON does not have, such as sets and bytes.
        return read_json_call(json.dumps({"name": call.func.id, "arguments": arguments}, ensure_ascii=False))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


DEEPSEEK = CallMarkup(name="DeepSeek calls", signs=(_BEGIN,), find=_find_deepseek, stop=(_ALL_END,))
MISTRAL = CallMarkup(name="[TOOL_CALLS]", signs=(_CALLS,), find=_find_mistral)
LLAMA = CallMarkup(name="JSON as a whole turn", signs=('"parameters": ', "<|start_header_id|>"), find=_find_llama)
PYTHON = CallMarkup(
    name="Python calls",
    signs=("<|tool_call_start|>",),
    find=lambda text: find_calls(text, "<|tool_call_start|>", "<|tool_call_end|>", _read_python, _MAX_PYTHON_CHARS),
    stop=("<|tool_call_end|>",),
)


# ------------------------------------------------------------------------------------------------------------- channels

_OPEN, _CLOSE = f"<{THOUGHT}>", f"</{THOUGHT}>"
_MESSAGE, _ENDS = "<|message|>", re.compile(r"<\|(?:end|call|return|eom|eot|start)\|>")
_TO_TOOL = re.compile(r"\bto=(?:functions\.)?([\w.-]{1,64})")
_TO_BEFORE = re.compile(r" ?\bto=[\w.-]{1,80}\Z")  # the recipient may come before the channel
_MAX_HEADER_CHARS = 200


def _find_messages(text: str) -> Iterator[Rewrite]:
    """Replacements for GPT-OSS messages: a thought gets `<think>` tags, a message to a tool becomes a call.

    The headers and ends of other messages are removed.
    """
    position = num_calls = 0
    while (header_end := text.find(_MESSAGE, position)) >= 0:
        begin = _find_header(text, position, header_end)
        header = text[begin:header_end]
        body = header_end + len(_MESSAGE)
        ended = _ENDS.search(text, body)
        end = ended.start() if ended else len(text)
        # `<|start|>` belongs to the next message; any other end belongs to this message.
        after = end if ended is None or ended.group() == "<|start|>" else ended.end()
        kind = _kind_of(header)
        if kind == "thought":
            yield Rewrite(begin, body, _OPEN)
            yield from (Rewrite(*found.span(), "") for found in re.compile(_CLOSE).finditer(text, body, end))
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
    """Start of the message header that ends at `header_end`; text before the header is skipped."""
    begun = text.rfind("<|start|>", position, header_end)
    if begun < 0:
        begun = text.find("<|channel|>", position, header_end)
        if begun < 0:  # the template wrote the header's start
            begun = position
        elif to := _TO_BEFORE.search(text, max(position, begun - _MAX_HEADER_CHARS), begun):
            begun = to.start()
    return begun if header_end - begun <= _MAX_HEADER_CHARS else header_end


def _kind_of(header: str) -> str:
    """The kind of a message by its header: "thought", the name of the tool it is for, or "" for text."""
    to = _TO_TOOL.search(header)
    if to is None or to[1] in ("user", "assistant"):
        return "thought" if "analysis" in header else ""
    return "thought" if to[1] == "self" else to[1]


def _write_call(name: str, body: str) -> str:
    read = read_json(body)
    arguments = read if isinstance(read, dict) else _read_invoke(body)
    if arguments is None:  # nothing a dialect could read: it says so
        return f"<tool_call>{body.replace('</', '< /')}</tool_call>"
    return json_call(ToolCall(name, arguments))


_INVOKE = re.compile(r'\s*<atem:function_calls>\s*<atem:invoke name="[^"<>]{1,64}">')
_ATEM = re.compile(r'\s*<atem:parameter name="([^"<>]{1,64})">')


def _read_invoke(body: str) -> dict[str, Any] | None:
    begun = _INVOKE.match(body) if len(body) <= MAX_CALL_CHARS else None
    found = read_arguments(body, begun.end(), _ATEM, "</atem:parameter>") if begun else None
    return found[0] if found and body[found[1] :].lstrip().startswith("</atem:invoke>") else None


def _harmony_call(call: ToolCall) -> str:
    header = f"<|channel|>commentary to=functions.{call.name} <|constrain|>json"
    return f"{header}{_MESSAGE}{json.dumps(call.arguments, ensure_ascii=False)}<|call|>"


def _harmony_mention(call: ToolCall) -> str:
    """A GPT-OSS call described in words, for prompts: its control tokens would begin a message there."""
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
    found += find_calls(text, "<|tool_call>", "<tool_call|>", _read_gemma)
    last = 0
    for rewrite in sorted(found, key=lambda one: one.start):
        if rewrite.start >= last:  # a call inside a thought is part of the thought
            yield rewrite
            last = rewrite.end


def _read_gemma(content: str) -> ToolCall | None:
    """Parse Gemma's call, `call:search{query:<|"|>Halm<|"|>}`: JSON with bare keys and special quotation tokens."""
    named = _GEMMA_CALL.match(content)
    pieces = content[named.end() :].split(_GEMMA_QUOTE) if named else []
    if named is None or len(pieces) % 2 == 0:  # a string is not closed
        return None
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


# ----------------------------------------------------------------------------------------------------------- the choice

MARKUPS: tuple[CallMarkup, ...] = (FUNCTIONS, GLM, HARMONY, ATEM, GEMMA, DEEPSEEK, MISTRAL, PYTHON, LLAMA)


def choose_markup(template: str) -> CallMarkup:
    """The markup of a chat template, by the strings that it writes around a call.

    choose_markup("... <tool_call>\\n<function=example> ...").name == "<function=...> in <tool_call>"
    """
    return next((markup for markup in MARKUPS if all(sign in template for sign in markup.signs)), JSON)
