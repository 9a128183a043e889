"""The result of reading a file: its title, its text, and the place and the headings of every part of the text.

text = TextBuilder(max_chars=1 << 20)
text.add("The Oss rises near Halmgate.", group="page 1")
text.build(title="Rivers")
-> FileText(title="Rivers", text="The Oss rises ...", parts=(Part(start=0, group="page 1"),))
choose_title("Microsoft Word - minutes_v3.doc", "Minutes of the bridge board") == "Minutes of the bridge board"
HeadingTrails("The planner", headings, text).name(start, end) == "Options > Query planning"
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from os.path import commonprefix

from msgspec import Struct

from quaere.search.hyperlinks import MAX_LINKS, Hyperlink


class Unreadable(Exception):
    """Raised for a file that cannot be read; the message says why. The corpus reader skips and reports such a file."""


class Part(Struct, frozen=True, gc=False):
    """A part of a document's text, from `start` to the next part: a page, a slide, a row of a sheet, a cell.

    A passage never crosses from one `group` into another. Within a group the parts are counted in `unit`s, and a
    passage may span several of them.

        Part(start=0, group="page 3"); Part(start=812, group="sheet Costs", unit="row", number=14)
    """

    start: int
    group: str = ""
    unit: str = ""
    number: int = 0


class Heading(Struct, frozen=True, gc=False):
    """A heading of a document: it covers the text from `start` to the next heading of the same level or a higher one.

    Levels 1 to 6 are headings of sections. Deeper levels give a passage the context that it would lack, such as the
    column names of its table or the term it defines; a heading without text ends that context.

        Heading(start=0, level=2, text="Query planning"); Heading(start=812, level=7, text="Key | Type | Default")
    """

    start: int
    level: int
    text: str


SECTION_LEVELS = 6


class Block(Struct, frozen=True):
    """A paragraph, list item, table row or heading of a page; `headings` are the (level, text) that start at the block.

    A `tight` block follows the block before it without a blank line: a list item, a row below its header. `links` are
    the hyperlinks in its text.

        Block(text="- The Halm bridge", tight=True); Block(text="Bridges", headings=((2, "Bridges"),))
    """

    text: str
    tight: bool = False
    headings: tuple[tuple[int, str], ...] = ()
    links: tuple[Hyperlink, ...] = ()


class FileText(Struct, frozen=True):
    """The title and text of one file. `problems` says what could not be read.

    Without `parts` the text is the file's content, line for line; `encoding` is "" for formats that are not text.
    `columns` are the column names of a CSV file; they are added to its title, for passages without the header row.

        FileText(title="The Oss", text="The Oss rises near ...", encoding="utf-8")
    """

    title: str
    text: str
    encoding: str = ""
    parts: tuple[Part, ...] = ()
    problems: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    headings: tuple[Heading, ...] = ()
    links: tuple[Hyperlink, ...] = ()


class TextBuilder(Struct):
    """Builds a document's text, parts, headings and links from consecutive pieces; raises if it exceeds `max_chars`."""

    max_chars: int
    _texts: list[str] = []
    _parts: list[Part] = []
    _headings: list[Heading] = []
    _next_headings: list[Heading] = []
    _links: list[Hyperlink] = []
    _num_chars: int = 0

    def begin(self, level: int, heading: str, offset: int = 0) -> None:
        """Start a heading at character `offset` of the text that is added next; later text is under it too."""
        self._next_headings.append(Heading(offset, level, storable_text(heading)))

    def add(
        self,
        text: str,
        *,
        group: str = "",
        unit: str = "",
        number: int = 0,
        gap: str = "\n\n",
        links: Sequence[Hyperlink] = (),
    ) -> None:
        """Append the text of one part with its links after the separator `gap`; does nothing if the text is empty."""
        added = text
        # A line of its own may be indented, as an item of a list is.
        text = storable_text(text.rstrip().lstrip("\n") if gap == "\n" else text.strip())
        if not text:
            return
        before = gap if self._texts else ""
        self._num_chars += len(before) + len(text)
        if self._num_chars > self.max_chars:
            # A small file can include one long text many times.
            raise Unreadable(f"its text is longer than {self.max_chars} characters")
        start = self._num_chars - len(text)
        self._parts.append(Part(start, group, unit, number))
        self._headings += [Heading(start + each.start, each.level, each.text) for each in self._next_headings]
        self._next_headings = []
        if links:
            moved = start - len(added.rstrip()) + len(text)
            self._links += [link.shift(moved) for link in links[: MAX_LINKS - len(self._links)]]
        self._texts += [before, text]

    def add_blocks(self, blocks: Sequence[Block], *, group: str = "") -> None:
        """Append the blocks of a page; those that are not tight count as paragraphs, from 1."""
        number = 0
        for block in blocks:
            number += not block.tight or not number
            for level, heading in block.headings:
                self.begin(level, heading)
            gap = "\n" if block.tight else "\n\n"
            self.add(block.text, group=group, unit="paragraph", number=number, gap=gap, links=block.links)

    def build(self, title: str, encoding: str = "", problems: Sequence[str] = ()) -> FileText:
        """The title, text, parts, headings and links of everything added so far."""
        parts, headings, links = tuple(self._parts), tuple(self._headings), tuple(self._links)
        return FileText(title, "".join(self._texts), encoding, parts, tuple(problems), (), headings, links)


