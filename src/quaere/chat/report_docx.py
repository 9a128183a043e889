"""A report as a Word document, written with the standard library: a zip archive of a few XML files.

    to_docx(report, lambda passage: f"docs/{passage.doc_id}") -> b"PK..."

Citations are links to bookmarks at the sources; quoted sentences and the names of documents are links to the files,
relative to the folder of the report. All text is escaped, and bytes depend on the report alone.
"""

import re
import zipfile
from collections.abc import Sequence
from io import BytesIO
from xml.sax.saxutils import escape, quoteattr

from quaere.chat.report_layout import CitedNumber, Layout, Link, SourceLayout, TextRun, lay_out
from quaere.records import Report

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_DECLARED = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_NO_XML = re.compile("[\x00-\x08\x0b-\x1f\ufffe\uffff]")  # characters that no XML file may contain
_BREAK = '</w:t><w:br/><w:t xml:space="preserve">'

_CONTENT_TYPES = f"""{_DECLARED}<Types xmlns="{_PACKAGE}/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="xml" ContentType="application/xml"/>
<Override PartName="/word/document.xml"
 ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/>
<Override PartName="/word/styles.xml"
 ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.styles+xml"/>
</Types>"""
_PACKAGE_LINKS = f"""{_DECLARED}<Relationships xmlns="{_PACKAGE}/relationships">
<Relationship Id="rId1" Type="{_R}/officeDocument" Target="word/document.xml"/>
</Relationships>"""

# Id and name of the style, size in half points, further properties.
_STYLES = (
    ("Normal", "Normal", 22, ""),
    ("Quote", "Quote", 20, '<w:color w:val="444444"/>'),
    ("Title", "Title", 40, "<w:b/>"),
    *(
        (f"Heading{level}", f"heading {level}", size, "<w:b/>")
        for level, size in enumerate((32, 28, 24, 22, 22, 22), 1)
    ),
)


def to_docx(report: Report, link: Link, *, index: str = "", searches: Sequence[str] = ()) -> bytes:
    """The report as the bytes of a .docx file."""
    written = _Document(lay_out(report, link, index=index, searches=searches))
    files = {
        "[Content_Types].xml": _CONTENT_TYPES,
        "_rels/.rels": _PACKAGE_LINKS,
        "word/document.xml": written.body(),
        "word/styles.xml": _styles(),
        "word/_rels/document.xml.rels": written.links(),
    }
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text.encode(), zipfile.ZIP_DEFLATED)  # dated 1980, always
    return packed.getvalue()


def _styles() -> str:
    made = []
    for style, name, size, more in _STYLES:
        is_heading = more == "<w:b/>"
        level = f'<w:outlineLvl w:val="{int(style[-1]) - 1}"/>' if style[-1].isdigit() else ""
        made.append(
            f'<w:style w:type="paragraph" w:styleId="{style}" w:default="{int(style == "Normal")}">'
            f'<w:name w:val="{name}"/>'
            f'<w:pPr><w:spacing w:before="{240 if is_heading else 80}" w:after="80"/>{level}</w:pPr>'
            f'<w:rPr>{more}<w:sz w:val="{size}"/></w:rPr></w:style>'
        )
    return f'{_DECLARED}<w:styles xmlns:w="{_W}">{"".join(made)}</w:styles>'


class _Document:
    """The body of a document and the addresses that its links name."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._addresses: dict[str, str] = {}
        self._num_bookmarks = 0

    def body(self) -> str:
        """The XML of the document."""
        layout = self.layout
        parts = [_paragraph(_text(layout.title), "Title")]
        for block in layout.blocks:
            style = f"Heading{block.level}" if block.kind == "heading" else "Normal"
            lead = _text("•\t") if block.kind == "list" else ""
            parts += [_paragraph(lead + "".join(map(_run, line)), style) for line in block.lines]
        parts += [_paragraph(_text(layout.counts, "<w:i/>")), _paragraph(_text("Sources"), "Heading2")]
        parts += [paragraph for source in layout.sources for paragraph in self._source(source)]
        if not layout.sources:
            parts.append(_paragraph(_text("No source is cited.")))
        if layout.unresolved:
            parts.append(_paragraph(_text("Unresolved citations"), "Heading2"))
            said = (f"{', '.join(cites)} in: {said}" for cites, said in layout.unresolved)
            parts += [_paragraph(_text(line)) for line in said]
        if layout.searches:
            parts.append(_paragraph(_text("Searches"), "Heading2"))
            parts += [_paragraph(_text(f"•\t{query}")) for query in layout.searches]
        return f'{_DECLARED}<w:document xmlns:w="{_W}" xmlns:r="{_R}"><w:body>{"".join(parts)}</w:body></w:document>'

    def links(self) -> str:
        """The addresses outside the document, by the ids that `body` gave them."""
        style = f'<Relationship Id="styles" Type="{_R}/styles" Target="styles.xml"/>'
        others = (
            f'<Relationship Id="{name}" Type="{_R}/hyperlink" Target={quoteattr(address)} TargetMode="External"/>'
            for address, name in self._addresses.items()
        )
        return f'{_DECLARED}<Relationships xmlns="{_PACKAGE}/relationships">{style}{"".join(others)}</Relationships>'

    def _source(self, source: SourceLayout) -> list[str]:
        title = _text(f" {source.title}, ", "<w:b/>") if source.title else _text(" ")
        name = self._link(source.name, source.address) if source.address else _text(f"document {source.name}")
        number = self._bookmark(_text(f"[{source.number}]", "<w:b/>"), f"source-{source.number}")
        parts = []
        for part in source.parts:
            shown = self._link(part.text, part.address) if part.address else _text(part.text)
            parts.append(self._bookmark(shown, part.anchor) if part.anchor else shown)
        return [_paragraph(number + title + name + _text(source.place)), _paragraph("".join(parts), "Quote")]

    def _bookmark(self, content: str, anchor: str) -> str:
        self._num_bookmarks += 1
        number, name = self._num_bookmarks, _bookmark_name(anchor)
        return f'<w:bookmarkStart w:id="{number}" w:name="{name}"/>{content}<w:bookmarkEnd w:id="{number}"/>'

    def _link(self, text: str, address: str) -> str:
        name = self._addresses.setdefault(address, f"link{len(self._addresses) + 1}")
        return f'<w:hyperlink r:id="{name}">{_text(text, _LINKED)}</w:hyperlink>'


_LINKED = '<w:color w:val="1A5A96"/>'
_LOST = '<w:b/><w:color w:val="B00020"/>'


def _run(run: TextRun) -> str:
    style = "<w:b/>" if run.is_bold else ""
    return "".join(_text(part, style) if isinstance(part, str) else _citation(part) for part in run.parts)


def _citation(numbers: Sequence[CitedNumber]) -> str:
    shown = [
        f'<w:hyperlink w:anchor="{_bookmark_name(one.anchor)}">{_text(one.said, _LINKED)}</w:hyperlink>'
        if one.is_known
        else _text(f"{one.said}: no such source", _LOST)
        for one in numbers
    ]
    return f"{_text('[')}{_text(', ').join(shown)}{_text(']')}"


def _bookmark_name(anchor: str) -> str:
    return anchor.replace("-", "_")  # a bookmark's name has no dashes


def _paragraph(content: str, style: str = "Normal") -> str:
    return f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr>{content}</w:p>'


def _text(text: str, style: str = "") -> str:
    shown = escape(_NO_XML.sub("\ufffd", text)).replace("\n", _BREAK)
    return f'<w:r><w:rPr>{style}</w:rPr><w:t xml:space="preserve">{shown}</w:t></w:r>' if text else ""
