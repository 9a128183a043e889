r"""Builds the blocks of a page from its tags and text: paragraphs, headings, list items, definitions, table rows.

    <p>Options:<dl><dt>-c<dd>Curvature<dd>Default: no</dl>   ->   Options:\n-c: Curvature\n  Default: no

A line break in the source of a page is white space. A list is tight, line below line, as long as its items are single
blocks, and so is the lead above it that ends with a colon. A row of a table is one line, with the name of its column
before each cell: "Key: limits.cpu; Type: string". A table that only lays out the page does not count as a table: a row
with headings or long texts in its cells is read cell by cell.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from html import unescape

from msgspec import Struct

from quaere.search.extracted import SECTION_LEVELS, Block
from quaere.search.hyperlinks import (
    MAX_LINKS,
    MAX_TARGET_CHARS,
    Hyperlink,
    InlineText,
    LinkedText,
    clean_target,
    join_linked,
    place_links,
)

# An annotation repeats its formula in another notation.
_SILENT = frozenset("script style noscript template svg select datalist annotation annotation-xml".split())
_HEADINGS = {f"h{level}": level for level in range(1, SECTION_LEVELS + 1)}
_LISTS = frozenset({"ul", "ol", "dl"})
_TABLE_TAGS = frozenset({"table", "tr", "td", "th"})
_BLOCKS = frozenset(
    "address article aside blockquote caption center dd dialog dir div dl dt details fieldset figcaption figure footer "
    "form header hgroup hr legend li main menu nav ol p pre section summary table tbody td tfoot th thead tr ul".split()
) | set(_HEADINGS)
_MAX_INDENT = 6
_PERMALINK = " ¶§🔗"  # of a heading or term, by documentation tools
_MAX_ENTRIES = 4  # depth of nested definitions whose terms are kept


class _List(Struct):
    tag: str
    number: int = 0


class _Entry(Struct):
    term: str
    depth: int
    num_lines: int = 0


class _Power(Struct):
    """An open <msup> of MathML: its second child is raised."""

    num_children: int = 0
    depth: int = 0  # of the open tags inside it


class PageBlocks:
    """Collector of a page's blocks. Menus, banners and footers are skipped unless `whole`."""

    def __init__(self, *, whole: bool = False) -> None:
        self.title: list[str] = []
        self._whole = whole
        self._lines: list[_Line] = []
        self._inline = InlineText()
        self._silent_depth = self._pre_depth = self._level = 0
        self._in_title = self._in_term = False
        self._around = ""  # the tag of the element that is being skipped, and how many elements of this tag are open
        self._around_depth = 0
        self._lists: list[_List] = []
        self._open_lists: Counter[str] = Counter()
        self._terms: list[LinkedText] = []
        self._entries: list[_Entry] = []
        self._marker: LinkedText | None = None  # what comes before the next line, if that is the first of an item
        self._tables: list[_Table] = []
        self._num_deep_tables = 0
        self._powers: list[_Power] = []
        self._headings: list[tuple[int, str]] = []
        self._num_targets = 0
        self._main: list[int] = []  # how many lines there were where each <main> began and ended

    def finish(self) -> list[Block]:
        """The blocks of the page; none if a skipped element never ended, or if nothing but headings is left."""
        self._end_block()
        self._write_terms()
        while self._tables:
            self._end_row()
            self._tables.pop()
        main = [] if self._whole else [*self._main, *[len(self._lines)] * (len(self._main) == 1)]  # it may never end
        lines = self._lines[main[0] : main[-1]] if main else self._lines
        if self._around or all(line.kind == "heading" for line in lines):
            return []
        return [
            Block(line.text, line.tight, tuple(line.headings), place_links(LinkedText(line.text, line.links)))
            for line in lines
        ]

    # ------------------------------------------------------------------------------------------------------------- tags

    def start_tag(self, tag: str, attributes: str) -> None:
        """Process a start tag; `attributes` is the text after its name."""
        if self._around:
            self._around_depth += tag == self._around
            return
        self._silent_depth += tag in _SILENT
        self._in_title = tag == "title" and not self._silent_depth
        if tag == "button" and self._pre_depth and not self._whole:  # it copies the code
            self._around, self._around_depth = tag, 1
            return
        if not self._whole and _is_around(tag, attributes):
            self._end_block()
            self._around, self._around_depth = tag, 1
            return
        if tag in _BLOCKS:
            self._end_block()
        if tag == "main":
            self._main.append(len(self._lines))
        elif tag in _HEADINGS:
            self._level = _HEADINGS[tag]
        elif tag in _LISTS:
            self._write_lead()
            self._lists.append(_List(tag))
            self._open_lists[tag] += 1
        elif tag in ("li", "dt", "dd"):
            self._start_item(tag)
        elif tag in _TABLE_TAGS:
            self._start_table_tag(tag, attributes)
        else:
            self._start_inline(tag, attributes)

    def end_tag(self, tag: str) -> None:
        """Process an end tag: it may end a block, a list, a table or a skipped element."""
        if self._around:
            self._around_depth -= tag == self._around
            self._around = self._around if self._around_depth else ""
            return
        self._silent_depth -= tag in _SILENT and self._silent_depth > 0
        self._in_title = self._in_title and tag != "title"
        if tag in _BLOCKS:
            self._end_block()
        if tag == "main":
            self._main.append(len(self._lines))
        elif tag in _LISTS:
            self._end_list(tag)
        elif tag == "dt":
            self._in_term = False
        elif tag in _TABLE_TAGS:
            self._end_table_tag(tag)
        elif tag == "pre":
            self._pre_depth = max(0, self._pre_depth - 1)
        elif tag == "sup":
            self._inline.end_raised()
        elif tag == "a":
            self._inline.end_link()
        else:
            self._end_power(tag)

    def data(self, text: str) -> None:
        """Add text between tags to the title or to the current block; skipped elements are ignored."""
        if self._in_title:
            self.title.append(text)
        elif not self._silent_depth and not self._around:
            self._inline.add(text)

    def _start_inline(self, tag: str, attributes: str) -> None:
        if tag == "pre":
            self._write_lead()
            self._pre_depth += 1
        elif tag == "br" and not self._inline.break_line():
            self._end_block()
        elif tag == "sup":
            self._inline.start_raised()
        elif tag in ("button", "label"):  # a box of its own in a line
            self._inline.add(" ")
        elif tag == "a":
            self._inline.start_link(self._read_target(attributes))
        else:
            self._start_power(tag)

    def _start_power(self, tag: str) -> None:
        if self._powers:
            power = self._powers[-1]
            power.num_children += not power.depth
            if not power.depth and power.num_children == 2:
                self._inline.start_raised()
            power.depth += 1
        if tag == "msup":
            self._powers.append(_Power())

    def _end_power(self, tag: str) -> None:
        if tag == "msup" and self._powers:
            self._powers.pop()
        if self._powers:
            power = self._powers[-1]
            power.depth -= 1
            if not power.depth and power.num_children == 2:
                self._inline.end_raised()

    def _read_target(self, attributes: str) -> str:
        written = _read_attribute(attributes, "href") if self._num_targets < MAX_LINKS else ""
        target = clean_target(unescape(written)) if len(written) <= MAX_TARGET_CHARS else ""
        self._num_targets += bool(target)
        return target

    # ------------------------------------------------------------------------------------------------------------ lists

    def _end_list(self, tag: str) -> None:
        if not self._open_lists[tag]:
            return
        self._write_terms()
        closed = ""
        while closed != tag:
            closed = self._lists.pop().tag
            self._open_lists[closed] -= 1
        self._end_entries(len(self._lists) + 1)
        self._marker = None

    def _start_item(self, tag: str) -> None:
        depth = len(self._lists)
        self._in_term = tag == "dt"
        if tag == "li":
            of = self._lists[-1] if self._lists else _List("ul")
            of.number += 1
            indent = "  " * min(max(0, depth - 1), _MAX_INDENT)
            self._marker = LinkedText(f"{indent}{of.number}. " if of.tag == "ol" else f"{indent}- ")
        elif tag == "dt":
            self._end_entries(depth)
        elif self._terms:
            self._end_entries(depth)
            term = join_linked(", ", self._terms)
            self._terms = []
            self._marker = LinkedText(term.text + (" " if term.text.endswith(":") else ": "), term.links)
            if len(self._entries) < _MAX_ENTRIES:
                self._entries.append(_Entry(term.text, depth))
        else:  # another definition of the term before, or text that is only indented
            self._marker = LinkedText("  " if self._entries and self._entries[-1].depth == depth else "")

    def _end_entries(self, depth: int) -> None:
        """End the open definitions in lists of this depth or deeper, and their context headings."""
        while self._entries and self._entries[-1].depth >= depth:
            if self._entries.pop().num_lines > 1:
                self._headings.append((SECTION_LEVELS + 1 + len(self._entries), ""))

    def _write_lead(self) -> None:
        """Write a term on a line of its own, above the list, table or code that defines it."""
        if self._marker and self._marker.text.rstrip().endswith(":"):
            lead, self._marker = LinkedText(self._marker.text.rstrip(), self._marker.links), LinkedText("")
            self._write(lead, "item")

    def _write_terms(self) -> None:
        """Write the terms that have no definition as one list item."""
        terms, self._terms, self._in_term = join_linked(", ", self._terms), [], False
        if terms.text:
            self._marker = LinkedText("")
            self._write(terms, "item")

    # ----------------------------------------------------------------------------------------------------------- tables

    def _start_table_tag(self, tag: str, attributes: str) -> None:
        if tag == "table":
            self._write_lead()
            if len(self._tables) < MAX_NESTED_TABLES:
                self._tables.append(_Table())
            else:
                self._num_deep_tables += 1
        elif self._tables and not self._num_deep_tables:
            if tag == "tr":
                self._end_row()
            else:
                spans = _read_attribute(attributes, "colspan"), _read_attribute(attributes, "rowspan")
                self._tables[-1].start_cell(tag == "th", *spans)

    def _end_table_tag(self, tag: str) -> None:
        if self._num_deep_tables:
            self._num_deep_tables -= tag == "table"
        elif self._tables and tag in ("td", "th"):
            self._tables[-1].cell = None
        elif self._tables:
            self._end_row()
            if tag == "table":
                self._tables.pop()

    def _end_row(self) -> None:
        lines, around = self._tables[-1].end_row(), self._find_lines()
        if lines and lines[0].kind == "row" and not lines[0].tight:
            lines[0].tight = _leads(around)
        around += lines

    def _find_lines(self) -> list[_Line]:
        """The list that the next line is appended to: that of the innermost open table cell, or of the page."""
        return next((table.cell.lines for table in reversed(self._tables) if table.cell), self._lines)

    # ----------------------------------------------------------------------------------------------------------- blocks

    def _end_block(self) -> None:
        inline, level = self._inline, self._level
        self._inline, self._level = InlineText(in_link=inline.in_link, target=inline.target), 0
        self._powers = []
        said = inline.finish(verbatim=self._pre_depth > 0)
        if not said.text.strip() or (inline.is_menu and not self._whole):
            return
        on_one_line = " ".join(said.text.split())
        if self._in_term:
            self._terms.append(LinkedText(on_one_line.rstrip(_PERMALINK), said.links))
        elif level:
            heading = on_one_line.rstrip(_PERMALINK)
            self._headings.append((level, heading))
            self._marker = None
            self._write(LinkedText(heading, said.links), "heading")
        else:
            self._write(said, "code" if self._pre_depth else "text")

    def _write(self, said: LinkedText, kind: str) -> None:
        if self._marker is not None:
            said, kind, self._marker = join_linked("", [self._marker, said]), "item" if kind == "text" else kind, None
        for number, entry in enumerate(self._entries):
            entry.num_lines += 1
            if entry.num_lines == 2:
                self._headings.append((SECTION_LEVELS + 1 + number, entry.term))
        lines = self._find_lines()
        follows = kind == "item" and bool(lines) and lines[-1].kind == "item"
        tight = follows or (kind in ("item", "code") and _leads(lines))
        lines.append(_Line(said.text, kind, tight, self._headings, said.links))
        self._headings = []


