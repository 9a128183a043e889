"""Files made to exhaust their reader: each is read or left out with a reason. Limits of time only end what hangs."""

import struct
import zipfile
from io import BytesIO

import pytest

from making_files import make_docx, make_epub, make_pdf, make_pptx, make_xlsx, make_zip, replace_member
from quaere.search.corpus import CorpusReader
from quaere.search.extracted import Unreadable
from quaere.search.files import read_file

pytestmark = pytest.mark.timeout(120)
MB, HALF = 1 << 20, 1 << 19
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
BOMB = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "haha">{LAUGHS}]>'
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


@pytest.fixture
def read(tmp_path):
    def read(name, data, **options):
        (tmp_path / name).write_bytes(data)
        return read_file(tmp_path / name, **options)

    return read


def share_strings(book, table):
    """The workbook with a table of shared strings."""
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    with zipfile.ZipFile(BytesIO(book)) as archive:
        types = archive.read("[Content_Types].xml").decode()
    types = types.replace("</Types>", f'<Override PartName="/xl/sharedStrings.xml" ContentType="{kind}"/></Types>')
    return replace_member(replace_member(book, "[Content_Types].xml", types), "xl/sharedStrings.xml", table)


def office(suffix):
    if suffix == ".epub":
        return make_epub("Sagas", "<p>one"), "OEBPS/c0.xhtml"
    library, make, member = {
        ".docx": ("docx", lambda: make_docx("one"), "word/document.xml"),
        ".pptx": ("pptx", lambda: make_pptx(("one", "two", "")), "ppt/slides/slide1.xml"),
        ".xlsx": ("openpyxl", lambda: make_xlsx({"One": [["one"]]}), "xl/worksheets/sheet1.xml"),
    }[suffix]
    pytest.importorskip(library, reason=f"{library} is in the dev extra")
    return make(), member


ARCHIVES = (".docx", ".pptx", ".xlsx", ".epub")


@pytest.mark.parametrize("suffix", ARCHIVES)
def test_an_archive_that_unpacks_to_too_much_is_refused(read, suffix):
    data, member = office(suffix)
    bomb = replace_member(data, member, b" " * (65 * MB))
    assert len(bomb) < MB
    with pytest.raises(Unreadable, match="unpacks to more than 64 MiB"):
        read(f"bomb{suffix}", bomb)


@pytest.mark.parametrize("suffix", ARCHIVES)
def test_an_archive_that_lies_about_its_sizes_is_refused(read, suffix):
    data, member = office(suffix)
    lying = bytearray(replace_member(data, member, b" " * (20 * MB)))
    with zipfile.ZipFile(BytesIO(lying)) as archive:
        real = struct.pack("<L", archive.getinfo(member).file_size)
    assert lying.count(real) == 2  # before the member, and in the directory
    with pytest.raises(Unreadable, match="more than it declares"):
        read(f"lying{suffix}", bytes(lying).replace(real, struct.pack("<L", 10)))


def test_archives_of_too_many_files_or_another_packing_are_refused(read):
    with pytest.raises(Unreadable, match="holds more than"):
        read("many.epub", make_zip({str(number): "" for number in range(20_001)}, zipfile.ZIP_STORED))
    with pytest.raises(Unreadable, match="compressed with a method"):
        read("packed.epub", make_zip({"a": "b"}, zipfile.ZIP_LZMA))


@pytest.mark.parametrize(
    ("suffix", "member", "content"),
    [
        (
            ".docx",
            "word/document.xml",
            f'<w:document xmlns:w="{WORD}"><w:body><w:p><w:r><w:t>&l9;</w:t></w:r></w:p></w:body>',
        ),
        (
            ".xlsx",
            "xl/worksheets/sheet1.xml",
            f'<worksheet xmlns="{SHEET}"><sheetData><row r="1"><c t="str"><v>&l9;</v>',
        ),
        (".xlsx", "xl/sharedStrings.xml", f'<sst xmlns="{SHEET}"><si><t>&l9;</t></si></sst>'),
        (".pptx", "ppt/presentation.xml", "<a>&l9;</a>"),
        (".epub", "OEBPS/book.opf", "<package>&l9;</package>"),
    ],
)
def test_entities_are_never_expanded(read, suffix, member, content):
    closing = {"word/document.xml": "</w:document>", "xl/worksheets/sheet1.xml": "</c></row></sheetData></worksheet>"}
    data, written = office(suffix)[0], BOMB + content + closing.get(member, "")
    bomb = share_strings(data, written) if "shared" in member else replace_member(data, member, written)
    try:
        text = read(f"laughs{suffix}", bomb).text
    except Unreadable:
        text = ""
    assert "haha" not in text


