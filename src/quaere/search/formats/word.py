"""Word documents (.docx), section by section, through python-docx."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any

from quaere.search.extracted import FileText, TextBuilder, load_library
from quaere.search.formats.archive import open_archive
from quaere.search.titles import choose_title

_HEADING_STYLE = re.compile(r"heading \d|title", re.IGNORECASE)
_MAX_HEADING = 80
_NOTES = {"footnotes.xml": "footnotes", "endnotes.xml": "endnotes"}


def read_docx(data: bytes, limit: int) -> FileText:
    """Paragraphs and table rows under the heading they stand below, then footnotes and endnotes.

    A page is not named: where one ends is decided by the program that shows the document.
    """
    docx = load_library("docx", package="python-docx", extra="office", suffix=".docx")
    open_archive(data, limit).close()
    document = docx.Document(BytesIO(data))
    styles = {style.style_id: style.name or "" for style in document.styles}
    text, group, number, first_heading = TextBuilder(limit), "", 0, ""
    for line, style_id in _lines(docx, document):
        number += 1
        if style_id and _HEADING_STYLE.fullmatch(styles.get(style_id, "")) and line.strip():
            heading = " ".join(line.split())
            first_heading = first_heading or heading
            group, number = f"section {heading[:_MAX_HEADING]}", 1
        text.add(line, group=group, unit="paragraph", number=number)
    for part in document.part.package.iter_parts():
        notes = _NOTES.get(str(part.partname).rpartition("/")[2])
        if notes:
            _add_notes(text, docx.oxml.parse_xml(part.blob), notes)
    return text.build(choose_title(document.core_properties.title or "", first_heading))


def _lines(docx: Any, block: Any) -> Iterator[tuple[str, str | None]]:
    """Every paragraph with its style, and every row of a table as one line, in the order of the document."""
    for item in block.iter_inner_content():
        if isinstance(item, docx.text.paragraph.Paragraph):
            yield item.text, item._p.style
        else:
            # Through the elements: `row.cells` looks at all rows above for each row.
            for row in item._tbl.tr_lst:
                cells = (docx.table._Cell(cell, item) for cell in row.tc_lst)
                yield " | ".join(" ".join(line for line, _ in _lines(docx, cell)).strip() for cell in cells), None


def _add_notes(text: TextBuilder, notes: Any, group: str) -> None:
    """The notes of a footnotes or endnotes part, each as a paragraph."""
    word = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
    text.add_paragraphs(["".join(run.text or "" for run in note.iter(f"{word}t")) for note in notes], group=group)