def _leads(lines: list[_Line]) -> bool:
    """True if the last line introduces what follows: a text or list item that ends with a colon."""
    return bool(lines) and lines[-1].kind in ("text", "item") and lines[-1].text.endswith(":")


# --------------------------------------------------------------------------------------------------------------- tables


MAX_NESTED_TABLES = 4  # deeper ones are read as text: every level copies the lines of those inside it
_MAX_COLUMNS = 64
_MAX_ROWSPAN = 1000
_MAX_COLUMN_NAME = 40  # the names are repeated in every row
_MAX_ROW_CHARS = 2000
_DIGITS = re.compile(r"\s*+([0-9]{1,4})(?![0-9])")


class _Line(Struct):
    """A line of a page before it becomes a `Block`; `kind` is "text", "item", "row", "code" or "heading"."""

    text: str
    kind: str = "text"
    tight: bool = False
    headings: list[tuple[int, str]] = []
    links: tuple[Hyperlink, ...] = ()  # as in a `LinkedText`


class _Cell(Struct):
    column: int
    is_header: bool
    lines: list[_Line] = []

    def join(self) -> LinkedText:
        return join_linked(" ", [LinkedText(" ".join(line.text.split()), line.links) for line in self.lines])


class _Table(Struct):
    """A table that is being read: call `start_cell` and `end_row` at its tags; append to the lines of `cell`."""

    cell: _Cell | None = None  # the open one; None between cells
    _columns: dict[int, str] = {}
    _cells: list[_Cell] = []
    _column: int = 0
    _num_rows: int = 0  # without those of the header
    _has_line: bool = False
    _occupied: dict[int, int] = {}  # column -> rows that a cell from above still reaches into

    def start_cell(self, is_header: bool, colspan: str, rowspan: str) -> None:
        # In the next column that no cell from a row above spans.
        while self._occupied.get(self._column, 0) and self._column < _MAX_COLUMNS:
            self._column += 1
        self.cell = _Cell(self._column, is_header)
        self._cells.append(self.cell)
        width, height = _read_span(colspan, _MAX_COLUMNS), _read_span(rowspan, _MAX_ROWSPAN)
        for column in range(self._column, min(self._column + width, _MAX_COLUMNS)):
            self._occupied[column] = height
        self._column = min(self._column + width, _MAX_COLUMNS)

    def end_row(self) -> list[_Line]:
        """End the row and return it as one line, or as the lines of its cells if they are long or have headings."""
        cells = [cell for cell in self._cells if cell.lines]
        self._cells, self.cell, self._column = [], None, 0
        self._occupied = {column: left - 1 for column, left in self._occupied.items() if left > 1}
        if not cells:
            return []
        lines = [line for cell in cells for line in cell.lines]
        # All columns beyond the maximum share the last number.
        texts = [(cell.column, cell.join()) for cell in cells]
        is_plain = all(line.kind in ("text", "item") for line in lines)
        if len(texts) == 1 and not self._has_line:
            return _as_label(lines) if cells[0].is_header and is_plain else lines
        if not is_plain or sum(len(said.text) for _, said in texts) > _MAX_ROW_CHARS:
            return lines
        is_header = all(cell.is_header for cell in cells) and not self._num_rows
        if is_header:
            self._columns = {column: said.text[:_MAX_COLUMN_NAME] for column, said in texts if column < _MAX_COLUMNS}
        said = self._write(texts, is_header)
        headings = [each for line in lines for each in line.headings]
        row = _Line(said.text, "row", self._has_line, headings, said.links)
        self._has_line = True
        self._num_rows += not is_header
        return [row]

    def _write(self, texts: list[tuple[int, LinkedText]], is_header: bool) -> LinkedText:
        if is_header or not self._columns:
            return join_linked(" | ", [said for _, said in texts])
        named = ((self._columns.get(column, ""), said) for column, said in texts)
        cells = [join_linked(": ", [LinkedText(name.rstrip(":")), said]) if name else said for name, said in named]
        return join_linked("; ", cells)