def test_a_sheet_that_is_mostly_empty_is_refused(read):
    rows = "".join(f'<row r="{n}"><c r="XFD{n}"><v>1</v></c></row>' for n in range(1, 1000))
    sheet = f'<worksheet xmlns="{SHEET}"><sheetData>{rows}</sheetData></worksheet>'
    with pytest.raises(Unreadable, match="cells"):
        read("wide.xlsx", replace_member(office(".xlsx")[0], "xl/worksheets/sheet1.xml", sheet))


def test_one_long_text_that_many_cells_refer_to_is_refused(read):
    data, _ = office(".xlsx")
    rows = "".join(f'<row r="{n}"><c r="A{n}" t="s"><v>0</v></c></row>' for n in range(1, 200))
    data = share_strings(data, f'<sst xmlns="{SHEET}"><si><t>{"a b " * 5000}</t></si></sst>')
    sheet = f'<worksheet xmlns="{SHEET}"><sheetData>{rows}</sheetData></worksheet>'
    with pytest.raises(Unreadable, match="longer than"):
        read("shared.xlsx", replace_member(data, "xl/worksheets/sheet1.xml", sheet), limit=2 * MB)


def test_a_tree_of_pages_that_doubles_is_refused(read):
    pytest.importorskip("pypdf", reason="pypdf is in the dev extra")
    nodes = b"".join(
        b"%d 0 obj << /Type /Pages /Kids [%d 0 R %d 0 R] >> endobj\n" % (n, n + 1, n + 1) for n in range(20, 60)
    )
    leaf = b"60 0 obj << /Type /Page /MediaBox [0 0 9 9] >> endobj\n"
    data = make_pdf("x").replace(b"/Pages 2 0 R", b"/Pages 20 0 R") + nodes + leaf
    with pytest.raises(Unreadable):
        read("tree.pdf", data.replace(b"startxref", b"startxxxx"))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("deep.ipynb", b'{"cells": ' + b"[" * HALF),
        ("deep.eml", b"From: a\n" + b"Content-Type: multipart/mixed; boundary=b\n\n--b\n" * (HALF // 50)),
        ("header.eml", b"From: " + b"(" * HALF + b"\nTo: " + b"<a@" * (HALF // 3) + b"\n\nbody"),
        ("words.eml", b"From: a\nSubject: " + b"=?utf-8?q?a?= " * (HALF // 14) + b"\n\nbody"),
        ("quote.csv", b'a,b\n"' + b"x\n" * (HALF // 2)),
        ("quotes.csv", b'"' * HALF),
        ("delimiters.csv", b"," * HALF),
        ("lines.rst", b"=\n" * (HALF // 2)),
        ("marks.rst", b"=" * HALF + b"a\n"),
        ("titles.rst", b"title\n==\n" * (HALF // 9)),
        ("headings.html", b"<h1 " * (HALF // 4)),
        ("headings2.html", b"<h1>" * (HALF // 4)),
    ],
)
def test_half_a_megabyte_of_trouble_is_read_or_refused(read, name, data):
    try:
        assert len(read(name, data).text) <= len(data)
    except Unreadable as reason:
        assert str(reason)


def test_one_bad_file_of_every_format_never_ends_an_index(tmp_path):
    """Every file cut in the middle, and every file with one bit after another turned."""
    (tmp_path / "good.txt").write_text("The Oss rises near Halmgate.")
    for suffix in (".docx", ".pptx", ".xlsx"):
        office(suffix)
    whole = {suffix: office(suffix)[0] for suffix in ARCHIVES} | {".pdf": make_pdf("one", "two")}
    for suffix, data in whole.items():
        (tmp_path / f"cut{suffix}").write_bytes(data[: len(data) // 2])
        for number in range(12):
            damaged = bytearray(data)
            damaged[len(data) * number // 12] ^= 0x55
            (tmp_path / f"bit-{number}{suffix}").write_bytes(damaged)
    reader = CorpusReader(tmp_path)
    assert "good.txt" in [document.id for document in reader]
    report = reader.report
    left_out = report.num_unreadable + report.num_duplicates + report.num_empty
    assert report.num_documents + left_out == 1 + 13 * len(whole) and report.num_unreadable >= len(ARCHIVES)
