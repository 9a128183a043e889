"""A report as PDF, written with fpdf2 (the extra `pdf`); citations and quoted sentences are links.

    to_pdf(report, lambda passage: f"docs/{passage.doc_id}") -> b"%PDF..."

The text is set in a TrueType font of the system, or in `$QUAERE_FONT`; letters that the font lacks show as boxes.
"""

import logging
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from quaere.chat.report_layout import CitedNumber, Layout, Link, SourceLayout, TextRun, lay_out
from quaere.errors import BadInput, import_extra
from quaere.records import Report

FONT = "QUAERE_FONT"  # the environment variable
# Regular and bold faces that have at least Latin, Greek and Cyrillic letters: Linux, macOS, Windows.
_FONTS = (
    ("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", "/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf"),
    ("/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf", "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans-Bold.ttf"),
    ("/usr/share/fonts/TTF/DejaVuSans.ttf", "/usr/share/fonts/TTF/DejaVuSans-Bold.ttf"),
    ("/usr/share/fonts/truetype/noto/NotoSans-Regular.ttf", "/usr/share/fonts/truetype/noto/NotoSans-Bold.ttf"),
    ("/System/Library/Fonts/Supplemental/Arial.ttf", "/System/Library/Fonts/Supplemental/Arial Bold.ttf"),
    ("C:/Windows/Fonts/arial.ttf", "C:/Windows/Fonts/arialbd.ttf"),
)
_SIZES = {0: 18, 2: 15, 3: 13}  # points, by the level of a heading; 0 is the title
_TEXT, _SMALL, _LINE = 11, 9, 1.45  # points; and the height of a line, relative to its letters
_BLACK, _GREY, _BLUE, _RED = (34, 34, 34), (102, 102, 102), (26, 90, 150), (176, 0, 32)
_POINT_MM = 25.4 / 72
_ROOM_MM = 3
_WRAP = re.compile(r"(?<!\n)\n(?!\n)")  # a line of the document that was only wrapped


def check_pdf() -> None:
    """Raise an error with a hint, before the work and not after it, if no PDF can be written here."""
    import_extra("fpdf", "writing PDF files needs fpdf2", extra="pdf")
    find_fonts()


@cache
def find_fonts() -> tuple[str, str]:
    """The files of the regular and the bold face."""
    if named := os.environ.get(FONT, ""):
        if not Path(named).is_file():
            raise BadInput(f"${FONT} names {named}, which is not a file", hint=f"export {FONT}=FILE.ttf")
        return named, named
    found = next((pair for pair in _FONTS if all(Path(path).is_file() for path in pair)), None)
    if found is None:
        raise BadInput("no TrueType font was found for the PDF", hint=f"export {FONT}=FILE.ttf")
    return found


def to_pdf(report: Report, link: Link, *, index: str = "", searches: Sequence[str] = ()) -> bytes:
    """The report as the bytes of a PDF file."""
    check_pdf()
    page = _Page(lay_out(report, link, index=index, searches=searches))
    page.write()
    return bytes(page.pdf.output())


class _Page:
    """A PDF in progress, written from top to bottom."""

    def __init__(self, layout: Layout) -> None:
        from fpdf import FPDF

        logging.getLogger("fontTools").setLevel(logging.ERROR)  # it reports every step of making a subset of the font
        logging.getLogger("fpdf").setLevel(logging.ERROR)
        self.layout = layout
        self.pdf: Any = FPDF(format="A4")
        self.pdf.set_creation_date(datetime(1980, 1, 1, tzinfo=UTC))  # bytes depend on the report alone
        self.pdf.set_title(layout.title)
        regular, bold = find_fonts()
        self.pdf.add_font("text", "", regular)
        self.pdf.add_font("text", "B", bold)
        self.pdf.add_page()
        anchors = [part.anchor for source in layout.sources for part in source.parts if part.anchor]
        anchors += [f"source-{source.number}" for source in layout.sources]
        self._anchors = {anchor: self.pdf.add_link() for anchor in anchors}

    def write(self) -> None:
        """Write the whole report."""
        layout = self.layout
        self._heading(layout.title, 0)
        for block in layout.blocks:
            for line in block.lines:
                lead = "•  " if block.kind == "list" else ""
                size = _SIZES.get(block.level, _TEXT + 1) if block.kind == "heading" else _TEXT
                self._put(lead, size=size)
                for run in line:
                    self._run(run, size, is_bold=run.is_bold or block.kind == "heading")
                self._end(size, space=0.3 if block.kind == "list" else 0.7)
        self._put(layout.counts, size=_SMALL, colour=_GREY)
        self._end(_SMALL)
        self._heading("Sources", 2)
        for source in layout.sources:
            self._source(source)
        if not layout.sources:
            self._lines(["No source is cited."])
        if layout.unresolved:
            self._heading("Unresolved citations", 2)
            self._lines([f"{', '.join(cites)} in: {said}" for cites, said in layout.unresolved])
        if layout.searches:
            self._heading("Searches", 2)
            self._lines([f"•  {query}" for query in layout.searches])

    def _source(self, source: SourceLayout) -> None:
        self._reach(f"source-{source.number}")
        self._put(f"[{source.number}] {source.title}{', ' if source.title else ''}", is_bold=True)
        self._put(source.name, link=source.address, colour=_BLUE if source.address else _GREY)
        self._put(source.place, colour=_GREY)
        self._end(_TEXT, space=0.1)
        for part in source.parts:
            if part.anchor:
                self._reach(part.anchor)
            self._put(
                _WRAP.sub(" ", part.text), size=_SMALL, link=part.address, colour=_BLUE if part.address else _BLACK
            )
        self._end(_SMALL)

    def _run(self, run: TextRun, size: int, *, is_bold: bool) -> None:
        for part in run.parts:
            if isinstance(part, str):
                self._put(part, size=size, is_bold=is_bold)
            else:
                self._citation(part, size)

    def _citation(self, numbers: Sequence[CitedNumber], size: int) -> None:
        for place, one in enumerate(numbers):
            self._put(", " if place else "[", size=size)
            if one.is_known:
                self._put(one.said, size=size, link=self._anchors.get(one.anchor, ""), colour=_BLUE)
            else:
                self._put(f"{one.said}: no such source", size=size, is_bold=True, colour=_RED)
        self._put("]", size=size)

    def _heading(self, text: str, level: int) -> None:
        self._put(text, size=_SIZES[level], is_bold=True)
        self._end(_SIZES[level])

    def _lines(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._put(line)
            self._end(_TEXT, space=0.2)

    def _reach(self, anchor: str) -> None:
        self.pdf.set_link(self._anchors[anchor], y=self.pdf.get_y(), page=self.pdf.page_no())

    def _put(
        self,
        text: str,
        *,
        size: int = _TEXT,
        is_bold: bool = False,
        link: str | int = "",
        colour: tuple[int, int, int] = _BLACK,
    ) -> None:
        if not text:
            return
        height, first = size * _POINT_MM * _LINE, next(iter(text.split(maxsplit=1)), "")
        self.pdf.set_font("text", "B" if is_bold else "", size)
        self.pdf.set_text_color(*colour)
        room = self.pdf.w - self.pdf.r_margin - self.pdf.x - _ROOM_MM
        # Without a space before it, the library would break the first word and not the line.
        if self.pdf.x > self.pdf.l_margin and self.pdf.get_string_width(first) > room:
            self.pdf.ln(height)
        self.pdf.write(height, text, link)

    def _end(self, size: int, space: float = 0.7) -> None:
        """End the line and leave some space, relative to a line."""
        height = size * _POINT_MM * _LINE
        self.pdf.ln(height * (1 + space))