def _as_label(lines: list[_Line]) -> list[_Line]:
    """Append a colon to a header that is alone in its row: "Note" introduces what follows as "Note:"."""
    if len(lines) == 1 and lines[0].text[-1:].isalnum() and len(lines[0].text) <= _MAX_COLUMN_NAME:
        lines[0].text += ":"
    return lines


def _read_span(value: str, most: int) -> int:
    digits = _DIGITS.match(value)
    return max(1, min(int(digits.group(1)), most)) if digits else 1


# ------------------------------------------------------------------------------------------------------------- regions


# Elements that are not main text: menus, banners, footers, readers' comments. They are recognised by tag, role or class
# name. An id counts only if there is no class: documentation tools make ids from headings, and "Navigation" may be one.
_ROLES = frozenset({"navigation", "banner", "contentinfo", "search", "complementary", "menu", "menubar"})
_REGIONS = frozenset({"aside", "div", "dl", "form", "header", "ol", "p", "section", "span", "table", "td", "ul"})
_WHERE = (
    "site|page|main|global|top|bottom|left|right|side|local|primary|secondary|header|footer|mobile|doc|docs|sphinx|user"
)
_WHAT = (
    r"nav(?:bar|igation|header|footer|links|path)?|menus?|menubar|sidebar|breadcrumbs?|toc|footer|banner|comments?|respond|"
    r"cookies?|share|sharing|social|related|newsletter|adverts?|advertisement|skip-?links?|headerlink|pagination|pager|"
    "mw-editsection|linenos?|linenodiv|rouge-gutter"  # of a wiki, and the line numbers beside code
)
_REGION_NAME = re.compile(
    rf"(?:(?:{_WHERE})[-_]?)?(?:{_WHAT})(?:[-_](?:bar|box|list|menu|links|items?|panel|wrapper|notice))?"
)


def _is_around(tag: str, attributes: str) -> bool:
    """True if the element with this start tag is a menu, banner, footer or the like, and not main text."""
    if tag not in _REGIONS or "=" not in attributes:
        return tag in ("nav", "footer")
    names = _read_attribute(attributes, "class") or ("" if tag == "section" else _read_attribute(attributes, "id"))
    is_named_so = any(_REGION_NAME.fullmatch(name) for name in names.lower().split())
    return is_named_so or _read_attribute(attributes, "role").lower() in _ROLES


def _read_attribute(attributes: str, name: str) -> str:
    """The value of an attribute, "" if there is none: `_read_attribute(' class="toc"', "class") == "toc"`."""
    found = _attribute(name).search(attributes) if name in attributes.lower() else None
    return found[found.lastindex or 0] if found else ""


@cache
def _attribute(name: str) -> re.Pattern[str]:
    return re.compile(rf"""(?<![\w:-]){name}\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++))""", re.IGNORECASE)
