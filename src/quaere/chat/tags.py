"""Finds `<tag>...</tag>` blocks in a policy's text, in one pass.

    find_blocks("<think>hm</think><answer>42</answer>", ("think", "answer"))
    -> [Block(name="think", content="hm", start=0, end=17), Block(name="answer", content="42", start=17, end=36)]

The scan is linear in the length of any text: after a closing tag is found the scan continues behind it; if it is not
found, that name is never searched for again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

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
