"""Reader of JSON Lines corpora: one JSON object per line, plain or compressed.

{"id": "7", "contents": "\"The Oss\"\nThe Oss rises near Halmgate."}
{"id": "7", "title": "The Oss", "text": "The Oss rises near Halmgate."}
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from io import BufferedIOBase, BufferedReader, RawIOBase
from pathlib import Path
from typing import Any

import msgspec

from quaere.errors import BadInput
from quaere.records.foreign_json import decode_json

_COMPRESSIONS = ("", ".gz", ".zst", ".bz2", ".xz")
ROW_SUFFIXES = tuple(kind + packed for kind in (".jsonl", ".ndjson") for packed in _COMPRESSIONS)


class Row(msgspec.Struct, frozen=True):
    """A document from one line of a JSON Lines file.

    Row(id="7", title="The Oss", text="The Oss rises near Halmgate.", line=12)
    """

    id: str
    title: str
    text: str
    line: int


class _Line(msgspec.Struct):
    """Fields of a line; others are ignored."""

    id: str | int
    title: str | None = None
    text: str | None = None
    contents: str | None = None


def is_rows_file(path: Path) -> bool:
    """True if the file name is that of a JSON Lines file: `is_rows_file(Path("wiki.jsonl.gz"))`."""
    return path.name.lower().endswith(ROW_SUFFIXES)


def read_rows(path: Path, at: Callable[[int], None] = lambda num_bytes: None) -> Iterator[Row]:
    """The rows of a file as a stream; an invalid line raises `BadInput` with its number.

    `at` is called with the number of bytes read so far, of the compressed file.
    """
    for number, line in read_lines(path, at):
        yield _read_row(line, path, number)


def read_lines(path: Path, at: Callable[[int], None] = lambda num_bytes: None) -> Iterator[tuple[int, bytes]]:
    """The lines of a plain or compressed file as a stream, with their numbers; blank lines are skipped."""
    try:
        with path.open("rb") as file, _unpack(path, file) as lines:
            for number, line in enumerate(lines, start=1):
                at(file.tell())
                if number == 1:  # a byte-order mark is not JSON
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if line.strip():
                    yield number, line
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, _zstd_error()) as error:
        raise BadInput(
            f"{path} is damaged: its compressed data is cut short, or the suffix names another compression"
        ) from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from error


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text of `contents`: the first line is the title, with or without double quotes.

    A single line is text without a title.

        >>> split_contents('"The Oss"\nThe Oss rises near Halmgate.')
        ('The Oss', 'The Oss rises near Halmgate.')
    """
    first, newline, rest = contents.partition("\n")
    if not newline:
        return "", contents
    title = first.strip()
    if len(title) >= 2 and title[0] == title[-1] == '"':
        title = title[1:-1]
    return title, rest


def join_contents(title: str, text: str) -> str:
    """The inverse of `split_contents` for a title of one line: `join_contents("A", "b") == '"A"\nb'`."""
    return f'"{title}"\n{text}'


def _read_row(line: bytes, path: Path, number: int) -> Row:
    where = f"{path}, line {number}"
    try:
        fields = decode_json(line, _Line)
    except msgspec.ValidationError as error:
        raise BadInput(f"{where}: not a document: {error}", hint=_SHAPES) from error
    except msgspec.DecodeError as error:
        raise BadInput(f"{where}: not JSON: {error}", hint=_SHAPES) from error
    if fields.text is not None:
        title, text = fields.title or "", fields.text
    elif fields.contents is not None:
        title, text = split_contents(fields.contents)
    else:
        raise BadInput(f'{where}: no "text" and no "contents"', hint=_SHAPES)
    if fields.id == "":
        raise BadInput(f"{where}: the id is empty", hint=_SHAPES)
    # Titles are a single line everywhere, because the wire format puts the title on the first line.
    return Row(id=str(fields.id), title=" ".join(title.split()), text=text, line=number)


_SHAPES = 'each line should be {"id": ..., "title": ..., "text": ...} or {"id": ..., "contents": "TITLE\\nTEXT"}'


def _unpack(path: Path, file: BufferedReader) -> BufferedIOBase:
    """The decompressed content of an open file, by the suffix of its name."""
    match path.suffix.lower():
        case ".gz":
            return gzip.open(file, "rb")
        case ".bz2":
            return bz2.open(file, "rb")
        case ".xz":
            return lzma.open(file, "rb")
        case ".zst":
            return BufferedReader(_ZstdFile(file), buffer_size=1 << 20)
        case _:
            return file


class _ZstdFile(RawIOBase):
    """Decompressor of consecutive zstandard frames. The library's own reader accepts a truncated file as complete."""

    def __init__(self, file: BufferedReader) -> None:
        import zstandard

        self._file = file
        self._library = zstandard.ZstdDecompressor()
        self._frame: Any = None  # the current frame; None between frames
        self._packed = b""
        self._unpacked = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._unpacked and self._unpack_more():
            pass
        count = min(len(buffer), len(self._unpacked))
        buffer[:count] = self._unpacked[:count]
        self._unpacked = self._unpacked[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()

    def _unpack_more(self) -> bool:
        """Decompress the next chunk; False at the end of the file."""
        self._packed = self._packed or self._file.read(1 << 16)
        if not self._packed:
            if self._frame is not None:
                raise EOFError
            return False
        self._frame = self._frame or self._library.decompressobj()
        self._unpacked = memoryview(self._frame.decompress(self._packed))
        self._packed = self._frame.unused_data
        self._frame = None if self._frame.eof else self._frame
        return True


def _zstd_error() -> type[Exception]:
    import zstandard

    error: type[Exception] = zstandard.ZstdError
    return error
