"""Finding `<tag>...</tag>` blocks in what a policy wrote, in one pass.

    find_blocks("<think>hm</think><answer>42</answer>", ("think", "answer"))
    -> [Block(name="think", content="hm", start=0, end=17), Block(name="answer", content="42", start=17, end=36)]

The scan is linear in the length of the text whatever the text is: every tag is looked at once, and the next closing
tag of each name is known before any opening tag asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct


class Block(Struct, frozen=True):
    """A top-level block. `text[start:end]` is the block with its tags; `content` is what stands between them.

    Block(name="answer", content="42", start=17, end=36)
    """

    name: str
    content: str
    start: int
    end: int


@lru_cache(maxsize=64)
def _tag_pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("<(/?)(" + "|".join(map(re.escape, names)) + ")>")


def find_blocks(text: str, names: Sequence[str]) -> list[Block]:
    """Every top-level block with one of these names, in order.

    What stands inside a block is its content, tags and all: a `<answer>` inside `<think>` is a thought. An opening tag
    that is never closed opens nothing, and a closing tag without an opening one closes nothing.

        find_blocks("<think><answer>1</answer></think><answer>2</answer>", ("think", "answer"))[1].content -> "2"
        find_blocks("<think>unclosed <answer>2</answer>", ("think", "answer"))[0].content -> "2"
    """
    tags = list(_tag_pattern(tuple(names)).finditer(text))
    next_close = _next_closing_tags(tags)
    blocks: list[Block] = []
    index = 0
    while index < len(tags):
        close = next_close[index]
        if close is None:
            index += 1
            continue
        opening, closing = tags[index], tags[close]
        content = text[opening.end() : closing.start()]
        blocks.append(Block(opening.group(2), content, opening.start(), closing.end()))
        index = close + 1
    return blocks


def _next_closing_tags(tags: list[re.Match[str]]) -> list[int | None]:
    """For each opening tag, the number of the next closing tag with its name; None for the others."""
    nearest: dict[str, int] = {}
    result: list[int | None] = [None] * len(tags)
    for index in range(len(tags) - 1, -1, -1):
        slash, name = tags[index].group(1), tags[index].group(2)
        if slash:
            nearest[name] = index
        else:
            result[index] = nearest.get(name)
    return result


def has_unclosed(text: str, name: str) -> bool:
    """Does the text end inside a block of this name?

    has_unclosed('<tool_call>{"name": "sea', "tool_call") -> True
    """
    return text.rfind(f"<{name}>") > text.rfind(f"</{name}>")
