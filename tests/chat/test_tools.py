import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.chat.markup import (
    MAX_CALL_CHARS,
    MAX_QUERIES,
    MAX_QUERY_CHARS,
    SEARCH,
    CallRefused,
    ToolCall,
    read_call,
    read_queries,
)


def call(text):
    return read_queries(read_call(text, (SEARCH,)))


def test_a_good_call_is_read():
    assert call('{"name": "search", "arguments": {"query_list": [" Halm bridge ", "Oss"]}}') == ("Halm bridge", "Oss")


def test_as_many_queries_and_as_long_ones_as_may_be_are_read():
    longest = ["x" * MAX_QUERY_CHARS] * MAX_QUERIES
    assert read_queries(ToolCall("search", {"query_list": longest})) == tuple(longest)
    for more, reason in (([*longest, "x"], "at most .* queries"), ([longest[0] + "x"], "at most .* characters")):
        with pytest.raises(CallRefused, match=reason):
            read_queries(ToolCall("search", {"query_list": more}))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("{'name': 'search'}", "not JSON"),
        ("[]", "needs a name and arguments"),
        ('{"name": "search"}', "needs a name and arguments"),
        ('{"name": "search", "arguments": "x"}', "needs a name and arguments"),
        ('{"name": "serch", "arguments": {}}', "no tool of that name"),
        ('{"name": ["search"], "arguments": {}}', "no tool of that name"),
        ('{"name": "search", "arguments": {}}', "list of strings"),
        ('{"name": "search", "arguments": {"query_list": "x"}}', "list of strings"),
        ('{"name": "search", "arguments": {"query_list": [1]}}', "list of strings"),
        ('{"name": "search", "arguments": {"query_list": []}}', "at least one"),
        ('{"name": "search", "arguments": {"query_list": ["  "]}}', "no empty one"),
        ('{"name": "search", "arguments": {"query_list": ["a","b","c","d","e","f"]}}', "at most 5"),
        ('{"name": "search", "arguments": {"query_list": ["' + "x" * 501 + '"]}}', "at most 500"),
        ('{"name": "search", "arguments": {"query_list": ["' + "x" * MAX_CALL_CHARS + '"]}}', "too long"),
        ("[" * 5000, "nested too deeply"),
        ('{"a":' * 1200 + "1" + "}" * 1200, "nested too deeply"),
        ('{"name": "search", "arguments": {"query_list": ["\\ud800"]}}', "half a character"),
        ('{"name": "search", "arguments": {"query_list": ["x"]}} trailing', "not JSON"),
    ],
)
def test_bad_calls_are_refused_with_their_reason(text, reason):
    with pytest.raises(CallRefused, match=reason):
        call(text)


def test_brackets_inside_strings_do_not_count_as_depth():
    query = "[[[[[[[[[[{{{{{{{{{{\\"
    assert call(json.dumps({"name": "search", "arguments": {"query_list": [query]}})) == (query,)


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text):
    try:
        assert isinstance(read_call(text, (SEARCH,)), ToolCall)
    except CallRefused as refusal:
        assert str(refusal)
