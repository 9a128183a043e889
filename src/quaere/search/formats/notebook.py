"""Jupyter notebooks (.ipynb): the text, the code and the printed results of every cell."""

from __future__ import annotations

from typing import Any

import msgspec

from quaere.records.foreign_json import decode_json
from quaere.search.extracted import FileText, TextBuilder, Unreadable
from quaere.search.formats.text import find_heading
from quaere.search.formats.text_headings import find_markdown_headings
from quaere.search.formats.text_links import find_markdown_links
from quaere.search.hyperlinks import Hyperlink
from quaere.search.titles import choose_title

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
    """The cells, numbered from 1; pictures are left out. Called by the first heading."""
    try:
        notebook = decode_json(data.removeprefix(b"\xef\xbb\xbf"), _Notebook)
    except msgspec.DecodeError as error:
        raise Unreadable(f"not a notebook of format 4 ({error})") from error
    text, heading = TextBuilder(limit), ""
    for number, cell in enumerate(notebook.cells, start=1):
        source = _join(cell.source).strip()
        links: list[Hyperlink] = []
        if cell.cell_type == "markdown":
            heading = heading or find_heading(source)
            for each in find_markdown_headings(source):
                text.begin(each.level, each.text, each.start)
            links = find_markdown_links(source)
        shown = [_join(output.text) or _join(output.data.get("text/plain", "")) for output in cell.outputs]
        written = "\n\n".join(part.strip() for part in (source, *shown) if part.strip())
        text.add(written, unit="cell", number=number, links=links)
    return text.build(choose_title(str(notebook.metadata.get("title") or ""), heading))


def _join(lines: object) -> str:
    """Text that may be written as a list of its lines; "" for anything else."""
    if isinstance(lines, list):
        return "".join(line for line in lines if isinstance(line, str))
    return lines if isinstance(lines, str) else ""
