"""Finding `<tag>...</tag>` blocks in what a policy wrote, in one pass.

    find_blocks("<think>hm</think><answer>42</answer>", ("think", "answer"))
    -> [Block(name="think", content="hm", start=0, end=17), Block(name="answer", content="42", start=17, end=36)]

The scan is linear in the length of the text whatever the text is: a search for a closing tag either finds it, and the
scan goes on behind it, or it does not, and then that name is never looked for again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

THOUGHT = "think"


class Block(Struct, frozen=True):
    """A top-level block. `text[start:end]` is the block with its tags; `content` is what stands between them.

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
    """Every top-level block with one of these names, in order.

    What stands inside a block is its content, tags and all: a `<answer>` inside `<think>` is a thought. An opening tag
    that is never closed opens nothing, and a closing tag without an opening one closes nothing; but behind a `<think>`
    that is never closed all is thought, and no block begins there.

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
            if name == THOUGHT:  # a stop string such as </answer> ends the turn in the middle of a thought
                break
            closable = tuple(other for other in closable if other != name)
            continue
        position = end + len(name) + 3
        blocks.append(Block(name, text[opening.end() : end], opening.start(), position))
    return blocks


def has_unclosed(text: str, name: str) -> bool:
    """Does the text end inside a block of this name?

    has_unclosed('<tool_call>{"name": "sea', "tool_call") -> True
    """
    return text.rfind(f"<{name}>") > text.rfind(f"</{name}>")
