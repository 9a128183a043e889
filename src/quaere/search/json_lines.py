"""Reader of JSON Lines corpora: one JSON object per line, plain or compressed.

{"id": "7", "contents": "\"The Oss\"\nThe Oss rises near Halmgate."}
{"id": "7", "title": "The Oss", "text": "The Oss rises near Halmgate."}
"""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from io import BufferedIOBase, BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from quaere.errors import BadInput
from quaere.records.foreign_json import decode_json

T = TypeVar("T")

COMPRESSIONS = ("", ".gz", ".zst", ".bz2", ".xz")
ROW_SUFFIXES = tuple(kind + packed for kind in (".jsonl", ".ndjson") for packed in COMPRESSIONS)
MAX_LINE_BYTES = 64 << 20
MAX_RATIO = 200  # unpacked bytes per byte of the file, besides one longest line; text has 3 to 20


def check_plain(*paths: Path | None) -> None:
    """Raise `BadInput` for a file named as if it were compressed: plain text is written, and readers trust the name."""
    for path in filter(None, paths):
        if path.suffix.lower() in (*filter(None, COMPRESSIONS), ".parquet"):
            raise BadInput(f"{path}: plain text is written, not {path.suffix}", hint=f"name it without {path.suffix}")


class BadZstd(Exception):
    """Damaged Zstandard data; used instead of the library's own exception, whose import would load the library."""


DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, BadZstd)

_CHUNK = 1 << 16
_MAX_XZ_MEMORY = 256 << 20  # `xz -9` needs 65 MiB; a file may ask for 4 GiB. Zstandard's own limit is 128 MiB.
_SKIPPABLE, _RUN_LENGTH, _CHECKSUM = b"\x2a\x4d\x18", 1, 4


class BadLines(BadInput):
    """Error for a file with an invalid line. `reason` is the message without the name of the file.

    BadLines(Path("wiki.jsonl"), "the id is empty", line=7).reason == "line 7: the id is empty"
    """

    def __init__(self, path: Path, reason: str, *, line: int = 0, hint: str = "") -> None:
        super().__init__(f"{path}, line {line}: {reason}" if line else f"{path}: {reason}", hint=hint)
        self.reason = f"line {line}: {reason}" if line else reason


class Row(msgspec.Struct, frozen=True):
    """A document from one line of a JSON Lines file.

    Row(id="7", title="The Oss", text="The Oss rises near Halmgate.", line=12)
    """

    id: str
    title: str
    text: str
    line: int


class _Line(msgspec.Struct):
    """The known fields of a JSON line; other fields are ignored. `docid` is BrowseComp-Plus's name for the id."""

    id: str | int | msgspec.UnsetType = msgspec.UNSET
    docid: str | int | msgspec.UnsetType = msgspec.UNSET
    title: str | None = None
    text: str | None = None
    contents: str | None = None


def is_rows_file(path: Path) -> bool:
    """True if the file name is that of a JSON Lines file: `is_rows_file(Path("wiki.jsonl.gz"))`."""
    return path.name.lower().endswith(ROW_SUFFIXES)


