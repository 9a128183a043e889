"""Office files: Word (.docx) by section, PowerPoint (.pptx) by slide, Excel (.xlsx) by row.

They are ZIP archives of XML, which are opened only if their unpacked size is bounded; `open_archive` opens .epub too.
"""

import copy
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence, Set
from datetime import date, datetime, time
from io import BytesIO
from typing import Any

from msgspec import Struct

from quaere.errors import import_extra
from quaere.search.extracted import SECTION_LEVELS, Block, FileText, TextBuilder, Unreadable, choose_title
from quaere.search.hyperlinks import InlineText

_HEADING_STYLE = re.compile(r"heading (\d)|title", re.IGNORECASE)
_MAX_HEADING = 80
_NOTES = {"footnotes.xml": "footnotes", "endnotes.xml": "endnotes"}
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_PARAGRAPH, _TABLE, _CONTROL, _BOX = (f"{_WORD}{name}" for name in ("p", "tbl", "sdt", "txbxContent"))
_ROW, _CELL = f"{_WORD}tr", f"{_WORD}tc"
_MATH_RUN = f"{_MATH}r"
_RUNS = frozenset({f"{_WORD}r", _MATH_RUN})
# What was deleted or moved away, and the older form of a text box that is there in a newer form too.
_GONE = frozenset(
    {f"{_WORD}del", f"{_WORD}moveFrom", "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"}
)


def read_docx(data: bytes, limit: int) -> FileText:
    """Read a Word file: paragraphs and table rows, each under its heading, then footnotes and endnotes.

    Page numbers are not known: the program that shows the document decides where pages end.
    """
    docx = import_extra("docx", ".docx files need python-docx", extra="office")
    open_archive(data, limit).close()
    document = docx.Document(BytesIO(data))
    styles = {style.style_id: style.name or "" for style in document.styles}
    text, group, number, first_heading = TextBuilder(limit), "", 0, ""
    for line in _lines(docx, document.element.body, document):
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
        if group := _NOTES.get(str(part.partname).rpartition("/")[2], ""):
            notes = docx.oxml.parse_xml(part.blob)
            said = ("\n".join(line.text for line in _lines(docx, note, document)) for note in notes)
            text.add_blocks([Block(note) for note in said], group=group)
    return text.build(choose_title(document.core_properties.title or "", first_heading))


class _Line(Struct, frozen=True):
    """A paragraph with its style, or a row of a table; `tight` rows follow the one above without a blank line.

    `columns` sets the column names from this line on: a table's first row for the rows below it, "" after the table.
    """

    text: str
    style_id: str | None = None
    is_tight: bool = False
    columns: str | None = None


def _lines(docx: Any, element: Any, parent: Any) -> Iterator[_Line]:
    columns: str | None = None
    for item in _find(element, frozenset({_PARAGRAPH, _TABLE})):
        if item.tag == _PARAGRAPH:
            yield _Line(_raised_text(docx, item, parent), item.style, columns=columns)
            columns = None
            for box in _find(item, frozenset({_BOX})):
                yield from _lines(docx, box, parent)
            continue
        first = ""
        # Rows are read from the XML elements, because `row.cells` goes through all rows above for each row.
        for number, row in enumerate(_find(item, frozenset({_ROW}))):
            cells = ([line.text for line in _lines(docx, cell, parent)] for cell in _find(row, frozenset({_CELL})))
            text = " | ".join(" ".join(lines).strip() for lines in cells)
            first = first or text
            yield _Line(text, is_tight=number > 0, columns=first if number == 1 else columns if number == 0 else None)
        columns = ""


def _find(element: Any, wanted: Set[str]) -> Iterator[Any]:
    """The outermost elements with these tags below one: in insertions, content controls, links and fields too."""
    for child in element:
        if child.tag in wanted:
            yield child
        elif child.tag not in _GONE and not (child.tag == _CONTROL and _is_made(child)):
            yield from _find(child, wanted)


def _is_made(control: Any) -> bool:
    """True for a content control without text of the author: a placeholder, or a table of contents."""
    settings = control.find(f"{_WORD}sdtPr")
    if settings is None:
        return False
    galleries = {gallery.get(f"{_WORD}val") for gallery in settings.iter(f"{_WORD}docPartGallery")}
    return "Table of Contents" in galleries or settings.find(f"{_WORD}showingPlcHdr") is not None


def _raised_text(docx: Any, paragraph: Any, parent: Any) -> str:
    inline = InlineText()
    for element in _find(paragraph, _RUNS):
        if element.tag == _MATH_RUN:
            text = "".join(part.text or "" for part in element.iter(f"{_MATH}t"))
            is_raised = any(outer.tag == f"{_MATH}sup" for outer in element.iterancestors())
        else:
            run = docx.text.run.Run(element, parent)
            text, is_raised = run.text, bool(run.font.superscript)
        inline.start_raised() if is_raised else inline.end_raised()
        inline.add(text)
    inline.end_raised()
    return inline.write(verbatim=True)


# --------------------------------------------------------------------------------------------------------------- slides


def read_pptx(data: bytes, limit: int) -> FileText:
    """The text of every slide: its title, its shapes, its tables row by row, then its notes."""
    pptx = import_extra("pptx", ".pptx files need python-pptx", extra="office")
    open_archive(data, limit).close()
    presentation = pptx.Presentation(BytesIO(data))
    text, first_title = TextBuilder(limit), ""
    slides = list(presentation.slides)
    if len({slide.part for slide in slides}) < len(slides):
        raise Unreadable("several of its slides are the same part of the file")
    for number, slide in enumerate(slides, start=1):
        title = slide.shapes.title
        first_title = first_title or choose_title("" if title is None else title.text_frame.text)
        lines = [line for shape in slide.shapes for line in _shape_lines(shape)]
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            lines.append(slide.notes_slide.notes_text_frame.text)
        # python-pptx returns a line break inside a paragraph as a vertical tab.
        shown = "\n\n".join(line.strip() for line in lines if line.strip())
        text.add(shown.replace("\v", "\n"), group=f"slide {number}")
    return text.build(choose_title(presentation.core_properties.title or "", first_title))


