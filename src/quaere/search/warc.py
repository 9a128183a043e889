"""Records of the web archive format, WARC 1.1 (ISO 28500), each compressed on its own, with a digest of its content.

    stream.write(pack_record("resource", "urn:quaere:search:5f2c", "application/json", b"{}"))
    for record in read_records(stream):
        record.kind, record.uri, record.content

A file of such records can be appended to, read from any of them, and opened with other programs for web archives.
"""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import BinaryIO
from uuid import uuid4

from msgspec import Struct

MAX_BYTES = 64 << 20  # of one record, unpacked
_CHUNK = 1 << 16
_VERSION = b"WARC/1.1"
_PACKED = b"\x1f\x8b\x08"  # the first bytes of what gzip packed


class BadRecord(Exception):
    """Raised for a record that is damaged or too large; `is_torn` if the file ends within it."""

    def __init__(self, offset: int, *, is_torn: bool = False) -> None:
        super().__init__(f"the record at byte {offset} {'is not complete' if is_torn else 'is damaged'}")
        self.offset, self.is_torn = offset, is_torn


class WarcRecord(Struct, frozen=True):
    """A record, and the byte of the file it begins at.

    WarcRecord(offset=412, kind="resource", uri="urn:quaere:search:5f2c", content=b"{}")
    """

    offset: int
    kind: str
    uri: str
    content: bytes


def pack_record(kind: str, uri: str, content_type: str, content: bytes) -> bytes:
    """A record as the bytes to append to a file; `uri` may be "" for a description of the file."""
    headers = {
        "WARC-Type": kind,
        "WARC-Record-ID": f"<urn:uuid:{uuid4()}>",
        "WARC-Date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **({"WARC-Target-URI": uri} if uri else {}),
        "WARC-Block-Digest": _digest(content),
        "Content-Type": content_type,
        "Content-Length": str(len(content)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return gzip.compress(_VERSION + b"\r\n" + head.encode() + b"\r\n" + content + b"\r\n\r\n", mtime=0)


def read_records(stream: BinaryIO) -> Iterator[WarcRecord]:
    """The records from the stream's position to its end; raises `BadRecord` at one that cannot be read."""
    while (record := read_record(stream)) is not None:
        yield record


def read_record(stream: BinaryIO) -> WarcRecord | None:
    """The record at the stream's position, which is then moved to the next one; None at the end of the file."""
    offset, data, unpacker = stream.tell(), bytearray(), zlib.decompressobj(zlib.MAX_WBITS | 16)
    while not unpacker.eof:
        chunk = stream.read(_CHUNK)
        if not chunk and stream.tell() == offset:
            return None
        if not chunk:
            raise BadRecord(offset, is_torn=True)
        try:
            data += unpacker.decompress(chunk, MAX_BYTES + 1 - len(data))
        except zlib.error as error:
            raise BadRecord(offset) from error
        if len(data) > MAX_BYTES or unpacker.unconsumed_tail:
            raise BadRecord(offset)
    stream.seek(-len(unpacker.unused_data), 1)
    return _parse(bytes(data), offset)


def has_record_after(stream: BinaryIO, offset: int) -> bool:
    """True if a whole record begins after this byte: a file that seems to end within a record is damaged there."""
    stream.seek(offset)
    rest = stream.read()
    at = 0
    while (at := rest.find(_PACKED, at + 1)) > 0:
        stream.seek(offset + at)
        with suppress(BadRecord):
            return read_record(stream) is not None
    return False


def _parse(data: bytes, offset: int) -> WarcRecord:
    head, _, rest = data.partition(b"\r\n\r\n")
    version, *lines = head.split(b"\r\n")
    fields = (line.decode("utf-8", "replace").partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    length = headers.get("content-length", "")
    content = rest[: int(length)] if length.isascii() and length.isdecimal() and len(length) < 12 else b""
    if version != _VERSION or length != str(len(content)) or headers.get("warc-block-digest") != _digest(content):
        raise BadRecord(offset)
    return WarcRecord(offset, headers.get("warc-type", ""), headers.get("warc-target-uri", ""), content)


def _digest(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"
