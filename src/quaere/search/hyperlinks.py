"""Hyperlinks of a document to other documents of its corpus, and the collector of a page's text with its links.

    Hyperlink(start=22, end=34, target="people/venn.html")     # the place of the anchor in the text, and the target

Targets are resolved to documents only when links are looked up (`link_graph.py`): a file added later may be a target.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

MAX_LINKS = 20_000  # links of a document; further ones are not kept
MAX_ANCHOR_CHARS = 200  # a longer one is a region of the page, or was never closed
MAX_TARGET_CHARS = 500
_ELSEWHERE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*+:|//|\\\\")
_QUERY = re.compile(r"\?[^#]*+")
_WORD = re.compile(r"\S++")


class Hyperlink(Struct, frozen=True, gc=False, array_like=True):
    """A link to another document: `text[start:end]` is its anchor, `target` the path or name it leads to.

    Hyperlink(start=22, end=34, target="people/venn.html")
    """

    start: int
    end: int
    target: str

    def shift(self, by: int) -> Hyperlink:
        """The link with its offsets moved by `by` characters."""
        return Hyperlink(self.start + by, self.end + by, self.target) if by else self


def clean_target(written: str) -> str:
    """The path or name a link leads to, without its query; "" for a link to another site or within the document.

    [clean_target(written) for written in ("a.html?b=1#c", "https://a.example", "#c")] == ["a.html#c", "", ""]
    """
    target = written.strip()
    is_elsewhere = len(target) > MAX_TARGET_CHARS or not target.isprintable() or _ELSEWHERE.match(target)
    target = "" if is_elsewhere else _QUERY.sub("", target)
    return "" if target.startswith("#") else target


# --------------------------------------------------------------------------------------------------------- linked text


class LinkedText(Struct, frozen=True):
    """A piece of a page's text with its links. The links' offsets count only characters that are not white space.

    Later steps change only white space (they join lines and add indents), so these offsets stay valid.

        LinkedText("Built by Orsolya Venn.", links=(Hyperlink(7, 18, "venn.html"),))
    """

    text: str
    links: tuple[Hyperlink, ...] = ()


def join_linked(separator: str, parts: Sequence[LinkedText]) -> LinkedText:
    """The parts joined with the separator, and their links with adjusted offsets."""
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
    """The links with ordinary offsets, white space counted; links beyond the end of the text are left out."""
    if not linked.links:
        return ()
    # The end is found by the anchor's last character, not by the one after it: white space may be between them.
    wanted = sorted({place for link in linked.links for place in (link.start, link.end - 1)})
    found = dict(zip(wanted, _find_solid(linked.text, wanted), strict=False))
    return tuple(
        Hyperlink(found[link.start], found[link.end - 1] + 1, link.target)
        for link in linked.links
        if link.end - 1 in found
    )


def _find_solid(text: str, wanted: Iterable[int]) -> Iterator[int]:
    """The offsets in the text of the characters with these numbers, white space not counted; ends with the text."""
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


# ------------------------------------------------------------------------------------------------------ text of a block


_POWER = re.compile(r"[+−-]?[0-9]+(?:[.,/][0-9]+)?|[A-Za-z]|[+−-]")
_EXPRESSION = re.compile(r"[+−-]?[0-9A-Za-z][^\[\]]*")
_SEPARATORS = re.compile(
    r"[\s|·•»›«‹>/\\–—:\[\]()-]*+|\s*+(?:next|prev|previous|up):(?:[\s,\[\]|]|(?:next|prev|previous|up):)*+",
    re.IGNORECASE,
)
_MENU_LINKS = 3


class InlineText:
    """Collector of a block's text: white space, line breaks, superscripts and links.

    A link may have begun before the block; `target` is the target of the open link. "2", `start_raised()`, "64" becomes
    "2^64".
    """

    def __init__(self, *, in_link: bool = False, target: str = "") -> None:
        self._lines: list[str] = []
        self._pieces: list[str] = []
        self._has_words = False
        self._raised_at: int | None = None
        self._num_links = 0
        self.in_link = in_link
        self.target = target
        self._unlinked: list[str] = []
        self._links: list[Hyperlink] = []
        # Characters that are not white space, up to the open link and in all, and how many of this line's pieces were
        # counted for that.
        self._link_at = self._num_solid = self._num_counted = 0

    def add(self, text: str) -> None:
        """Append text as it is in the page's source, white space included."""
        self._pieces.append(text)
        self._has_words = self._has_words or not text.isspace()
        if not self.in_link:
            self._unlinked.append(text)

    def break_line(self) -> bool:
        """Begin another line; False if nothing has been added since the last break."""
        if not self._has_words:
            return False
        self._raised_at = None
        self._count_solid()
        self._lines.append("".join(self._pieces))
        self._pieces, self._has_words, self._num_counted = [], False, 0
        return True

    def start_raised(self) -> None:
        """Begin a superscript."""
        self._raised_at = len(self._pieces) if self._raised_at is None else self._raised_at

    def end_raised(self) -> None:
        """End a superscript: "10", "-6" becomes "10^-6", while "1", "st" stays "1st"."""
        if self._raised_at is None:
            return
        before = self._pieces[self._raised_at - 1][-1:] if self._raised_at else ""
        self._pieces[self._raised_at :] = [_write_raised("".join(self._pieces[self._raised_at :]), before)]
        self._raised_at = None

    def start_link(self, target: str = "") -> None:
        """Begin a link, to another document if a target is given."""
        self.end_link()
        self.in_link, self.target = True, target
        self._num_links += 1
        if target:
            self._link_at = self._count_solid()

    def end_link(self) -> None:
        """End the open link, if any, and record it if it has a target and an anchor of a plausible length."""
        if self.target:
            end = self._count_solid()
            if self._link_at < end <= self._link_at + MAX_ANCHOR_CHARS:
                self._links.append(Hyperlink(self._link_at, end, self.target))
        self.in_link, self.target = False, ""

    def _count_solid(self) -> int:
        """The number of characters so far, without white space and without a superscript that has not ended."""
        pieces = self._pieces[self._num_counted : self._raised_at]
        self._num_counted += len(pieces)
        self._num_solid += sum(map(count_solid, pieces))
        return self._num_solid

    @property
    def is_menu(self) -> bool:
        """True for several links with nothing but marks between them: "Previous | Contents | Next"."""
        return self._num_links >= _MENU_LINKS and _SEPARATORS.fullmatch("".join(self._unlinked)) is not None

    def write(self, *, verbatim: bool = False) -> str:
        """The text so far; unless `verbatim`, runs of white space become one space."""
        lines = [*self._lines, "".join(self._pieces)]
        if verbatim:
            return "\n".join(map(str.rstrip, "\n".join(lines).expandtabs().split("\n"))).strip("\n")
        return "\n".join(line for line in (" ".join(each.split()) for each in lines) if line)

    def finish(self, *, verbatim: bool = False) -> LinkedText:
        """End the open link, if any, and return the text with its links."""
        self.end_link()
        return LinkedText(self.write(verbatim=verbatim), tuple(self._links))


def _write_raised(raised: str, before: str) -> str:
    said, may_be_power = raised.strip(), before.isalnum() or before == ")"
    if may_be_power and _POWER.fullmatch(said):
        return f"^{said}"
    # An ordinal ("st", "nd") or a footnote ("[1]") is no power.
    return f"^({said})" if may_be_power and _EXPRESSION.fullmatch(said) and not said.isalpha() else raised