def name_some(names: Sequence[object], most: int = 8) -> str:
    """The first of the names and how many more there are: `name_some([2, 5, 7], most=2) == "2, 5 and 1 more"`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def storable_text(text: str) -> str:
    """The text with characters that UTF-8 cannot encode replaced by "?": damaged fonts yield lone surrogates."""
    return text.encode("utf-8", "replace").decode()


# ------------------------------------------------------------------------------------------------------------- places


def find_stretches(text: str, parts: Sequence[Part]) -> Iterator[tuple[int, int]]:
    """The stretches of text, as (start, end), that no passage may cross: one for every run of parts of one group.

    list(find_stretches("ab", [Part(0, "page 1"), Part(1, "page 2")])) == [(0, 1), (1, 2)]
    """
    starts = [part.start for before, part in pairwise(parts) if part.group != before.group]
    return pairwise([0, *starts, len(text)])


class Places:
    """Names the places of passages in their file, such as "page 3"; calls must be in the order of the text."""

    def __init__(self, text: str, parts: Sequence[Part]) -> None:
        self._text, self._parts = text, parts
        self._starts = [part.start for part in parts]
        self._line, self._at = 1, 0

    def name(self, start: int, end: int) -> str:
        """The place of `text[start:end]`: "page 3", "sheet Costs, rows 14-20", "lines 10-24"."""
        if not self._parts:
            self._line += self._text.count("\n", self._at, start)
            self._at = start
            return _count("line", self._line, self._line + self._text.count("\n", start, end))
        first = self._parts[max(0, bisect_right(self._starts, start) - 1)]
        last = self._parts[max(0, bisect_right(self._starts, end - 1) - 1)]
        counted = _count(first.unit, first.number, last.number) if first.unit else ""
        return ", ".join(name for name in (first.group, counted) if name)


def _count(unit: str, first: int, last: int) -> str:
    return f"{unit} {first}" if first == last else f"{unit}s {first}-{last}"


# --------------------------------------------------------------------------------------------------------------- titles


_MAX_CHARS = 200
_PROGRAM = re.compile(r"microsoft (?:word|excel|powerpoint|office)\b", re.IGNORECASE)
_FILE_NAME = re.compile(
    r"\.(?:docx?|dotx?|rtf|odt|pptx?|odp|xlsx?|ods|pdf|dvi|ps|indd|qxd|tmp)$"
    r"|^\S+\.(?:html?|tex|pages|txt|md)$",  # with words before it, a page about such a file: "Writing a robots.txt"
    re.IGNORECASE,
)
_EMPTY_NAMES = re.compile(
    r"(?:untitled|unnamed|unbenannt|ohne titel|sans titre|sin título|sem título|senza titolo"
    r"|без названия|無題|无标题|제목 없음"
    r"|no title|document|dokument|documento|slide|folie|diapositive?|diapositiva|presentation|präsentation|présentation"
    r"|powerpoint[ -]?(?:presentation|präsentation)|présentation powerpoint|book|mappe|classeur|sheet|tabelle|feuil"
    r"|page|new page|title|titel)"
    r"(?:[ _-]?(?:document|dokument|page|presentation))?[ _-]?\(?\d{0,4}\)?",
    re.IGNORECASE,
)


def choose_title(*candidates: str) -> str:
    """The first candidate that is a meaningful title (no file name or program's default), on one line; else ""."""
    lines = (" ".join(candidate.split())[:_MAX_CHARS] for candidate in candidates)
    return next((line for line in lines if not _is_junk(line)), "")


def _is_junk(title: str) -> bool:
    """True for an empty title, a program's default, and the name of a file.

    [_is_junk(title) for title in ("Slide 1", "report_v2.docx", "Slide rules")] == [True, True, False]
    """
    is_default = _PROGRAM.match(title) or _FILE_NAME.search(title) or _EMPTY_NAMES.fullmatch(title)
    return bool(is_default) or not any(map(str.isalnum, title))


# ------------------------------------------------------------------------------------------------------------- headings


MAX_HEADING_CHARS = 120
MAX_TRAIL_CHARS = 200
_MARKUP_CHARS = 12  # characters of markup that a heading may have besides its words: "## ", line breaks
_NUMBER = re.compile(r"(?:chapter\s+|appendix\s+)?[0-9]+(?:\.[0-9]+)*+\.?\s+", re.IGNORECASE)

Trail = tuple[tuple[int, str], ...]  # levels and texts, outermost first


class HeadingTrails:
    """Finds the heading trail of passages: the headings a passage is under, outermost first, without the title."""

    def __init__(self, title: str, headings: Sequence[Heading], text: str = "") -> None:
        self._title, self._text = _bare(title), text
        self._headings = headings
        self._starts = [heading.start for heading in headings]
        self._trails: list[Trail] = []
        trail: Trail = ()
        for heading in headings:
            said = ((heading.level, heading.text[:MAX_HEADING_CHARS].rstrip(": ")),) if heading.text else ()
            trail = (*(outer for outer in trail if outer[0] < heading.level), *said)
            self._trails.append(trail)

    def name(self, start: int, end: int) -> str:
        """The trail of `text[start:end]`, joined with " > "; for several whole sections the headings they share."""
        last = bisect_right(self._starts, start) - 1
        if last < 0:
            return ""
        trail = self._trails[last]
        if self._starts[last] == start:
            within = range(last, bisect_left(self._starts, end))
            sections = [self._trails[number] for number in within if self._has_text(number)]
            trail = tuple(commonprefix(sections)) if sections else trail  # noqa: RUF071 (of tuples, not of strings)
        said = [text for _, text in trail if _bare(text) != self._title]
        while sum(map(len, said)) + 3 * len(said) > MAX_TRAIL_CHARS and len(said) > 1:
            del said[0]
        return " > ".join(said)

    def _has_text(self, number: int) -> bool:
        """True for a section with text between its heading and the next."""
        heading, rest = self._headings[number], self._starts[number + 1 : number + 2]
        num_chars = len(heading.text)
        if self._text.startswith("#", heading.start):  # of Markdown: addresses of links make it longer
            num_chars = max(num_chars, self._text.find("\n", heading.start) - heading.start)
        is_long = not rest or rest[0] - heading.start > num_chars + _MARKUP_CHARS
        return heading.level <= SECTION_LEVELS and is_long


def _bare(heading: str) -> str:
    """A heading in lower case and without its number, for comparisons: "car inventory" for "2.9.1 Car Inventory"."""
    return " ".join(_NUMBER.sub("", heading, count=1).casefold().split())
