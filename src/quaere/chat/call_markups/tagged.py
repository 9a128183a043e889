"""Calls between tags: Qwen3.5's and Nemotron-3's `<function=...>`, GLM's `<arg_key>`.

<tool_call>                                         <tool_call>search
<function=search>                                   <arg_key>query</arg_key>
<parameter=query>                                   <arg_value>Halm bridge</arg_value>
Halm bridge                                         </tool_call>
</parameter>
</function>
</tool_call>
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from quaere.chat.call_markups.call_markup import (
    CALL_TAG,
    MAX_CALLS,
    CallMarkup,
    Rewrite,
    find_between,
    json_call,
    read_arguments,
    write_value,
)
from quaere.chat.tools import MAX_CALL_CHARS, ToolCall

_FUNCTION = re.compile(r"\s*<function=([^<>\n]{1,64})>")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]{1,64})>")
_GLM_NAME = re.compile(r"\s*([\w.-]{1,64})\s*(?=<arg_key>|\Z)")
_GLM_ARGUMENT = re.compile(r"\s*<arg_key>([^<>\n]{1,64})</arg_key>\s*<arg_value>")


def _find_tagged(text: str) -> Iterator[Rewrite]:
    """Calls in either form; what stands between the tags tells which."""
    for start, end, content in islice(find_between(text, f"<{CALL_TAG}>", f"</{CALL_TAG}>"), MAX_CALLS):
        call = read_function(content) or _read_glm(content) if len(content) <= MAX_CALL_CHARS else None
        if call is not None:
            yield Rewrite(start, end, json_call(call.name, call.arguments))


def read_function(content: str) -> ToolCall | None:
    """The call of a `<function=...>` block; the closing tag of the function may be missing."""
    named = _FUNCTION.match(content)
    if named is None:
        return None
    found = read_arguments(content, named.end(), _PARAMETER, "</parameter>", _without_newlines)
    if found is None:
        return None
    arguments, position = found
    is_whole = content[position:].strip() in ("", "</function>")
    return ToolCall(named[1].strip(), arguments) if is_whole else None


def _without_newlines(value: str) -> str:
    """The value without the line breaks that the markup puts around it, which are not its own."""
    return value.removeprefix("\n").removesuffix("\n")


def _read_glm(content: str) -> ToolCall | None:
    named = _GLM_NAME.match(content)
    if named is None:
        return None
    found = read_arguments(content, named.end(), _GLM_ARGUMENT, "</arg_value>", str.strip)
    if found is None:
        return None
    arguments, position = found
    return None if content[position:].strip() else ToolCall(named[1], arguments)


def _write_function(call: ToolCall) -> str:
    given = "".join(
        f"<parameter={name}>\n{write_value(value)}\n</parameter>\n" for name, value in call.arguments.items()
    )
    return f"<{CALL_TAG}>\n<function={call.name}>\n{given}</function>\n</{CALL_TAG}>"


def _write_glm(call: ToolCall) -> str:
    given = "".join(
        f"<arg_key>{name}</arg_key>\n<arg_value>{write_value(value)}</arg_value>\n"
        for name, value in call.arguments.items()
    )
    return f"<{CALL_TAG}>{call.name}\n{given}</{CALL_TAG}>"


JSON = CallMarkup(name="JSON in <tool_call>")
FUNCTIONS = CallMarkup(
    name="<function=...> in <tool_call>", signs=("<function=",), find=_find_tagged, write=_write_function
)
GLM = CallMarkup(name="<arg_key> in <tool_call>", signs=("<arg_key>",), find=_find_tagged, write=_write_glm)
