"""Reader of HTML pages: the title, and the text block by block.

    read_page("<title>The Oss</title><p>It rises<p>at Korrin.").blocks == [Block("It rises"), Block("at Korrin.")]

Every page is read in linear time. The standard library's parser is quadratic: for each tag without an end it searches
to the end of the page (32 KiB of "<a " take it 17 s), and it raises on some declarations.
"""

from __future__ import annotations

import re
from html import unescape

from msgspec import Struct

from quaere.search.extracted import Block
from quaere.search.page_blocks import PageBlocks

_RAW = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style")}  # no tags inside
_NAME = re.compile(r"<(/?)\s*+([a-zA-Z][^\s/>]*+)")
# A ">" inside a quoted value does not end the tag. Quantifiers are possessive, so that a tag is scanned once.
_TAG_END = re.compile(r"""(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+>""")
_COMMENT_END = re.compile("--!?>")
_ENDLESS_REFERENCE = re.compile("&#[0-9]{16,}+;?")  # not a character, and int() refuses thousands of digits


class Page(Struct, frozen=True):
    """The title of a page, and its blocks without menus, banners and footers.

    Page(title="The Oss", blocks=[Block("Course", headings=((2, "Course"),)), Block("It rises at Korrin.")])
    """

    title: str
    blocks: list[Block]

    @property
    def heading(self) -> str:
        """The first heading of the first three levels; "" if there is none."""
        found = (text for block in self.blocks for level, text in block.headings if level <= 3)
        return next(found, "")

    @property
    def text(self) -> str:
        """The text of all blocks."""
        return "".join(("\n" if block.tight else "\n\n") + block.text for block in self.blocks).strip()


def read_page(markup: str) -> Page:
    """Title and blocks of a page; all that a reader sees if nothing but menus and headings were left."""
    for whole in (False, True):
        page = PageBlocks(whole=whole)
        _Scanner(markup, page).scan()
        if blocks := page.finish():
            break
    return Page(" ".join("".join(page.title).split()), blocks)


class _Scanner:
    """Scanner of tags and text. `_tag` and `_declaration` take the index of a `<` and return where to go on."""

    def __init__(self, markup: str, page: PageBlocks) -> None:
        self._markup = markup
        self._page = page
        self._last_end = markup.rfind(">")  # a "<" after it opens no tag and is text
        self._quotes_close = True

    def scan(self) -> None:
        at = told = 0  # the text between `told` and `at` was not passed to the page yet
        while 0 <= (at := self._markup.find("<", at)) < self._last_end:
            behind = self._markup[at + 1 : at + 2]
            if not (behind in "!?/" or (behind.isascii() and behind.isalpha())):
                at += 1
                continue
            self._tell(told, at)
            at = told = self._tag(at) if behind not in "!?" else self._declaration(at)
        self._tell(told, len(self._markup))

    def _tell(self, start: int, end: int) -> None:
        if start < end:
            self._page.data(unescape(_ENDLESS_REFERENCE.sub("\ufffd", self._markup[start:end])))

    def _declaration(self, at: int) -> int:
        """End of a declaration or comment. A comment without an end hides the rest of the page, as in browsers."""
        if not self._markup.startswith("<!--", at):
            return self._markup.index(">", at) + 1
        end = _COMMENT_END.search(self._markup, at + 2)
        return end.end() if end else len(self._markup)

    def _tag(self, at: int) -> int:
        name = _NAME.match(self._markup, at)
        if name is None:  # browsers read "</3>" as a comment
            return self._markup.index(">", at) + 1
        end, tag = self._tag_end(name), name.group(2).lower()
        if name.group(1):
            self._page.end_tag(tag)
            return end
        self._page.start_tag(tag, self._markup[name.end() : end - 1])
        if self._markup[end - 2] == "/":
            self._page.end_tag(tag)
        elif tag in _RAW:
            closing = _RAW[tag].search(self._markup, end)
            return closing.start() if closing else len(self._markup)
        return end

    def _tag_end(self, name: re.Match[str]) -> int:
        if self._quotes_close and not name.group(1):
            if end := _TAG_END.match(self._markup, name.end()):
                return end.end()
            # The page ends inside a quoted value: a quote is missing somewhere, so from here on quotes are ignored.
            self._quotes_close = False
        return self._markup.index(">", name.end()) + 1
