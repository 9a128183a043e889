"""Spreadsheets (.xlsx), row by row with the names of their columns, through openpyxl."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time
from io import BytesIO
from typing import Any

from quaere.search.extracted import FileText, TextBuilder, Unreadable, load_library
from quaere.search.formats.archive import open_archive
from quaere.search.titles import choose_title

_MAX_CELLS = 10_000_000  # a row with a value in its last column alone is 16,384 cells


def read_xlsx(data: bytes, limit: int) -> FileText:
    """The values of every sheet as they were last computed: "Item: Rope; Cost: 120", a line for every row.

    The first row of a sheet that holds several texts and nothing else names the columns.
    """
    openpyxl = load_library("openpyxl", package="openpyxl", extra="office", suffix=".xlsx")
    open_archive(data, limit).close()
    _check_sheets(openpyxl, data)
    book = openpyxl.load_workbook(BytesIO(data), read_only=True, data_only=True)
    text, num_cells = TextBuilder(limit), 0
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # what a file says about its size may be wrong
        columns: Sequence[str] | None = None
        for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
            num_cells += len(row) or 1  # rows that the file leaves out are empty, and may be any number
            if num_cells > _MAX_CELLS:
                raise Unreadable(f"spreads over more than {_MAX_CELLS} cells")
            if row.count(None) == len(row):
                continue
            line = _join(row, columns or ())
            if columns is None:
                columns = _column_names(row)
            text.add(line, group=f"sheet {sheet.title}", unit="row", number=number, gap="\n")
    title = book.properties.title or ""
    book.close()
    return text.build(choose_title(title))


def _check_sheets(openpyxl: Any, data: bytes) -> None:
    """Raise `Unreadable` if a part is several sheets: a short file could repeat a long one without end.

    To load a workbook is to look into every sheet, so its list is read before.
    """
    reader = openpyxl.reader.excel.ExcelReader(BytesIO(data), read_only=True)
    reader.read_manifest()
    reader.read_workbook()
    parts = [link.target for _, link in reader.parser.find_sheets()]
    reader.archive.close()
    if len(set(parts)) < len(parts):
        raise Unreadable("several of its sheets are the same part of the file")


def _column_names(row: Sequence[Any]) -> Sequence[str]:
    """The row as names of columns, if it can be that; else none."""
    values = [value for value in row if value is not None]
    if len(values) < 2 or not all(isinstance(value, str) for value in values):
        return ()
    return [_say(value) for value in row]


def _join(row: Sequence[Any], columns: Sequence[str]) -> str:
    places = [place for place, value in enumerate(row) if value is not None]  # often few of 16,384
    cells = ((columns[place] if place < len(columns) else "", _say(row[place])) for place in places)
    return "; ".join(f"{name}: {said}" if name else said for name, said in cells if said)


def _say(value: Any) -> str:
    """A value as a person would write it: `_say(120.0) == "120"`."""
    if value is None:
        return ""
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return " ".join(str(value).split())
