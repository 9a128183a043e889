import bz2
import gzip
import json
import lzma
import os
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from quaere.errors import BadInput, install_hint
from quaere.search import files
from quaere.search.corpus import CorpusReader, Document
from quaere.search.extracted import Unreadable
from quaere.search.files import read_file
from quaere.search.formats.text import decode
from quaere.search.json_lines import join_contents, read_rows, split_contents
from quaere.search.walk import FileChoice

# ------------------------------------------------------------------------------------------------------------ folders


def test_a_folder_is_read_in_the_order_of_its_paths(folder):
    (folder / ".hidden.md").write_text("secret")
    (folder / ".git").mkdir()
    (folder / ".git" / "notes.txt").write_text("secret")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    reader = CorpusReader(folder)
    documents = list(reader)
    assert [document.id for document in documents] == ["coast/lighthouse.txt", "rivers.md", "tokyo.txt"]
    assert [document.title for document in documents] == ["lighthouse", "The Oss", "tokyo"]
    assert all(document.text == (folder / document.id).read_text("utf-8") for document in documents)
    assert reader.report.ignored_suffixes == {".png": 1}
    assert reader.report.num_documents == 3


def test_how_much_was_read_is_counted_in_bytes(folder):
    """Those of files that are passed over too, so that the end is reached; compressed rows by the file's own bytes."""
    (folder / "bad.txt").write_bytes(b"\0")
    rows = as_lines([{"id": str(number), "text": f"{number} " + os.urandom(40).hex()} for number in range(4000)])
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress(rows))
    reader = CorpusReader(folder)
    seen = [(document.kind, reader.num_read) for document in reader]
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert reader.num_bytes == total
    counts = [count for _, count in seen]
    assert counts == sorted(counts) and counts[0] > 0 and counts[-1] <= total
    packed = {count for kind, count in seen if kind == "row"}
    assert len(packed) > 2  # row by row, as far as the buffers let one see
    assert counts[0] == 1 + (folder / "coast" / "lighthouse.txt").stat().st_size  # the bad file comes before it


def test_a_folder_can_be_left_out(folder):
    assert [d.id for d in CorpusReader(folder, FileChoice(folder / "coast"))] == ["rivers.md", "tokyo.txt"]


def test_one_file_is_a_corpus(folder):
    assert [document.id for document in CorpusReader(folder / "rivers.md")] == ["rivers.md"]


def test_exact_duplicates_and_empty_documents_are_left_out_and_counted(tmp_path):
    for name, text in {"a.md": "# T\nsame", "b.md": "# T\nsame", "c.md": "# U\nsame", "d.txt": " \n"}.items():
        (tmp_path / name).write_text(text)
    reader = CorpusReader(tmp_path)
    assert [document.id for document in reader] == ["a.md", "c.md"]
    assert reader.report.num_duplicates == 1
    assert reader.report.num_empty == 1


@pytest.mark.parametrize("make", [lambda p: p.mkdir(), lambda p: None, lambda p: p.write_text("x")])
def test_nothing_to_read_is_refused(tmp_path, make):
    source = tmp_path / "source.docx"
    make(source)
    with pytest.raises(BadInput):
        list(CorpusReader(source))


def test_each_kind_that_can_be_read_is_named_once(tmp_path):
    with pytest.raises(BadInput, match="found no document with text in") as caught:
        list(CorpusReader(tmp_path))
    kinds = caught.value.hint.removesuffix(" (or .jsonl.gz ...)").partition(": ")[2].split()
    assert kinds[-2:] == [".jsonl", ".ndjson"] and len(kinds) == len(set(kinds)) and ".jsonl.gz" not in kinds


def test_line_endings_and_composed_characters_survive(tmp_path):
    text = "cafe\u0301\r\ncaf\u00e9\u2028\ttab \u00a0"
    (tmp_path / "a.txt").write_bytes(text.encode())
    assert next(iter(CorpusReader(tmp_path))).text == text


