"""Formats that are ZIP archives of XML (.docx, .pptx, .xlsx, .epub): opened only if what they unpack to is bounded."""

from __future__ import annotations

import copy
import zipfile
import zlib
from io import BytesIO

from quaere.search.extracted import Unreadable

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
