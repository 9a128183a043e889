"""Files of every format, made with the libraries that also read them, or by hand."""

import json
import zipfile
from email.message import EmailMessage
from io import BytesIO


def make_pdf(*pages, title=""):
    """A PDF with a line of text on every page, written by hand; "" makes a page without text."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * number) for number in range(len(pages)))
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(pages)),
        b"<< /Title (%s) >>" % title.encode("latin-1"),
    ]
    for number, text in enumerate(pages):
        stream = b"BT /F1 24 Tf 72 720 Td (%s) Tj ET" % text.encode("latin-1") if text else b""
        bodies += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R"
            % (5 + 2 * number)
            + b" /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica"
            b" /Encoding /WinAnsiEncoding >> >> >> >>",
            b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        ]
    out, starts = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(bodies, start=1):
        starts.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    size, xref = len(bodies) + 1, len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % size + b"".join(b"%010d 00000 n \n" % start for start in starts)
    return bytes(out + b"trailer\n<< /Size %d /Root 1 0 R /Info 3 0 R >>\nstartxref\n%d\n%%%%EOF" % (size, xref))


def make_docx(*blocks, title=""):
    """A Word document: "# text" is a heading, a list of lists is a table, anything else is a paragraph."""
    import docx

    document = docx.Document()
    document.core_properties.title = title
    for block in blocks:
        if isinstance(block, list):
            table = document.add_table(0, len(block[0]))
            for row in block:
                for cell, text in zip(table.add_row().cells, row, strict=True):
                    cell.text = text
        elif block.startswith("# "):
            document.add_heading(block[2:], level=1)
        else:
            document.add_paragraph(block)
    return _saved(document)


def make_pptx(*slides, title="PowerPoint Presentation"):
    """A presentation; a slide is its title, its text and its notes."""
    import pptx

    presentation = pptx.Presentation()
    presentation.core_properties.title = title
    for heading, text, notes in slides:
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = heading
        slide.placeholders[1].text = text
        if notes:
            slide.notes_slide.notes_text_frame.text = notes
    return _saved(presentation)


def make_xlsx(sheets):
    """A workbook: `{"Costs": [["item", "euros"], ["rope", 120]]}`."""
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    return _saved(book)


def make_ipynb(*cells):
    """A notebook; a cell is (kind, source) or (kind, source, printed)."""
    written = []
    for kind, source, *printed in cells:
        cell = {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True)}
        if kind == "code":
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text} for text in printed]
        written.append(cell)
    return json.dumps({"cells": written, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
)


def make_epub(title, *chapters, missing=0, package=None):
    """A book; a chapter is its XHTML. `missing` chapters more are announced and not there."""
    names = [f"c{number}.xhtml" for number in range(len(chapters) + missing)]
    items = "".join(f'<item id="{name}" href="{name}"/>' for name in names)
    order = "".join(f'<itemref idref="{name}"/>' for name in names)
    package = package or (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:title>{title}</dc:title></metadata><manifest>{items}</manifest><spine>{order}</spine></package>"
    )
    members = {"META-INF/container.xml": CONTAINER, "OEBPS/book.opf": package}
    return make_zip(members | {f"OEBPS/{name}": text for name, text in zip(names, chapters, strict=False)})


def make_eml(subject, text, *, html="", attachment=""):
    """A message from Venn to the board."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Venn <venn@example.org>", "board@example.org", subject
    if text:
        message.set_content(text)
    if html:
        (message.add_alternative if text else message.set_content)(html, subtype="html")
    if attachment:
        message.add_attachment(b"\0\1", maintype="application", subtype="octet-stream", filename=attachment)
    return bytes(message)


def make_zip(members, compression=zipfile.ZIP_DEFLATED):
    file = BytesIO()
    with zipfile.ZipFile(file, "w", compression, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def replace_member(data, name, content):
    """The archive with another content of one of its members."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    return make_zip(members | {name: content})


def add_footnote(document, text):
    """The Word document with a part of footnotes, which python-docx does not write."""
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
    added = {
        "[Content_Types].xml": f'<Override PartName="/word/footnotes.xml" ContentType="{kind}"/></Types>',
        "word/_rels/document.xml.rels": f'<Relationship Id="notes" Type="{office}/footnotes" Target="footnotes.xml"/>'
        "</Relationships>",
    }
    for name, ending in added.items():
        with zipfile.ZipFile(BytesIO(document)) as archive:
            before = archive.read(name).decode()
        closing = ending[ending.rindex("</") :]
        document = replace_member(document, name, before.replace(closing, ending))
    note = f"<w:footnote><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:footnote>"
    return replace_member(document, "word/footnotes.xml", f'<w:footnotes xmlns:w="{word}">{note}</w:footnotes>')


def _saved(document):
    file = BytesIO()
    document.save(file)
    return file.getvalue()