@given(st.text())
def test_any_text_survives_utf8(text):
    if "\0" not in text and not text.startswith("\ufeff"):
        assert decode(text.encode()) == (text, "utf-8")


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("été".encode("utf-8-sig"), "utf-8-sig"),
        ("été".encode("utf-16"), "utf-16"),
        ("été".encode("utf-32"), "utf-32"),
        ("été".encode("cp1252"), "windows-1252"),
        (b"\xe9t\xe9\x81", "latin-1"),
    ],
)
def test_other_encodings_are_understood_and_reported(tmp_path, data, encoding):
    (tmp_path / "a.txt").write_bytes(data)
    reader = CorpusReader(tmp_path)
    assert [document.text.rstrip("\x81") for document in reader] == ["été"]
    assert reader.report.other_encodings == {encoding: 1}


def test_a_binary_file_is_left_out_by_name(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.txt").write_bytes(b"\x00\x01\x02")
    reader = CorpusReader(tmp_path)
    assert [document.id for document in reader] == ["a.txt"]
    assert reader.report.num_unreadable == 1
    assert reader.report.unreadable[0].startswith("b.txt: ")


# -------------------------------------------------------------------------------------------------- what is not opened


def read(source, **options):
    reader = CorpusReader(source, FileChoice(**options))
    return [document.id for document in reader], reader.report.unreadable


def test_nothing_outside_the_folder_is_read(tmp_path, folder):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (folder / "a.txt").symlink_to(secret)
    (folder / "b.jsonl").symlink_to("/dev/null")  # /dev/zero would be read for good if it were
    (folder / "coast" / "c.md").symlink_to(folder / "rivers.md")  # inside: the same document again, which is left out
    (folder / "d").symlink_to(tmp_path)
    assert read(folder) == (
        ["coast/lighthouse.txt", "rivers.md", "tokyo.txt"],
        [
            "d: a link to a folder, which is not followed",
            "a.txt: a link out of the folder",
            "b.jsonl: a link out of the folder",
        ],
    )


def test_a_source_that_is_itself_a_link_is_followed(tmp_path, folder):
    (tmp_path / "docs-link").symlink_to(folder)
    (tmp_path / "oss.md").symlink_to(folder / "rivers.md")
    assert read(tmp_path / "docs-link") == (["coast/lighthouse.txt", "rivers.md", "tokyo.txt"], [])
    assert read(tmp_path / "oss.md") == (["oss.md"], [])


@pytest.mark.timeout(60)
def test_what_is_no_regular_file_is_passed_over(folder):
    os.mkfifo(folder / "pipe.txt")
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "loop.md").symlink_to(folder / "loop.md")
    assert read(folder) == (
        ["coast/lighthouse.txt", "rivers.md", "tokyo.txt"],
        ["pipe.jsonl: not a regular file", "pipe.txt: not a regular file", "loop.md: a link that leads nowhere"],
    )
    with pytest.raises(BadInput, match="not a regular file"):
        list(CorpusReader(folder / "pipe.txt"))


