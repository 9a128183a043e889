"""Tools that a policy may call: their schemas, and the parser of a call.

read_call('{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}', (SEARCH,))
-> ToolCall(name="search", arguments={"query_list": ["Halm bridge"]})
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

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


def first_fault(*faults: tuple[bool, str]) -> str:
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
