r"""Reader of HTML pages: title and visible paragraphs.

    read_page("<title>The Oss</title><p>It rises<p>at Korrin.") == ("The Oss", "It rises\n\nat Korrin.")

Every page is read in linear time. The standard library's parser is quadratic: for each tag without an end it searches
to the end of the page (32 KiB of "<a " take it 17 s), and it raises on some declarations.
"""

from __future__ import annotations

import re
from html import unescape

_SILENT = frozenset({"script", "style", "noscript", "template", "svg"})
_RAW = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style")}  # no tags inside
_BLOCKS = re.compile(
    "address|article|aside|blockquote|br|caption|d[dlt]|details|div|figcaption|figure|footer|form|h[1-6r]|header|li|main|"
    "nav|[ou]l|p|pre|section|summary|table|t[dhr]"
)
_NAME = re.compile(r"<(/?)\s*+([a-zA-Z][^\s/>]*+)")
# A ">" inside a quoted value does not end the tag. Quantifiers are possessive, so that a tag is scanned once.
_TAG_END = re.compile(r"""(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+>""")
_COMMENT_END = re.compile("--!?>")
_ENDLESS_REFERENCE = re.compile("&#[0-9]{16,}+;?")  # not a character, and int() refuses thousands of digits


def read_page(markup: str) -> tuple[str, str]:
    """Title and text of a page: each block becomes a paragraph, runs of white space become one space."""
    page = _Page()
    _Scanner(markup, page).scan()
    page.end_paragraph()
    return _one_line("".join(page.title)), "\n\n".join(page.paragraphs)


class _Page:
    """Collector of a page's visible text."""

    def __init__(self) -> None:
        self.paragraphs: list[str] = []
        self.title: list[str] = []
        self._words: list[str] = []
        self._silent_depth = 0
        self._in_title = False

    def start_tag(self, tag: str) -> None:
        self._silent_depth += tag in _SILENT
        self._in_title = tag == "title" and not self._silent_depth
        if _BLOCKS.fullmatch(tag):
            self.end_paragraph()

    def end_tag(self, tag: str) -> None:
        if tag in _SILENT and self._silent_depth:
            self._silent_depth -= 1
        self._in_title = self._in_title and tag != "title"
        if _BLOCKS.fullmatch(tag):
            self.end_paragraph()

    def data(self, text: str) -> None:
        if self._in_title:
            self.title.append(text)
        elif not self._silent_depth:
            self._words.append(text)

    def end_paragraph(self) -> None:
        paragraph = _one_line("".join(self._words))
        self._words = []
        if paragraph:
            self.paragraphs.append(paragraph)


class _Scanner:
    """Scanner of tags and text. `_tag` and `_declaration` take the index of a `<` and return where to go on."""

    def __init__(self, markup: str, page: _Page) -> None:
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
        self._page.start_tag(tag)
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


def _one_line(text: str) -> str:
    return " ".join(text.split())