def test_what_may_not_be_read_is_passed_over(folder, monkeypatch):
    # Permissions do not bind the superuser, so the system's word is replaced.
    monkeypatch.setattr(os, "access", lambda path, mode: path.name != "rivers.md")
    assert read(folder) == (["coast/lighthouse.txt", "tokyo.txt"], ["rivers.md: permission denied"])

    def scandir(path):
        if str(path).endswith("coast"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    scan = os.scandir
    monkeypatch.setattr(os, "scandir", scandir)
    assert read(folder) == (["tokyo.txt"], ["coast: Permission denied", "rivers.md: permission denied"])


def test_a_file_that_fails_while_it_is_read_is_passed_over(folder, monkeypatch):
    def read_bytes(path):
        if path.name == "rivers.md":
            raise OSError(5, "Input/output error")
        return whole(path)

    whole = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert read(folder) == (["coast/lighthouse.txt", "tokyo.txt"], ["rivers.md: Input/output error"])


def test_rows_that_vanish_are_left_out_and_end_the_reading_if_they_were_named(folder):
    rows = folder / "rows.jsonl"
    rows.write_bytes(as_lines(ROWS))
    reader = CorpusReader(folder)
    documents = iter(reader)
    assert next(documents).id == "coast/lighthouse.txt"
    rows.unlink()
    assert [document.id for document in documents] == ["rivers.md", "tokyo.txt"]
    assert reader.report.unreadable == ["rows.jsonl: No such file or directory"]
    rows.write_bytes(as_lines(ROWS))
    documents = iter(CorpusReader([folder / "coast", rows]))
    assert next(documents).id == "coast/lighthouse.txt"
    rows.unlink()
    with pytest.raises(BadInput, match=r"rows\.jsonl: cannot be read: No such file"):
        list(documents)


def test_the_bytes_of_the_files_before_are_counted(folder):
    reader = CorpusReader(folder)
    sizes = [(folder / name).stat().st_size for name in ("coast/lighthouse.txt", "rivers.md", "tokyo.txt")]
    assert [reader.num_read for _ in reader] == [sizes[0], sizes[0] + sizes[1], sum(sizes)]


def test_the_reason_that_a_library_gives_is_told_or_the_name_of_its_error(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("text")
    for error, reason in ((ValueError("no table\n at 7"), "no table at 7"), (KeyError(), "KeyError")):

        def fail(data, limit, error=error):
            raise error

        monkeypatch.setitem(files._READERS, ".txt", fail)
        with pytest.raises(Unreadable) as caught:
            read_file(tmp_path / "a.txt")
        assert str(caught.value) == f"not a readable TXT file ({reason})"


def test_documents_have_a_largest_size_and_json_lines_have_a_longest_line(tmp_path):
    (tmp_path / "fits.txt").write_text("x" * (1 << 20))
    (tmp_path / "large.txt").write_text("x" * ((1 << 20) + 1))
    fits = [json.dumps({"id": number, "text": f"row {number}"}) for number in (1, 2)]
    (tmp_path / "rows.jsonl").write_bytes("\r\n".join(line.ljust(1 << 20) for line in fits).encode())
    (tmp_path / "wide.jsonl").write_text('\n{"id": "3", "text": "wide"}'.ljust((1 << 20) + 2) + "\n")
    left_out = ["large.txt: larger than 1 MiB", "wide.jsonl: line 2: longer than 1 MiB"]
    assert read(tmp_path, max_file_mib=1) == (["fits.txt", "1", "2"], left_out)
    assert read(tmp_path) == (["fits.txt", "large.txt", "1", "2", "3"], [])


# --------------------------------------------------------------------------------------------------------------- HTML


def test_html_gives_what_a_reader_sees(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        "<html><head><title>The &amp; Oss</title><style>p {color: red}</style></head>"
        "<body><h1>Head</h1><p>One <b>bo</b>ld\n line.<p>Caf&eacute;<script>var x = '<p>no</p>';</script>"
        "<ul><li>a<li>b</ul></body>"
    )
    content = read_file(page)
    assert content.title == "The & Oss"
    assert content.text == "Head\n\nOne bold line.\n\nCafé\n\n- a\n- b"


def test_html_may_declare_its_encoding(tmp_path):
    page = tmp_path / "page.html"
    page.write_bytes('<meta charset="shift_jis"><p>東京'.encode("shift_jis"))
    assert read_file(page).text == "東京"
    assert read_file(page).title == "page"


# ---------------------------------------------------------------------------------------------------------------- PDF


def minimal_pdf(text):
    """A PDF of one page, written by hand."""
    stream = f"BT /F1 24 Tf 72 720 Td ({text}) Tj ET".encode()
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
    ]
    out, starts = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(bodies, start=1):
        starts.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    xref = len(out)
    out += b"xref\n0 5\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % start for start in starts)
    return bytes(out + b"trailer\n<< /Size 5 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % xref)


def test_pdf_text_is_read_and_a_broken_pdf_is_left_out(tmp_path):
    pytest.importorskip("pypdf")
    (tmp_path / "good.pdf").write_bytes(minimal_pdf("The Oss rises near Halmgate."))
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 nothing of the kind")
    reader = CorpusReader(tmp_path)
    assert [(document.id, document.text) for document in reader] == [("good.pdf", "The Oss rises near Halmgate.")]
    assert reader.report.unreadable[0].startswith("broken.pdf: not a readable PDF")


def test_pdf_without_pypdf_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypdf", None)
    for name in ("a.pdf", "b.pdf"):
        (tmp_path / name).write_bytes(minimal_pdf("x"))
    with pytest.raises(BadInput, match=r"\.pdf files need pypdf") as caught:
        list(CorpusReader(tmp_path))
    assert caught.value.hint == install_hint("pdf")
    (tmp_path / "c.txt").write_text("text")
    reader = CorpusReader(tmp_path)
    assert [document.id for document in reader] == ["c.txt"]
    assert reader.report.missing == {f".pdf files need pypdf: {install_hint('pdf')}": 2}


# --------------------------------------------------------------------------------------------------------- JSON Lines

ROWS = [
    {"id": "1", "contents": '"The Oss"\nThe Oss rises.\nIt flows.'},
    {"id": 2, "title": "Korrin\n cliff", "text": "A lighthouse: 灯台."},
    {"id": "3", "text": "No title."},
    {"id": "4", "contents": "One line only."},
]
DOCUMENTS = [
    Document(id="1", title="The Oss", text="The Oss rises.\nIt flows.", kind="row"),
    Document(id="2", title="Korrin cliff", text="A lighthouse: 灯台.", kind="row"),
    Document(id="3", title="", text="No title.", kind="row"),
    Document(id="4", title="", text="One line only.", kind="row"),
]
PACKERS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def as_lines(rows):
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()


@pytest.mark.parametrize("suffix", PACKERS)
def test_json_lines_plain_and_compressed(tmp_path, suffix):
    path = tmp_path / f"corpus.jsonl{suffix}"
    path.write_bytes(PACKERS[suffix](b"\xef\xbb\xbf" + as_lines(ROWS[:2]) + b"\n\n" + as_lines(ROWS[2:])))
    assert list(CorpusReader(path)) == DOCUMENTS


def test_several_zstd_frames_are_one_file(tmp_path):
    path = tmp_path / "corpus.jsonl.zst"
    path.write_bytes(b"".join(PACKERS[".zst"](as_lines([row]) + b"\n") for row in ROWS))
    assert list(CorpusReader(path)) == DOCUMENTS


def test_a_folder_may_hold_json_lines_too(folder):
    (folder / "more.jsonl").write_bytes(as_lines(ROWS[:1]))
    assert [d.id for d in CorpusReader(folder)] == ["coast/lighthouse.txt", "1", "rivers.md", "tokyo.txt"]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"id": "9", "text": ', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"id": "9", "text": "\xff"}', "not JSON"),
        pytest.param(b'{"id": "9", "more": ' + b"[" * 100_000, "not JSON: the JSON is nested too deeply", id="deep"),
        (b'["9", "text"]', "not a document"),
        (b'{"text": "x"}', "`id`"),
        (b'{"id": true, "text": "x"}', "$.id"),
        (b'{"id": "", "text": "x"}', "id is empty"),
        (b'{"id": "9", "title": "x"}', 'no "text"'),
        (b'{"id": "9", "text": 7}', "$.text"),
        (b'{"id": "1", "text": "another"}', "used by an earlier document"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, what):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(as_lines(ROWS[:1]) + b"\n\n" + line + b"\n")
    with pytest.raises(BadInput) as caught:
        list(CorpusReader(path))
    assert f"{path}, line 3: " in str(caught.value)
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"plain text"])
def test_damaged_compression_is_named(tmp_path, suffix, damage):
    path = tmp_path / f"corpus.jsonl{suffix}"
    path.write_bytes(damage(PACKERS[suffix](as_lines([{"id": str(n), "text": f"text {n}"} for n in range(500)]))))
    with pytest.raises(BadInput, match=r"corpus\.jsonl"):
        list(read_rows(path))


def test_the_same_row_twice_is_a_duplicate_not_an_error(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(as_lines([ROWS[0], ROWS[0]]))
    reader = CorpusReader(path)
    assert len(list(reader)) == 1
    assert reader.report.num_duplicates == 1


@given(st.text().map(lambda text: " ".join(text.split())), st.text())
def test_contents_round_trip(title, text):
    assert split_contents(join_contents(title, text)) == (title, text)
