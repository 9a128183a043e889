"""The content of plain and compressed files as a stream, in bounded memory whatever it unpacks to.

with path.open("rb") as file, unpack(path, file) as content:
    content.readline(1 << 20)
"""

from __future__ import annotations

import bz2
import copy
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from io import BufferedIOBase, BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from typing import Any

from quaere.search.extracted import Unreadable

COMPRESSIONS = ("", ".gz", ".zst", ".bz2", ".xz")


class BadZstd(Exception):
    """Damaged Zstandard data; the library has an exception of its own, but is only loaded for such files."""


DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, BadZstd)

_CHUNK = 1 << 16
_MAX_XZ_MEMORY = 256 << 20  # `xz -9` needs 65 MiB; a file may ask for 4 GiB. Zstandard's own limit is 128 MiB.
_SKIPPABLE, _RUN_LENGTH, _CHECKSUM = b"\x2a\x4d\x18", 1, 4


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
            return BufferedReader(_ChunkFile(_name_damage(_unpack_zstd(file))), buffer_size=1 << 20)
        case _:
            return file


class _ChunkFile(RawIOBase):
    """A file made of chunks, each of which is asked for when the one before it has been read."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._chunk:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._chunk = memoryview(chunk)
        count = min(len(buffer), len(self._chunk))
        buffer[:count] = self._chunk[:count]
        self._chunk = self._chunk[count:]
        return count


def _unpack_xz(file: BufferedReader) -> Iterator[bytes]:
    """Chunks of consecutive streams. The library's own file has no limit for the dictionary that a stream asks for."""
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


def _name_damage(chunks: Iterator[bytes]) -> Iterator[bytes]:
    import zstandard

    try:
        yield from chunks
    except zstandard.ZstdError as error:
        raise BadZstd(str(error)) from error


def _unpack_zstd(file: BufferedReader) -> Iterator[bytes]:
    """Chunks of consecutive frames, block by block (RFC 8878): a block unpacks to at most 128 KiB.

    The library's objects unpack all they are given, of which 64 KiB may be 2 GiB, and its reader, which does not,
    accepts a truncated file as complete.
    """
    import zstandard

    while magic := file.read(4):
        if magic[1:] == _SKIPPABLE and magic[0] >> 4 == 5:
            _skip(file, int.from_bytes(_read(file, 4), "little"))
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
            block = start + _read(file, 1 if kind == _RUN_LENGTH else size)
            if is_last and header[4] & _CHECKSUM:
                block += _read(file, 4)
            yield frame.decompress(block)
        if not frame.eof:
            raise BadZstd("a frame does not end where it says")


def _read(file: BufferedReader, size: int) -> bytes:
    """Exactly `size` bytes."""
    data = file.read(size)
    if len(data) < size:
        raise EOFError("the last frame is cut short")
    return data


def _skip(file: BufferedReader, size: int) -> None:
    while size > 0:
        size -= len(_read(file, min(size, _CHUNK)))


# --------------------------------------------------------------------------------------------------------- ZIP archives


_MAX_MEMBERS = 20_000
_MEDIA_FACTOR = 4  # pictures and films are held in memory, XML becomes a tree of ten times its size
_XML = (".xml", ".rels", ".xhtml", ".html", ".htm", ".opf", ".ncx", ".svg", ".vml")
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def open_archive(data: bytes, limit: int) -> zipfile.ZipFile:
    """The archive; `Unreadable` if it is none, is encrypted, or unpacks to more than it may."""
    if data.startswith(_OLE):
        raise Unreadable("encrypted, or in the format of Office before 2007")
    try:
        archive = zipfile.ZipFile(BytesIO(data))
        _check_sizes(archive, limit)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise Unreadable(f"damaged: not the ZIP archive that such a file is ({error})") from error
    return archive


def _check_sizes(archive: zipfile.ZipFile, limit: int) -> None:
    """Refuse what unpacks to more than it may, by the sizes it declares and by those it has."""
    members = archive.infolist()
    if len(members) > _MAX_MEMBERS:
        raise Unreadable(f"holds more than {_MAX_MEMBERS} files")
    if any(member.flag_bits & 1 for member in members):
        raise Unreadable("encrypted")
    xml = sum(member.file_size for member in members if member.filename.lower().endswith(_XML))
    if xml > limit or sum(member.file_size for member in members) > _MEDIA_FACTOR * limit:
        raise Unreadable(f"unpacks to more than {limit >> 20} MiB")
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise Unreadable("packed in a way that such a file is not")
    for member in members:
        # `ZipFile.read` unpacks a member whole, up to 2 GiB, and only then cuts it to the size that was declared.
        probe = copy.copy(member)
        probe.file_size += 1
        probe.CRC = None  # type: ignore[assignment]  # of what was declared, not of what is there
        with archive.open(probe) as file:
            unpacked = sum(len(chunk) for chunk in iter(lambda: file.read(1 << 16), b""))
        if unpacked > member.file_size:
            raise Unreadable("unpacks to more than it declares")
