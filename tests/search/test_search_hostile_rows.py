"""JSON Lines made to stop or exhaust an index: the file is left out with its reason, or an error if named."""

import bz2
import gzip
import json
import lzma
import tracemalloc

import pytest
import zstandard

from quaere.errors import BadInput
from quaere.search import json_lines
from quaere.search.corpus import CorpusReader
from quaere.search.index_build import build_index, update_index
from quaere.search.json_lines import read_lines
from quaere.search.walk import FileChoice

pytestmark = pytest.mark.timeout(120)
MIB = 1 << 20
PACKERS = {
    ".gz": lambda data: gzip.compress(data, 9),
    ".bz2": lambda data: bz2.compress(data, 1),
    ".xz": lambda data: lzma.compress(data, preset=0),
    ".zst": zstandard.ZstdCompressor(level=9).compress,
}
FIRST = b'{"id": "7", "text": "The first row is good."}\n'
BAD_LINES = {
    "empty id": (b'{"id": "", "text": "x"}', "the id is empty"),
    "null id": (b'{"id": null, "text": "x"}', "not a document"),
    "no id": (b'{"text": "x"}', "not a document"),
    "huge id": (b'{"id": ' + b"9" * 5000 + b', "text": "x"}', "not a document"),
    "id twice": (b'{"id": 7, "text": "another text"}', "the id '7' is used"),
    "id of a file": (b'{"id": "a.md", "text": "another text"}', "the id 'a.md' is used"),
    "no text": (b'{"id": "8"}', 'no "text"'),
    "nested text": (b'{"id": "8", "text": {"text": "x"}}', "not a document"),
    "list": (b'["8", "x"]', "not a document"),
    "cut": (b'{"id": "8", "te', "not JSON"),
    "deep": (b'{"id": "8", "more": ' + b"[" * 100_000, "not JSON: the JSON is nested too deeply"),
    "NaN": (b'{"id": "8", "text": "x", "score": NaN}', "not JSON"),
    "surrogate": (b'{"id": "8", "text": "\\ud800 x"}', "not JSON"),
    "surrogate id": (b'{"id": "\\udc00", "text": "x"}', "not JSON"),
    "bad UTF-8": (b'{"id": "8", "text": "\xff"}', "not JSON"),
    "surrogate bytes": (b'{"id": "8", "text": "\xed\xa0\x80"}', "not JSON"),
    "zeros": (b"\0" * 100, "not JSON"),
    "long line": (b'{"id": "8", "text": "' + b"x" * MIB + b'"}', "longer than 1 MiB"),
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# The Oss\n\nThe Oss rises near Halmgate.")
    (tmp_path / "docs" / "z.md").write_text("# Korrin\n\nA lighthouse stands on the cliff.")
    return tmp_path / "docs"


def leave_out(folder, name, data):
    """What a folder with the file says of it. All else is read, and the file alone is an error with the same reason."""
    (folder / name).write_bytes(data)
    reader = CorpusReader(folder, FileChoice(max_file_mib=1))
    assert [document.id for document in reader] == ["a.md", "z.md"]
    assert reader.report.num_unreadable == 1 and reader.num_read == reader.num_bytes
    (said,) = reader.report.unreadable
    with pytest.raises(BadInput) as caught:
        list(CorpusReader([folder / "a.md", folder / name], FileChoice(max_file_mib=1)))
    assert "\n" not in said and said.removeprefix(f"{name}: ") in str(caught.value)
    assert str(folder / name) in str(caught.value)
    return said, caught.value.hint


# ---------------------------------------------------------------------------------------------------------- bad files


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_line_leaves_out_its_file_and_no_other(folder, case):
    line, reason = BAD_LINES[case]
    said, _ = leave_out(folder, "rows.jsonl", FIRST + line + b"\n")
    assert said.startswith(f"rows.jsonl: line 2: {reason}")


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("damage", ["cut", "other"])
def test_a_damaged_file_leaves_out_itself_and_no_other(folder, suffix, damage):
    rows = b"".join(b'{"id": "%d", "text": "row %d"}\n' % (number, number * number) for number in range(2000))
    data = {"cut": PACKERS[suffix](rows)[:-9], "other": rows}[damage]
    said, _ = leave_out(folder, f"rows.jsonl{suffix}", data)
    assert "damaged" in said or "cannot be read" in said


def test_an_id_of_an_earlier_row_leaves_out_the_later_file(folder):
    (folder / "b.jsonl").write_bytes(b'{"id": "z.md", "text": "It takes the name of a file."}\n')
    (folder / "c.jsonl").write_bytes(FIRST)
    (folder / "d.jsonl").write_bytes(b'{"id": "9", "text": "New."}\n{"id": "7", "text": "Another."}\n')
    reader = CorpusReader(folder)
    assert [document.id for document in reader] == ["a.md", "z.md", "7"]
    used = "is used by an earlier document with another text"
    assert reader.report.unreadable == [f"d.jsonl: line 2: the id '7' {used}", f"z.md: the id 'z.md' {used}"]


def test_what_a_left_out_file_held_counts_for_nothing(folder):
    """Neither its ids nor its texts: a later file may have the same."""
    (folder / "b.jsonl").write_bytes(FIRST + b"{broken\n")
    (folder / "c.jsonl").write_bytes(FIRST + FIRST)
    reader = CorpusReader(folder)
    assert [document.id for document in reader] == ["a.md", "7", "z.md"]
    assert reader.report.num_duplicates == 1 and reader.report.num_unreadable == 1


def contents(index):
    return {path.relative_to(index): path.read_bytes() for path in sorted(index.rglob("*")) if path.is_file()}


def test_an_update_leaves_out_and_takes_in_what_a_new_build_would(tmp_path, folder):
    rows = [FIRST, b'{"id": "8", "text": "The second."}\n']
    edits = [
        ("c.jsonl", b"".join(rows), 0),
        ("c.jsonl", b"".join(rows) + b"{broken\n", 1),
        ("b.jsonl", b'{"id": "8", "text": "Another text."}\n', 1),  # now the second line is the first bad one
        ("c.jsonl", b"".join(rows), 1),
        ("b.jsonl", b"", 0),
        ("b.jsonl", b'{"id": "8", "text": "Another text."}\n', 1),  # of a file that had been read
        ("b.jsonl", b'{"id": "8", "text": "The second."}\n', 0),  # a duplicate
        ("b.jsonl", b'{"id": "z.md", "text": "Another text."}\n', 1),
        ("b.jsonl", b'{"id": "9", "text": "Another text."}\n', 0),
    ]
    index = build_index(folder, tmp_path / "index")
    for number, (name, data, num_left_out) in enumerate(edits):
        (folder / name).write_bytes(data)
        update_index(index.path)
        fresh = build_index(folder, tmp_path / f"fresh-{number}")
        assert fresh.manifest.corpus.num_unreadable == num_left_out
        assert contents(index.path) == contents(fresh.path), number


# -------------------------------------------------------------------------------------------------------------- bombs


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_line_that_unpacks_to_too_much_is_refused_in_bounded_memory(folder, suffix):
    bomb = PACKERS[suffix](FIRST + b" " * (64 * MIB))
    tracemalloc.start()
    try:
        said, hint = leave_out(folder, f"bomb.jsonl{suffix}", bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert said == f"bomb.jsonl{suffix}: line 2: longer than 1 MiB"
    assert "--max-file-mib" in hint
    assert peak < 16 * MIB


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("line", [b" " * 63 + b"\n", FIRST], ids=["blank", "same"])
def test_endless_short_lines_are_refused(folder, suffix, line):
    bomb = PACKERS[suffix](line * (3 * MIB // len(line)))
    said, hint = leave_out(folder, f"bomb.jsonl{suffix}", bomb)
    assert said.endswith("unpacks to more than 200 times its size") and "unpack the file first" in hint


def test_a_file_that_is_mostly_repetition_is_read_up_to_the_limit(folder):
    path = folder / "rows.jsonl.zst"
    path.write_bytes(PACKERS[".zst"](FIRST * (MIB // len(FIRST))))
    reader = CorpusReader(folder, FileChoice(max_file_mib=1))
    assert [document.id for document in reader] == ["a.md", "7", "z.md"]


def test_a_dictionary_larger_than_memory_is_refused(folder, monkeypatch):
    monkeypatch.setattr(json_lines, "_MAX_XZ_MEMORY", MIB)
    said, _ = leave_out(folder, "rows.jsonl.xz", lzma.compress(FIRST, preset=6))  # asks for 8 MiB
    assert "Memory usage limit exceeded" in said


# ------------------------------------------------------------------------------------------------------------ packing


def test_padded_and_consecutive_streams_of_xz_are_one_file(tmp_path):
    path = tmp_path / "rows.jsonl.xz"
    path.write_bytes(lzma.compress(b"1\n2") + bytes(8) + lzma.compress(b"3\n4\n") + bytes(1 << 17))
    assert list(read_lines(path)) == [(1, b"1\n"), (2, b"23\n"), (3, b"4\n")]


def make_frames():
    """Frames of every form of header and block, and what they unpack to."""
    text = json.dumps(list(range(60_000))).encode()
    zstd = zstandard.ZstdCompressor
    streamed = zstd(write_checksum=True).compressobj()
    return [
        (zstd(write_checksum=True).compress(text + b"\n"), text + b"\n"),
        (b"\x53\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"skip\n", b""),
        (zstd(write_content_size=False).compress(b"short\n"), b"short\n"),
        (streamed.compress(text) + streamed.flush(), text),
        (zstd(level=19).compress(b"x" * 300_000 + b"\n"), b"x" * 300_000 + b"\n"),
        (zstd().compress(b""), b""),
    ]


def test_zstandard_is_read_block_by_block_and_every_cut_is_seen(tmp_path):
    frames = make_frames()
    path, packed = tmp_path / "rows.jsonl.zst", b"".join(frame for frame, _ in frames)
    path.write_bytes(packed)
    assert b"".join(line for _, line in read_lines(path)) == b"".join(text for _, text in frames)
    ends = {sum(len(frame) for frame, _ in frames[:count]) for count in range(len(frames) + 1)}
    near = {end + offset for end in ends for offset in range(-20, 21)} | set(range(0, len(packed), 4999))
    for cut in sorted((near - ends) & set(range(len(packed)))):
        path.write_bytes(packed[:cut])
        with pytest.raises(BadInput, match="damaged"):
            list(read_lines(path))
