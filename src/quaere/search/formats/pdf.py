"""PDF, page by page, through pypdf."""

import logging
import re
import time
import unicodedata
from collections.abc import Callable
from io import BytesIO

from quaere.errors import import_extra
from quaere.search.extracted import FileText, TextBuilder, Unreadable, choose_title, name_some

_MAX_PAGES = 20_000
# CPU time. Pages and forms can share one long stream, and pypdf bounds the work for a page, not for a file.
_SECONDS, _SECONDS_PER_MIB = 20, 60

_LIGATURES = str.maketrans({code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)})
_SOFT_BREAK = re.compile("\u00ad[ \t]*+\r?\n[ \t]*+")


def read_pdf(data: bytes, limit: int) -> FileText:
    """The text of every page; pages that cannot be read or have no text are listed in `problems`.

    Raises `Unreadable` if reading takes more CPU time than a limit that grows with the file's size.
    """
    pypdf = import_extra("pypdf", ".pdf files need pypdf", extra="pdf")
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # a warning for every slip of the program that wrote the file
    reader = pypdf.PdfReader(BytesIO(data))
    num_pages = len(reader.pages)
    if num_pages > _MAX_PAGES:
        raise Unreadable(f"has more than {_MAX_PAGES} pages")
    text, failed, empty = TextBuilder(limit), [], []
    check_time = _limit_time(_SECONDS + (_SECONDS_PER_MIB * len(data) >> 20))
    for number in range(1, num_pages + 1):
        check_time()
        try:
            page = reader.pages[number - 1].extract_text(visitor_operand_before=check_time)
        except Unreadable:
            raise
        # A damaged page makes pypdf fail in many ways (KeyError, RecursionError, ...): any failure skips the page.
        except Exception:
            failed.append(number)
            continue
        if not page.strip():
            empty.append(number)
        text.add(_write_letters(page), group=f"page {number}")
    if failed and len(failed) + len(empty) == num_pages:
        raise Unreadable("not a readable PDF file (no page of it can be read)")
    kinds = ((failed, "cannot be read"), (empty, "without text (an image? then it needs OCR)"))
    problems = [f"page{'s' * (len(pages) > 1)} {name_some(pages)} {what}" for pages, what in kinds if pages]
    return text.build(choose_title(_find_title(reader)), problems=problems)


def _write_letters(page: str) -> str:
    """The text with the letters of ligatures, and words whole that a soft hyphen breaks at the end of a line.

    Elsewhere a soft hyphen is visible in a PDF: many fonts have it for the hyphen. A hyphen that ends a line stays, for
    it may be part of its word.
    """
    return _SOFT_BREAK.sub("", page.translate(_LIGATURES)).replace("\u00ad", "-")


def _limit_time(seconds: int) -> Callable[..., None]:
    """A function that raises `Unreadable` once `seconds` of CPU time have passed; pypdf calls it at every operator."""
    end = time.process_time() + seconds

    def check(*_: object) -> None:
        if time.process_time() > end:
            raise Unreadable(f"takes more than {seconds} s to read, which is too long for its size")

    return check


def _find_title(reader: object) -> str:
    """The title in the file's metadata; "" if there is none or the metadata is damaged."""
    try:
        return str(reader.metadata.title or "")  # type: ignore[attr-defined]
    except Exception:
        return ""
