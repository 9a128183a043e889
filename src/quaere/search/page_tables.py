"""Tables of a page: a row is one line, with the name of its column before each cell.

A table that only arranges the page is none: a row with headings or long texts in its cells is read cell by cell.

    Key: limits.cpu; Type: string; Default: 1
"""

from __future__ import annotations

import re

from msgspec import Struct, field

from quaere.search.hyperlinks import Hyperlink, LinkedText, join_linked

MAX_NESTED_TABLES = 4  # deeper ones are read as text: every level copies the lines of those inside it
_MAX_COLUMNS = 64
_MAX_ROWSPAN = 1000
_MAX_COLUMN_NAME = 40  # the names are repeated in every row
_MAX_ROW_CHARS = 2000
_DIGITS = re.compile(r"\s*+([0-9]{1,4})(?![0-9])")


class Line(Struct):
    """A line of a page on its way to a `Block`; `kind` is "text", "item", "row", "code" or "heading"."""

    text: str
    kind: str = "text"
    tight: bool = False
    headings: list[tuple[int, str]] = field(default_factory=list)
    links: tuple[Hyperlink, ...] = ()  # as in a `LinkedText`


class _Cell(Struct):
    column: int
    is_header: bool
    lines: list[Line] = field(default_factory=list)

    def join(self) -> LinkedText:
        return join_linked(" ", [LinkedText(" ".join(line.text.split()), line.links) for line in self.lines])


class Table:
    """A table that is being read: `start_cell` and `end_row` follow the tags, `cell_lines` takes the text."""

    def __init__(self) -> None:
        self._columns: dict[int, str] = {}
        self._cells: list[_Cell] = []
        self._cell: _Cell | None = None
        self._column = 0
        self._num_rows = 0  # without those of the header
        self._has_line = False
        self._occupied: dict[int, int] = {}  # column -> rows that a cell from above still reaches into

    @property
    def cell_lines(self) -> list[Line] | None:
        """The lines of the open cell; None between cells."""
        return self._cell.lines if self._cell else None

    def start_cell(self, is_header: bool, colspan: str, rowspan: str) -> None:
        """Open a cell. Columns that a cell above reaches into are passed over."""
        while self._occupied.get(self._column, 0) and self._column < _MAX_COLUMNS:
            self._column += 1
        self._cell = _Cell(self._column, is_header)
        self._cells.append(self._cell)
        width, height = _read_span(colspan, _MAX_COLUMNS), _read_span(rowspan, _MAX_ROWSPAN)
        for column in range(self._column, min(self._column + width, _MAX_COLUMNS)):
            self._occupied[column] = height
        self._column = min(self._column + width, _MAX_COLUMNS)

    def end_cell(self) -> None:
        """Close the cell."""
        self._cell = None

    def end_row(self) -> list[Line]:
        """Close the row: its one line, or the lines of its cells."""
        cells = [cell for cell in self._cells if cell.lines]
        self._cells, self._cell, self._column = [], None, 0
        self._occupied = {column: left - 1 for column, left in self._occupied.items() if left > 1}
        if not cells:
            return []
        lines = [line for cell in cells for line in cell.lines]
        texts = [
            (cell.column, cell.join()) for cell in cells
        ]  # columns after the last that is counted are all that one
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
        row = Line(said.text, "row", self._has_line, headings, said.links)
        self._has_line = True
        self._num_rows += not is_header
        return [row]

    def _write(self, texts: list[tuple[int, LinkedText]], is_header: bool) -> LinkedText:
        if is_header or not self._columns:
            return join_linked(" | ", [said for _, said in texts])
        named = ((self._columns.get(column, ""), said) for column, said in texts)
        cells = [join_linked(": ", [LinkedText(name.rstrip(":")), said]) if name else said for name, said in named]
        return join_linked("; ", cells)


def _as_label(lines: list[Line]) -> list[Line]:
    """A header alone in its row ("Note") as the lead of what comes next: "Note:"."""
    if len(lines) == 1 and lines[0].text[-1:].isalnum() and len(lines[0].text) <= _MAX_COLUMN_NAME:
        lines[0].text += ":"
    return lines


def _read_span(value: str, most: int) -> int:
    digits = _DIGITS.match(value)
    return max(1, min(int(digits.group(1)), most)) if digits else 1