def _shape_lines(shape: Any) -> Iterator[str]:
    if hasattr(shape, "shapes"):
        for inner in shape.shapes:
            yield from _shape_lines(inner)
    elif getattr(shape, "has_table", False):
        for row in shape.table.rows:
            yield " | ".join(cell.text_frame.text.strip() for cell in row.cells)
    elif shape.has_text_frame:
        yield shape.text_frame.text


# --------------------------------------------------------------------------------------------------------------- sheets


_MAX_CELLS = 10_000_000  # a row with a value in its last column alone is 16,384 cells


def read_xlsx(data: bytes, limit: int) -> FileText:
    """The values of every sheet as they were last computed: "Item: Rope; Cost: 120", a line for every row.

    The first row of a sheet names the columns if it holds several texts and nothing else. Rows above it may hold a
    single text: the title of the sheet.
    """
    openpyxl = import_extra("openpyxl", ".xlsx files need openpyxl", extra="office")
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
            if row.count(None) < len(row):
                line = _join(row, columns or ())
                text.add(line, group=f"sheet {sheet.title}", unit="row", number=number, gap="\n")
                if columns is None and not _is_title(row):
                    columns = _column_names(row)
    book.close()
    return text.build(choose_title(book.properties.title or ""))


def _check_sheets(openpyxl: Any, data: bytes) -> None:
    """Raise `Unreadable` if several sheets are the same part of the file: a small file could repeat a long sheet often.

    Only the list of sheets is read: loading the workbook would open every sheet.
    """
    reader = openpyxl.reader.excel.ExcelReader(BytesIO(data), read_only=True)
    reader.read_manifest()
    reader.read_workbook()
    parts = [link.target for _, link in reader.parser.find_sheets()]
    reader.archive.close()
    if len(set(parts)) < len(parts):
        raise Unreadable("several of its sheets are the same part of the file")


def _is_title(row: Sequence[Any]) -> bool:
    """True for a row with one text and nothing else."""
    values = [value for value in row if value is not None]
    return len(values) == 1 and isinstance(values[0], str)


def _column_names(row: Sequence[Any]) -> Sequence[str]:
    """The row's cells as column names if it holds two texts or more and nothing else; else empty."""
    are_texts = [isinstance(value, str) for value in row if value is not None]
    return [_say(value) for value in row] if len(are_texts) > 1 and all(are_texts) else ()


def _join(row: Sequence[Any], columns: Sequence[str]) -> str:
    places = [place for place, value in enumerate(row) if value is not None]  # often few of 16,384
    cells = ((columns[place] if place < len(columns) else "", _say(row[place])) for place in places)
    return "; ".join(f"{name}: {said}" if name else said for name, said in cells if said)


def _say(value: Any) -> str:
    """A value as a person would write it: `_say(120.0) == "120"`."""
    if value is None:
        return ""
    if isinstance(value, (datetime, date, time)):
        return value.isoformat().removesuffix("T00:00:00")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.15g}"  # as Excel shows it: 3.3 is stored as 3.3000000000000003
    return " ".join(str(value).split())


# ------------------------------------------------------------------------------------------------------------- archives


_MAX_MEMBERS = 20_000
_MEDIA_FACTOR = 4  # pictures and films are held in memory, XML becomes a tree of ten times its size
_XML = (".xml", ".rels", ".xhtml", ".html", ".htm", ".opf", ".ncx", ".svg", ".vml")
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def open_archive(data: bytes, limit: int) -> zipfile.ZipFile:
    """Open a ZIP archive; raises `Unreadable` if it is damaged, encrypted, or unpacks to more than the limit."""
    if data.startswith(_OLE):
        raise Unreadable("encrypted, or in the format of Office before 2007")
    try:
        archive = zipfile.ZipFile(BytesIO(data))
        _check_sizes(archive, limit)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise Unreadable(f"damaged: not a valid ZIP archive ({error})") from error
    return archive


def _check_sizes(archive: zipfile.ZipFile, limit: int) -> None:
    """Raise `Unreadable` if the archive unpacks to more than the limit, by its declared and by its actual sizes."""
    members = archive.infolist()
    if len(members) > _MAX_MEMBERS:
        raise Unreadable(f"holds more than {_MAX_MEMBERS} files")
    if any(member.flag_bits & 1 for member in members):
        raise Unreadable("encrypted")
    xml = sum(member.file_size for member in members if member.filename.lower().endswith(_XML))
    if xml > limit or sum(member.file_size for member in members) > _MEDIA_FACTOR * limit:
        raise Unreadable(f"unpacks to more than {limit >> 20} MiB")
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise Unreadable("compressed with a method that such files do not use")
    for member in members:
        # `ZipFile.read` unpacks a member whole, up to 2 GiB, and only then cuts it to the size that was declared.
        probe = copy.copy(member)
        probe.file_size += 1
        probe.CRC = None  # type: ignore[assignment]  # it is the checksum of the declared bytes only
        with archive.open(probe) as file:
            unpacked = sum(len(chunk) for chunk in iter(lambda: file.read(1 << 16), b""))
        if unpacked > member.file_size:
            raise Unreadable("unpacks to more than it declares")
