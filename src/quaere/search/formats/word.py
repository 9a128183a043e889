"""Word documents (.docx), section by section, through python-docx."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any

from msgspec import Struct

from quaere.search.extracted import SECTION_LEVELS, FileText, TextBuilder, load_library
from quaere.search.formats.archive import open_archive
from quaere.search.inline_text import InlineText
from quaere.search.titles import choose_title

_HEADING_STYLE = re.compile(r"heading (\d)|title", re.IGNORECASE)
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
    for line in _lines(docx, document):
        number += 1
        style = _HEADING_STYLE.fullmatch(styles.get(line.style_id or "", ""))
        if style and line.text.strip():
            heading = " ".join(line.text.split())
            first_heading = first_heading or heading
            group, number = f"section {heading[:_MAX_HEADING]}", 1
            text.begin(min(int(style.group(1) or 1), SECTION_LEVELS), heading)
        if line.columns is not None:
            text.begin(SECTION_LEVELS + 1, line.columns)
        text.add(line.text, group=group, unit="paragraph", number=number, gap="\n" if line.is_tight else "\n\n")
    for part in document.part.package.iter_parts():
        notes = _NOTES.get(str(part.partname).rpartition("/")[2])
        if notes:
            _add_notes(text, docx.oxml.parse_xml(part.blob), notes)
    return text.build(choose_title(document.core_properties.title or "", first_heading))


class _Line(Struct, frozen=True):
    """A paragraph with its style, or a row of a table, which is tight below the one above.

    `columns` names the columns from here on: the first row of a table for those below it, "" where the table has ended.
    """

    text: str
    style_id: str | None = None
    is_tight: bool = False
    columns: str | None = None


def _lines(docx: Any, block: Any) -> Iterator[_Line]:
    """Every paragraph, and every row of a table as one line, in the order of the document."""
    columns: str | None = None
    for item in block.iter_inner_content():
        if isinstance(item, docx.text.paragraph.Paragraph):
            yield _Line(_raised_text(item), item._p.style, columns=columns)
            columns = None
            continue
        first = ""
        # Through the elements: `row.cells` looks at all rows above for each row.
        for number, row in enumerate(item._tbl.tr_lst):
            cells = (docx.table._Cell(cell, item) for cell in row.tc_lst)
            text = " | ".join(" ".join(line.text for line in _lines(docx, cell)).strip() for cell in cells)
            first = first or text
            yield _Line(text, is_tight=number > 0, columns=first if number == 1 else columns if number == 0 else None)
        columns = ""


def _raised_text(paragraph: Any) -> str:
    """The text of a paragraph with its superscripts: "2^64"."""
    inline = InlineText()
    for run in paragraph.iter_inner_content():  # runs and links; a link has no font
        is_raised = bool(getattr(getattr(run, "font", None), "superscript", False))
        inline.start_raised() if is_raised else inline.end_raised()
        inline.add(run.text)
    inline.end_raised()
    return inline.write(verbatim=True)


def _add_notes(text: TextBuilder, notes: Any, group: str) -> None:
    """The notes of a footnotes or endnotes part, each as a paragraph."""
    word = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
    text.add_paragraphs(["".join(run.text or "" for run in note.iter(f"{word}t")) for note in notes], group=group)
