"""One file, one document: the title, the text and the parts of a file, by its suffix.

>>> read_file(Path("rivers.md"))
FileText(title='The Oss', text='# The Oss\n\nThe Oss rises ...', encoding='utf-8')
"""

import re
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from quaere.errors import ExtraMissing
from quaere.search.extracted import FileText, Unreadable, storable_text
from quaere.search.formats.office import read_docx, read_pptx, read_xlsx
from quaere.search.formats.pdf import read_pdf
from quaere.search.formats.text import read_adoc, read_csv, read_ipynb, read_markdown, read_rst, read_text
from quaere.search.formats.web import read_eml, read_epub, read_html

MAX_FILE_MIB = 64
_READERS: dict[str, Callable[[bytes, int], FileText]] = {
    ".adoc": read_adoc,
    ".csv": read_csv,
    ".docx": read_docx,
    ".eml": read_eml,
    ".epub": read_epub,
    ".htm": read_html,
    ".html": read_html,
    ".ipynb": read_ipynb,
    ".markdown": read_markdown,
    ".md": read_markdown,
    ".pdf": read_pdf,
    ".pptx": read_pptx,
    ".rst": read_rst,
    ".tsv": read_csv,
    ".txt": read_text,
    ".xlsx": read_xlsx,
}
FILE_SUFFIXES = frozenset(_READERS)


def read_file(path: Path, limit: int = MAX_FILE_MIB << 20) -> FileText:
    """Read a file by its suffix; if its content has no title, the title is made from the file name.

    `limit` is how many bytes it may unpack to and how many characters its text may have. Raises `Unreadable` or an
    `OSError` if the file cannot be read, and `ExtraMissing` if the library for its format is not installed.
    """
    return parse_file(path, path.read_bytes(), limit)


def parse_file(path: Path, data: bytes, limit: int) -> FileText:
    """The text of a file whose bytes have been read."""
    suffix = path.suffix.lower()
    try:
        found = _READERS[suffix](data, limit)
    except (Unreadable, ExtraMissing):
        raise
    # A damaged file makes libraries fail in many ways (KeyError, RecursionError, ...): any failure excludes the file.
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise Unreadable(f"not a readable {suffix[1:].upper()} file ({reason})") from error
    named = " ".join(re.sub(r"[_-]+", " ", path.stem).split()) or path.name  # "old stone bridge": old_stone-bridge.txt
    title = storable_text(found.title) or named
    return structs.replace(found, title=f"{title} ({', '.join(found.columns)})" if found.columns else title)
