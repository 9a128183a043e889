"""Books (.epub), chapter by chapter in reading order."""

from __future__ import annotations

import posixpath
import zipfile
from urllib.parse import unquote

from msgspec import structs

from quaere.search.extracted import FileText, TextBuilder, Unreadable
from quaere.search.formats.archive import open_archive
from quaere.search.formats.text import decode
from quaere.search.pages import read_page
from quaere.search.titles import choose_title

_MAX_HEADING = 80
_PACKAGE = "{http://www.idpf.org/2007/opf}"
_CONTAINER = "{urn:oasis:names:tc:opendocument:xmlns:container}"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"


def read_epub(data: bytes, limit: int) -> FileText:
    """The chapters in the order of the book's spine; chapters that are missing from the file are named as problems."""
    text, problems = TextBuilder(limit), []
    with open_archive(data, limit) as archive:
        title, chapters = _read_package(archive)
        for number, name in enumerate(chapters, start=1):
            try:
                markup, _ = decode(archive.read(name))
            except (KeyError, zipfile.BadZipFile, Unreadable):
                problems.append(f"chapter {number} ({name}) cannot be read")
                continue
            page = read_page(markup)
            # A link leads to a chapter of the same book, which is one document.
            blocks = [structs.replace(block, links=()) for block in page.blocks]
            text.add_blocks(blocks, group=f"chapter {choose_title(page.heading)[:_MAX_HEADING] or number}")
    return text.build(choose_title(title), problems=problems)


def _read_package(archive: zipfile.ZipFile) -> tuple[str, list[str]]:
    """The book's title, and the names of its chapters within the archive."""
    from defusedxml.ElementTree import fromstring

    try:
        container = fromstring(archive.read("META-INF/container.xml"))
        root = next(container.iter(f"{_CONTAINER}rootfile")).attrib["full-path"]
        package = fromstring(archive.read(root))
    except (KeyError, StopIteration, SyntaxError, ValueError) as error:  # a parse error is a SyntaxError
        raise Unreadable("not a readable EPUB file (it has no package document that can be read)") from error
    files = {item.get("id"): item.get("href") or "" for item in package.iter(f"{_PACKAGE}item")}
    spine = [files.get(item.get("idref")) for item in package.iter(f"{_PACKAGE}itemref")]
    folder = posixpath.dirname(root)
    title = next((element.text or "" for element in package.iter(_TITLE)), "")
    names = [posixpath.normpath(posixpath.join(folder, unquote(name))) for name in spine if name]
    return title, list(dict.fromkeys(names))  # once each: a short spine could name a long chapter without end
