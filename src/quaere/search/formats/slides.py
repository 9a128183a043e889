"""Presentations (.pptx), slide by slide with tables and speaker notes, through python-pptx."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from quaere.search.extracted import FileText, TextBuilder, Unreadable, load_library
from quaere.search.formats.archive import open_archive
from quaere.search.titles import choose_title


def read_pptx(data: bytes, limit: int) -> FileText:
    """The text of every slide: its title, its shapes, its tables row by row, then its notes."""
    pptx = load_library("pptx", package="python-pptx", extra="office", suffix=".pptx")
    open_archive(data, limit).close()
    presentation = pptx.Presentation(BytesIO(data))
    text, first_title = TextBuilder(limit), ""
    slides = list(presentation.slides)
    if len({slide.part for slide in slides}) < len(slides):
        raise Unreadable("several of its slides are the same part of the file")
    for number, slide in enumerate(slides, start=1):
        title = slide.shapes.title
        if not first_title and title is not None:
            first_title = choose_title(title.text_frame.text)
        lines = [line for shape in slide.shapes for line in _shape_lines(shape)]
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            lines.append(slide.notes_slide.notes_text_frame.text)
        # A line break inside a paragraph is a vertical tab there.
        text.add(
            "\n\n".join(line.strip() for line in lines if line.strip()).replace("\v", "\n"), group=f"slide {number}"
        )
    return text.build(choose_title(presentation.core_properties.title or "", first_title))


def _shape_lines(shape: Any) -> Iterator[str]:
    """The text of a shape, of those grouped in it, and of every row of a table."""
    if hasattr(shape, "shapes"):
        for inner in shape.shapes:
            yield from _shape_lines(inner)
    elif getattr(shape, "has_table", False):
        for row in shape.table.rows:
            yield " | ".join(cell.text_frame.text.strip() for cell in row.cells)
    elif shape.has_text_frame:
        yield shape.text_frame.text
