"""Hyperlinks of a document to others of its corpus: the place of the anchor in the text, and the target.

    Hyperlink(start=22, end=34, target="people/venn.html")

Targets are resolved when they are asked for (`link_graph.py`): a file that is added later may be one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

MAX_LINKS = 20_000  # of a document; the others are not kept
MAX_ANCHOR_CHARS = 200  # a longer one is a region of the page, or was never closed
MAX_TARGET_CHARS = 500
_ELSEWHERE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*+:|//|\\\\")
_QUERY = re.compile(r"\?[^#]*+")
_WORD = re.compile(r"\S++")


class Hyperlink(Struct, frozen=True, gc=False, array_like=True):
    """The anchor `text[start:end]` of a link to another document.

    Hyperlink(start=22, end=34, target="people/venn.html")
    """

    start: int
    end: int
    target: str

    def shift(self, by: int) -> Hyperlink:
        """The link in a text with `by` more characters before it."""
        return Hyperlink(self.start + by, self.end + by, self.target) if by else self


def clean_target(written: str) -> str:
    """The path or the name a link leads to, with its fragment; "" if it is no other document of the corpus.

    [clean_target(written) for written in ("a.html?b=1#c", "https://a.example", "#c")] == ["a.html#c", "", ""]
    """
    target = written.strip()
    if len(target) > MAX_TARGET_CHARS or not target.isprintable() or _ELSEWHERE.match(target):
        return ""
    target = _QUERY.sub("", target)
    return "" if target.startswith("#") else target


# --------------------------------------------------------------------------------------------------------- linked text


class LinkedText(Struct, frozen=True):
    """Text of a page on its way to a block. Its links are placed by characters that are not white space.

    On the way white space changes (lines are joined, indents added), and nothing else: such a place stays right.

        LinkedText("Built by Orsolya Venn.", links=(Hyperlink(7, 18, "venn.html"),))
    """

    text: str
    links: tuple[Hyperlink, ...] = ()


def join_linked(separator: str, parts: Sequence[LinkedText]) -> LinkedText:
    """The parts with the separator between them."""
    text = separator.join(part.text for part in parts)
    if not any(part.links for part in parts):
        return LinkedText(text)
    links: list[Hyperlink] = []
    before, gap = 0, count_solid(separator)
    for part in parts:
        links += [link.shift(before) for link in part.links]
        before += count_solid(part.text) + gap
    return LinkedText(text, tuple(links))


def count_solid(text: str) -> int:
    """The number of characters that are not white space."""
    return len("".join(text.split()))


def place_links(linked: LinkedText) -> tuple[Hyperlink, ...]:
    """The links of the text by all of its characters; one that the text does not reach is left out."""
    if not linked.links:
        return ()
    # The last character of an anchor is looked for, not the one after it: white space may be between them.
    wanted = sorted({place for link in linked.links for place in (link.start, link.end - 1)})
    found = dict(zip(wanted, _find_solid(linked.text, wanted), strict=False))
    return tuple(
        Hyperlink(found[link.start], found[link.end - 1] + 1, link.target)
        for link in linked.links
        if link.end - 1 in found
    )


def _find_solid(text: str, wanted: Iterable[int]) -> Iterator[int]:
    """Where the characters with these numbers, white space not counted, stand in the text; up to its end."""
    words = _WORD.finditer(text)
    before, start, end = 0, 0, 0  # the characters before the word, and the word
    for place in wanted:
        while place - before >= end - start:
            before += end - start
            word = next(words, None)
            if word is None:
                return
            start, end = word.span()
        yield start + place - before
