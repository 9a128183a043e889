import re

from hypothesis import given
from hypothesis import strategies as st

from quaere.chat.markup import find_blocks, has_unclosed

NAMES = ("think", "tool_call", "answer")


def contents(text):
    return [(block.name, block.content) for block in find_blocks(text, NAMES)]


def test_blocks_come_in_order_with_their_places():
    text = "a<think>hm</think> b <answer>42</answer>"
    first, second = find_blocks(text, NAMES)
    assert (first.name, first.content) == ("think", "hm")
    assert text[second.start : second.end] == "<answer>42</answer>"


def test_what_is_inside_a_block_is_its_content():
    assert contents("<think><answer>1</answer></think><answer>2</answer>") == [
        ("think", "<answer>1</answer>"),
        ("answer", "2"),
    ]


def test_an_unclosed_tag_opens_nothing():
    assert contents("<tool_call>oh <answer>2</answer>") == [("answer", "2")]
    assert contents("</answer><answer>x") == []


def test_behind_an_unclosed_thought_all_is_thought():
    assert contents("<think>oh <answer>2</answer>") == []
    assert contents("<answer>1</answer><think>oh <answer>2</answer>") == [("answer", "1")]
    assert contents("<think>a</think><think>oh <tool_call>b</tool_call>") == [("think", "a")]
    assert contents("<answer>is <think> a tag?</answer>") == [("answer", "is <think> a tag?")]


def test_the_first_closing_tag_closes():
    assert contents("<answer>a<answer>b</answer>c</answer>") == [("answer", "a<answer>b")]


def test_other_names_and_near_misses_are_text():
    assert contents("<b>x</b><answer >y</answer><Answer>z</Answer>") == []


def test_unclosed_is_told_apart():
    assert has_unclosed('<tool_call>{"na', "tool_call")
    assert not has_unclosed("<tool_call>x</tool_call>", "tool_call")
    assert not has_unclosed("plain", "tool_call")


pieces = st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "<tool_call>", "</tool_call>", "x", "<", "é"])


@given(st.lists(pieces, max_size=40).map("".join))
def test_blocks_are_disjoint_ordered_and_exact(text):
    end = 0
    for block in find_blocks(text, NAMES):
        assert block.start >= end
        end = block.end
        assert text[block.start : block.end] == f"<{block.name}>{block.content}</{block.name}>"
        assert f"</{block.name}>" not in block.content


@given(st.lists(pieces, max_size=30).map("".join))
def test_agrees_with_a_backtracking_regular_expression(text):
    slow = re.findall(r"<(think|answer|tool_call)>(.*?)</\1>|<think>.*", text, flags=re.DOTALL)
    assert contents(text) == [found for found in slow if found[0]]


def test_a_megabyte_of_unclosed_tags_is_read():
    """`benchmarks/tags.py` times it; a scanner that backtracks would run into the suite's time limit here."""
    text = "<question><answer><tool_call>" * 40_000
    assert len(text) > 1_000_000
    names = ("question", "answer", "tool_call")
    assert find_blocks(text, names) == []
    (block,) = find_blocks(text + "</answer>", names)
    assert (block.name, block.start) == ("answer", len("<question>"))
