"""Reader of JSON Lines corpora: one JSON object per line, plain or compressed.

{"id": "7", "contents": "\"The Oss\"\nThe Oss rises near Halmgate."}
{"id": "7", "title": "The Oss", "text": "The Oss rises near Halmgate."}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from quaere.errors import BadInput
from quaere.records.foreign_json import decode_json
from quaere.search.packed_files import COMPRESSIONS, DAMAGED, unpack

T = TypeVar("T")

ROW_SUFFIXES = tuple(kind + packed for kind in (".jsonl", ".ndjson") for packed in COMPRESSIONS)
MAX_LINE_BYTES = 64 << 20
MAX_RATIO = 200  # of unpacked bytes to those of the file, beside one line; text has 3 to 20


class BadLines(BadInput):
    """A file of lines that cannot be read. `reason` is the message without the name of the file.

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
    """Fields of a line; others are ignored."""

    id: str | int
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

    Memory for one line is needed, however much the file unpacks to. `hint` says what to do about one that is too long.
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
                if number == 1:  # a byte-order mark is not JSON
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if line.strip():
                    yield number, line
    except DAMAGED as error:
        said = " ".join(str(error).split())
        raise BadLines(
            path,
            "damaged: its compressed data is cut short, or the suffix names another compression"
            + (f" ({said})" if said else ""),
        ) from error
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
    if len(title) >= 2 and title[0] == title[-1] == '"':
        title = title[1:-1]
    return title, rest


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
    if fields.id == "":
        raise BadLines(path, "the id is empty", line=number, hint=_SHAPES)
    # Titles are a single line everywhere, because the wire format puts the title on the first line.
    return Row(id=str(fields.id), title=" ".join(title.split()), text=text, line=number)


_SHAPES = 'each line should be {"id": ..., "title": ..., "text": ...} or {"id": ..., "contents": "TITLE\\nTEXT"}'
