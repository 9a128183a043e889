"""Readers of single files: title and text of a Markdown, text, HTML or PDF file.

>>> read_file(Path("rivers.md"))
FileText(title='The Oss', text='# The Oss\n\nThe Oss rises ...', encoding='utf-8')
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from msgspec import Struct

from quaere.errors import ExtraMissing
from quaere.search.pages import read_page


class FileText(Struct, frozen=True):
    """Title and text of a file, and the encoding it was read with.

    FileText(title="The Oss", text="The Oss rises near ...", encoding="utf-8")
    """

    title: str
    text: str
    encoding: str


class Unreadable(Exception):
    """A file cannot be read as text; the message says why. The corpus skips the file and reports it."""


def read_file(path: Path) -> FileText:
    """Title and text of a file, read by its suffix; a file without a title gets one from its name."""
    title, text, encoding = _READERS[path.suffix.lower()](path.read_bytes())
    return FileText(title=title or _name_as_title(path), text=text, encoding=encoding)


# -------------------------------------------------------------------------------------------------------- plain text

# Longest first: the byte-order mark of UTF-32 begins with that of UTF-16.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode(data: bytes, declared: str | None = None) -> tuple[str, str]:
    """The text and its encoding: by byte-order mark, else UTF-8, else the declared encoding, else Windows-1252.

    Every file without a byte-order mark can be decoded: Latin-1 is used if a byte is one of the five that Windows-1252
    does not define.

        >>> decode(b"caf\xe9")
        ('café', 'windows-1252')
    """
    marked = next((encoding for mark, encoding in _BYTE_ORDER_MARKS if data.startswith(mark)), None)
    candidates = (marked,) if marked else ("utf-8", declared or "utf-8", "windows-1252", "latin-1")
    for encoding in candidates:
        try:
            text = data.decode(encoding)
        except (UnicodeError, LookupError):
            continue
        if "\0" in text:
            raise Unreadable("contains NUL bytes, so it is not a text file")
        return text, encoding
    raise Unreadable(f"starts with the byte-order mark of {marked} but is not valid {marked}")


_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]++(.*+)", re.MULTILINE)


def _read_markdown(data: bytes) -> tuple[str, str, str]:
    text, encoding = decode(data)
    heading = _HEADING.search(text)
    return _one_line(heading.group(1).rstrip(" \t#")) if heading else "", text, encoding


def _read_text(data: bytes) -> tuple[str, str, str]:
    text, encoding = decode(data)
    return "", text, encoding


# -------------------------------------------------------------------------------------------------------------- HTML

_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)


def _read_html(data: bytes) -> tuple[str, str, str]:
    declared = _CHARSET.search(data[:4096])
    markup, encoding = decode(data, declared.group(1).decode("ascii", "ignore") if declared else None)
    return *read_page(markup), encoding


# --------------------------------------------------------------------------------------------------------------- PDF


def _read_pdf(data: bytes) -> tuple[str, str, str]:
    try:
        import pypdf
    except ImportError:
        raise ExtraMissing("reading PDF files needs pypdf", extra="pdf") from None
    try:
        reader = pypdf.PdfReader(BytesIO(data))
        text = "\n\n".join(page.extract_text() for page in reader.pages)
        title = str(reader.metadata.title or "") if reader.metadata else ""
    # A damaged file makes pypdf fail with many exception types (KeyError, RecursionError, ...): all mean "skip it".
    except Exception as error:
        raise Unreadable(f"not a readable PDF ({_one_line(str(error)) or type(error).__name__})") from error
    # A broken font map can yield half of a surrogate pair, which cannot be encoded as UTF-8.
    return _one_line(title), text.encode("utf-8", "replace").decode("utf-8"), "pdf"


_READERS: dict[str, Callable[[bytes], tuple[str, str, str]]] = {
    ".md": _read_markdown,
    ".markdown": _read_markdown,
    ".txt": _read_text,
    ".html": _read_html,
    ".htm": _read_html,
    ".pdf": _read_pdf,
}
FILE_SUFFIXES = frozenset(_READERS)


def _name_as_title(path: Path) -> str:
    """The file name as a title: "old stone bridge" for `old_stone-bridge.txt`."""
    return _one_line(re.sub(r"[_-]+", " ", path.stem)) or path.name


def _one_line(text: str) -> str:
    return " ".join(text.split())
