"""One file, one document: the title and the text of a Markdown, text, HTML or PDF file.

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
    """What a file holds, and the encoding it was read with.

    FileText(title="The Oss", text="The Oss rises near ...", encoding="utf-8")
    """

    title: str
    text: str
    encoding: str


class Unreadable(Exception):
    """This one file cannot be read as text; the message says why. The corpus leaves it out and reports it."""


def read_file(path: Path) -> FileText:
    """Read a file by its suffix; without a title of its own it is called by its name."""
    title, text, encoding = _READERS[path.suffix.lower()](path.read_bytes())
    return FileText(title=title or _name_as_title(path), text=text, encoding=encoding)


# -------------------------------------------------------------------------------------------------------- plain text

# Longest first: the mark of UTF-16 opens the mark of UTF-32.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode(data: bytes, declared: str | None = None) -> tuple[str, str]:
    """The text and its encoding: a byte-order mark decides, then UTF-8, then what was declared, then Windows-1252.

    Nothing is lost: the five bytes Windows-1252 does not define make it Latin-1, which defines all.

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
            raise Unreadable("holds NUL bytes: not a text file")
        return text, encoding
    raise Unreadable(f"opens with the mark of {marked} but is not {marked}")


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
    # A damaged file makes pypdf fail in many ways (KeyError, RecursionError, ...): whatever it was, this file is out.
    except Exception as error:
        raise Unreadable(f"not a readable PDF ({_one_line(str(error)) or type(error).__name__})") from error
    # A broken font map can yield half of a surrogate pair, which no file could store.
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
    """`old_stone-bridge.txt` is called "old stone bridge"."""
    return _one_line(re.sub(r"[_-]+", " ", path.stem)) or path.name


def _one_line(text: str) -> str:
    return " ".join(text.split())
