"""Text of one block of a page: white space, line breaks, superscripts and links.

text = InlineText()
text.add("2")
text.start_raised()
text.add("64")
text.end_raised()
text.write() == "2^64"
"""

from __future__ import annotations

import re

from quaere.search.hyperlinks import MAX_ANCHOR_CHARS, Hyperlink, LinkedText, count_solid

_POWER = re.compile(r"[+−-]?[0-9]+(?:[.,/][0-9]+)?|[A-Za-z]|[+−-]")
_EXPRESSION = re.compile(r"[+−-]?[0-9A-Za-z][^\[\]]*")
_SEPARATORS = re.compile(r"[\s|·•»›«‹>/\\–—:\[\]()-]*")
_MENU_LINKS = 3


class InlineText:
    """Collector of a block's text. A link may have begun before the block; `target` is where the open one leads."""

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
        self._link_at = self._num_solid = self._num_counted = 0  # solid characters in all, and pieces of this line

    def add(self, text: str) -> None:
        """Append text as it is in the page."""
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
        if self._raised_at is None:
            self._raised_at = len(self._pieces)

    def end_raised(self) -> None:
        """End a superscript: "10", "-6" becomes "10^-6", while "1", "st" stays "1st"."""
        if self._raised_at is None:
            return
        before = self._pieces[self._raised_at - 1][-1:] if self._raised_at else ""
        raised = "".join(self._pieces[self._raised_at :])
        self._pieces[self._raised_at :] = [_write_raised(raised, before)]
        self._raised_at = None

    def start_link(self, target: str = "") -> None:
        """Begin a link, to another document if a target is given."""
        self.end_link()
        self.in_link, self.target = True, target
        self._num_links += 1
        if target:
            self._link_at = self._count_solid()

    def end_link(self) -> None:
        """End a link."""
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
            code = [line.rstrip() for line in "\n".join(lines).expandtabs().split("\n")]
            return "\n".join(code).strip("\n")
        return "\n".join(line for line in (" ".join(each.split()) for each in lines) if line)

    def finish(self, *, verbatim: bool = False) -> LinkedText:
        """The text with its links; one that is open ends with it."""
        self.end_link()
        return LinkedText(self.write(verbatim=verbatim), tuple(self._links))


def _write_raised(raised: str, before: str) -> str:
    said = raised.strip()
    if not (before.isalnum() or before == ")"):
        return raised
    if _POWER.fullmatch(said):
        return f"^{said}"
    # An ordinal ("st", "nd") or a footnote ("[1]") is no power.
    is_power = _EXPRESSION.fullmatch(said) is not None and not said.isalpha()
    return f"^({said})" if is_power else raised
