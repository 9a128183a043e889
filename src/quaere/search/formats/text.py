"""Formats that are text: plain, Markdown, reStructuredText, AsciiDoc, separated values (.csv, .tsv) and notebooks.

Apart from notebooks, their text is the source itself, so that offsets point into the file.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Callable
from functools import partial
from io import StringIO
from itertools import accumulate
from typing import Any

import msgspec

from quaere.records.foreign_json import decode_json
from quaere.search.extracted import SECTION_LEVELS, FileText, Heading, Part, TextBuilder, Unreadable, choose_title
from quaere.search.formats.outlines import (
    find_adoc_headings,
    find_adoc_links,
    find_markdown_headings,
    find_markdown_links,
    find_rst_links,
    find_underlined_headings,
)
from quaere.search.hyperlinks import Hyperlink

# Longest first: the mark of UTF-16 opens the mark of UTF-32.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Codecs that no file is written in: those of host names, which take quadratic time, and of Python literals.
_NOT_OF_FILES = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})


def decode(data: bytes, declared: str | None = None) -> tuple[str, str]:
    """The text and its encoding: a byte-order mark decides, then UTF-8, then what was declared, then Windows-1252.

    A text with one of the five bytes that Windows-1252 does not define is decoded as Latin-1, which defines all bytes.

        >>> decode(b"caf\xe9")
        ('café', 'windows-1252')
    """
    marked = next((encoding for mark, encoding in _BYTE_ORDER_MARKS if data.startswith(mark)), None)
    candidates = (marked,) if marked else ("utf-8", find_encoding(declared), "windows-1252", "latin-1")
    for encoding in candidates:
        try:
            text = data.decode(encoding)
        except (UnicodeError, LookupError):
            continue
        if "\0" in text:
            raise Unreadable("contains NUL bytes: not a text file")
        return text, encoding
    raise Unreadable(f"opens with the mark of {marked} but is not {marked}")


def find_encoding(declared: str | None) -> str:
    """The declared encoding if Python knows it and files use it; else UTF-8: `find_encoding("punycode") == "utf-8"`."""
    try:
        is_of_files = declared is not None and codecs.lookup(declared).name not in _NOT_OF_FILES
    except (LookupError, ValueError):  # ValueError: a name with characters that no name has
        is_of_files = False
    return declared if declared and is_of_files else "utf-8"


def read_text(data: bytes, limit: int) -> FileText:
    """Read plain text: no title, and underlined lines as headings."""
    text, encoding = decode(data)
    return FileText("", text, encoding, headings=tuple(find_underlined_headings(text, slack=2)))


def _read_outlined(
    find_headings: Callable[[str], list[Heading]], find_links: Callable[[str], list[Hyperlink]], data: bytes, limit: int
) -> FileText:
    text, encoding = decode(data)
    headings = find_headings(text)
    title = choose_title(_first_section(headings))
    return FileText(title, text, encoding, headings=tuple(headings), links=tuple(find_links(text)))


# The markup is kept in the text, so only headings and links are parsed. docutils is not used: its directives can read
# other files.
read_markdown = partial(_read_outlined, find_markdown_headings, find_markdown_links)
read_rst = partial(_read_outlined, find_underlined_headings, find_rst_links)
read_adoc = partial(_read_outlined, find_adoc_headings, find_adoc_links)


def _first_section(headings: list[Heading]) -> str:
    return next((heading.text for heading in headings if heading.level <= SECTION_LEVELS), "")


# ---------------------------------------------------------------------------------------------------------------- csv

_MAX_COLUMNS_SHOWN = 12


def read_csv(data: bytes, limit: int) -> FileText:
    """Read a table of separated values. Each row is a part, numbered as in a spreadsheet: the header is row 1."""
    text, encoding = decode(data)
    delimiter = max(",;\t|", key=text.lstrip()[:4096].partition("\n")[0].count)
    starts = [0, *accumulate(map(len, StringIO(text, newline="")))]
    rows = csv.reader(StringIO(text, newline=""), delimiter=delimiter)
    parts: list[Part] = []
    columns: list[str] = []
    first_line = 0
    try:
        for number, row in enumerate(rows, start=1):
            if any(row):
                columns = columns or row
                parts.append(Part(starts[first_line], unit="row", number=number))
            first_line = rows.line_num
    except csv.Error:  # a quote that is never closed: the rows are unknown, the lines are not
        return FileText("", text, encoding)
    named = tuple(" ".join(column.split())[:40] for column in columns[:_MAX_COLUMNS_SHOWN])
    return FileText("", text, encoding, tuple(parts), columns=named if len(named) > 1 else ())


# ------------------------------------------------------------------------------------------------------------ notebooks


_Lines = str | list[str]


class _Output(msgspec.Struct):
    text: _Lines = ""
    data: dict[str, Any] = {}


class _Cell(msgspec.Struct):
    cell_type: str
    source: _Lines = ""
    outputs: list[_Output] = []


class _Notebook(msgspec.Struct):
    cells: list[_Cell]
    metadata: dict[str, Any] = {}


def read_ipynb(data: bytes, limit: int) -> FileText:
    """Read a Jupyter notebook: its cells, numbered from 1, without pictures; its title is its first heading."""
    try:
        notebook = decode_json(data.removeprefix(b"\xef\xbb\xbf"), _Notebook)
    except msgspec.DecodeError as error:
        raise Unreadable(f"not a notebook of format 4 ({error})") from error
    text, heading = TextBuilder(limit), ""
    for number, cell in enumerate(notebook.cells, start=1):
        source = _join(cell.source).strip()
        is_markup = cell.cell_type == "markdown"
        headings, links = (find_markdown_headings(source), find_markdown_links(source)) if is_markup else ([], [])
        heading = heading or _first_section(headings)
        for each in headings:
            text.begin(each.level, each.text, each.start)
        shown = [_join(output.text) or _join(output.data.get("text/plain", "")) for output in cell.outputs]
        written = "\n\n".join(part.strip() for part in (source, *shown) if part.strip())
        text.add(written, unit="cell", number=number, links=links)
    return text.build(choose_title(str(notebook.metadata.get("title") or ""), heading))


def _join(lines: object) -> str:
    """The text of a notebook field, which is a string or a list of lines; "" for anything else."""
    if isinstance(lines, list):
        return "".join(line for line in lines if isinstance(line, str))
    return lines if isinstance(lines, str) else ""
