"""Links between pages: where a text names another page, two facts can be joined into one question.

pages = Pages(index)
pages.links(passage) -> [Link(start=40, end=52, page="Orsolya Venn")]
pages.of("Orsolya Venn") -> [Passage(id="venn#0", ...)]
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from quaere.records import Passage
from quaere.search.index import Index
from quaere.warmup.documents.askable_facts import page_name

_WORD = re.compile(r"\w[\w'’-]*")
_MIN_CHARS = 4  # of a one-word name: shorter ones are mostly ordinary words


class Link(Struct, frozen=True):
    """A span of a passage's text that names another page.

    Link(start=40, end=52, page="Orsolya Venn")
    """

    start: int
    end: int
    page: str


class Pages:
    """The passages of an index by the name of their page; pages with the same name are merged."""

    def __init__(self, index: Index) -> None:
        self.passages = list(index.passages())
        self._by_name: dict[str, list[Passage]] = {}
        for passage in self.passages:
            if name := page_name(passage.title):
                self._by_name.setdefault(name, []).append(passage)
        self._names = {words: name for name in self._by_name if (words := _words(name))}
        self._longest = max(map(len, self._names), default=0)

    def of(self, name: str) -> list[Passage]:
        """The passages of the page with this name; [] if there is none."""
        return self._by_name.get(name, [])

    def links(self, passage: Passage) -> Iterator[Link]:
        """Every other page that the text names in full; the longest name at a position wins."""
        own = page_name(passage.title)
        found = list(_WORD.finditer(passage.text))
        at = 0
        while at < len(found):
            for length in range(min(self._longest, len(found) - at), 0, -1):
                page = self._names.get(tuple(word[0] for word in found[at : at + length]))
                if page and page != own:
                    yield Link(found[at].start(), found[at + length - 1].end(), page)
                    at += length
                    break
            else:
                at += 1


def _words(name: str) -> tuple[str, ...]:
    """A name as words; () if it could be mistaken for an ordinary word."""
    words = tuple(_WORD.findall(name))
    if not words or not words[0][0].isupper() or (len(words) == 1 and len(words[0]) < _MIN_CHARS):
        return ()
    return words