def read_rows(
    path: Path, at: Callable[[int], None] = lambda num_bytes: None, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[Row]:
    """The rows of a file as a stream; an invalid line raises `BadLines` with its number.

    `at` is called with the number of bytes read so far, of the compressed file.
    """
    for number, line in read_lines(path, at, max_line_bytes, "a line is one document; --max-file-mib N allows N MiB"):
        yield _read_row(line, path, number)


def read_lines(
    path: Path,
    at: Callable[[int], None] = lambda num_bytes: None,
    max_line_bytes: int = MAX_LINE_BYTES,
    hint: str = "write one JSON object per line",
) -> Iterator[tuple[int, bytes]]:
    """The lines of a plain or compressed file as a stream, with their numbers; blank lines are skipped.

    Only one line is in memory at a time. A line longer than `max_line_bytes` raises `BadLines` with this `hint`.
    """
    number = num_unpacked = 0
    try:
        with path.open("rb") as file, unpack(path, file) as lines:
            while line := lines.readline(max_line_bytes + 2):
                number, num_unpacked = number + 1, num_unpacked + len(line)
                num_packed = file.tell()
                at(num_packed)
                if len(line.rstrip(b"\r\n")) > max_line_bytes:
                    raise BadLines(path, f"longer than {max_line_bytes >> 20} MiB", line=number, hint=hint)
                if num_unpacked > max_line_bytes + MAX_RATIO * num_packed:
                    reason = f"unpacks to more than {MAX_RATIO} times its size"
                    raise BadLines(path, reason, line=number, hint="unpack the file first if that is right")
                line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line  # a byte-order mark is not JSON
                if line.strip():
                    yield number, line
    except DAMAGED as error:
        said = " ".join(str(error).split())
        damage = "damaged: its compressed data is cut short, or the suffix names another compression"
        raise BadLines(path, damage + (f" ({said})" if said else "")) from error
    except OSError as error:
        raise BadLines(path, f"cannot be read: {error.strerror or error}") from error


def decode_lines(path: Path, kind: type[T], *, what: str = "", hint: str = "") -> Iterator[tuple[int, T]]:
    """The lines of a file as records, with their numbers; an invalid line raises `BadLines`: "not WHAT: ..." """
    for number, line in read_lines(path):
        try:
            row = decode_json(line, kind)
        except msgspec.DecodeError as error:
            raise BadLines(path, f"not {what}: {error}" if what else str(error), line=number, hint=hint) from error
        yield number, row


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
    is_quoted = len(title) >= 2 and title[0] == title[-1] == '"'
    return title[1:-1] if is_quoted else title, rest


def join_contents(title: str, text: str) -> str:
    """The inverse of `split_contents` for a title of one line: `join_contents("A", "b") == '"A"\nb'`."""
    return f'"{title}"\n{text}'


def _read_row(line: bytes, path: Path, number: int) -> Row:
    try:
        fields = decode_json(line, _Line)
    except msgspec.ValidationError as error:
        raise BadLines(path, f"not a document: {error}", line=number, hint=_SHAPES) from error
    except msgspec.DecodeError as error:
        raise BadLines(path, f"not JSON: {error}", line=number, hint=_SHAPES) from error
    if fields.text is not None:
        title, text = fields.title or "", fields.text
    elif fields.contents is not None:
        title, text = split_contents(fields.contents)
    else:
        raise BadLines(path, 'no "text" and no "contents"', line=number, hint=_SHAPES)
    name = fields.docid if fields.id is msgspec.UNSET else fields.id
    if name is msgspec.UNSET:
        raise BadLines(path, "not a document: Object missing required field `id`", line=number, hint=_SHAPES)
    if name == "":
        raise BadLines(path, "the id is empty", line=number, hint=_SHAPES)
    # Titles are a single line everywhere, because the wire format puts the title on the first line.
    return Row(id=str(name), title=" ".join(title.split()), text=text, line=number)


_SHAPES = 'each line should be {"id": ..., "title": ..., "text": ...} or {"id": ..., "contents": "TITLE\\nTEXT"}'


# ----------------------------------------------------------------------------------------------------- compressed files


def unpack(path: Path, file: BufferedReader) -> BufferedIOBase:
    """The decompressed content of an open file, by the suffix of its name. Damage raises one of `DAMAGED`."""
    match path.suffix.lower():
        case ".gz":
            return gzip.open(file, "rb")
        case ".bz2":
            return bz2.open(file, "rb")
        case ".xz":
            return BufferedReader(_ChunkFile(_unpack_xz(file)), buffer_size=1 << 20)
        case ".zst":
            return BufferedReader(_ChunkFile(_unpack_zstd(file)), buffer_size=1 << 20)
        case _:
            return file


class _ChunkFile(RawIOBase):
    """A file object over an iterator of byte chunks; each chunk is fetched when the one before it has been read."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._chunk:
            self._chunk = memoryview(next(filter(None, self._chunks), b""))
        count = min(len(buffer), len(self._chunk))
        buffer[:count] = self._chunk[:count]
        self._chunk = self._chunk[count:]
        return count


def _unpack_xz(file: BufferedReader) -> Iterator[bytes]:
    """The decompressed chunks of an .xz file, with a memory limit, which Python's `LZMAFile` does not offer."""
    packed = file.read(_CHUNK)
    if not packed:
        raise EOFError("the file is empty")
    while packed:
        stream = lzma.LZMADecompressor(memlimit=_MAX_XZ_MEMORY)
        while not stream.eof:
            if stream.needs_input and not packed:
                packed = file.read(_CHUNK)
                if not packed:
                    raise EOFError("the last stream is cut short")
            yield stream.decompress(packed, _CHUNK)
            packed = b""
        packed = stream.unused_data.lstrip(b"\0")
        while not packed and (more := file.read(_CHUNK)):  # zeros may pad the end of a stream
            packed = more.lstrip(b"\0")


def _unpack_zstd(file: BufferedReader) -> Iterator[bytes]:
    """The decompressed chunks of a .zst file, block by block (RFC 8878): a block unpacks to at most 128 KiB.

    The library's decompressors unpack their whole input at once, 2 GiB from 64 KiB at worst; its stream reader does
    not, but accepts a truncated file as complete.
    """
    import zstandard

    try:
        while magic := file.read(4):
            if magic[1:] == _SKIPPABLE and magic[0] >> 4 == 5:
                size = int.from_bytes(_read(file, 4), "little")
                while size > 0:
                    size -= len(_read(file, min(size, _CHUNK)))
                continue
            header = magic + _read(file, 1)
            header += _read(file, zstandard.frame_header_size(header + bytes(18)) - len(header))
            frame = zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(header)
            is_last = False
            while not is_last:
                start = _read(file, 3)
                bits = int.from_bytes(start, "little")
                is_last, kind, size = bool(bits & 1), bits >> 1 & 3, bits >> 3
                if kind != _RUN_LENGTH and size > 128 << 10:
                    raise BadZstd("a block is larger than the format allows")
                num_after = 4 if is_last and header[4] & _CHECKSUM else 0
                yield frame.decompress(start + _read(file, (1 if kind == _RUN_LENGTH else size) + num_after))
            if not frame.eof:
                raise BadZstd("a frame does not end where it says")
    except zstandard.ZstdError as error:
        raise BadZstd(str(error)) from error


def _read(file: BufferedReader, size: int) -> bytes:
    """Read exactly `size` bytes; raises `EOFError` if the file has fewer left."""
    data = file.read(size)
    if len(data) < size:
        raise EOFError("the last frame is cut short")
    return data
