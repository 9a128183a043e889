"""Documents of an index, with one sentence marked.

show_document(text, DocumentQuery(id="halm.md", start=118, end=163)).parts[1] ->
TextPart("Orsolya Venn built it.", is_quoted=True)

A document is found by its id in an index that the viewer was given or that a run names, never by a path.
"""

from collections.abc import Callable
from urllib.parse import urlencode

from msgspec import Struct

from quaere.api.run import Run, open_documents
from quaere.errors import BadInput
from quaere.records import Evidence, Passage
from quaere.search.index import Index
from quaere.viewer.run_folder import NotShown, require

WINDOW_CHARS = 20_000  # characters of a document that one page shows


class TextPart(Struct, frozen=True):
    """A piece of a passage; `is_quoted` marks the span that the episode ended with.

    TextPart("Orsolya Venn built it.", is_quoted=True)
    """

    text: str
    is_quoted: bool = False


def mark_part(text: str, start: int, end: int) -> list[TextPart]:
    """The text in up to three pieces, of which text[start:end] is marked; empty pieces are left out.

    mark_part("Venn built it.", 5, 13) ==
    [TextPart("Venn "), TextPart("built it", is_quoted=True), TextPart(".")]
    """
    parts = [TextPart(text[:start]), TextPart(text[start:end], is_quoted=True), TextPart(text[end:])]
    return [part for part in parts if part.text]


class DocumentQuery(Struct, frozen=True):
    """A document by its id, the characters to mark, and the first one to show (by default well before the mark).

    DocumentQuery(id="halm.md", start=118, end=163)
    """

    id: str = ""
    start: int = 0
    end: int = 0
    at: int | None = None


class DocumentPage(Struct, frozen=True):
    """A document, or the part of it around the mark; `before` and `after` are where other parts begin, None for none.

    `run` is the run whose index has the document; "" for the index of the page Ask. `said` is a note about that index.
    """

    run: str
    query: DocumentQuery
    index: str
    num_chars: int
    first: int
    parts: list[TextPart]
    before: int | None
    after: int | None
    said: str = ""


def read_document(index: Index | None, query: DocumentQuery) -> DocumentPage:
    """The page of a document of the index that the page Ask searches; `NotShown` if the document is not available."""
    said = "the documents are not here: they are behind a search server"
    index = require(index, said, "see the passages of a step")
    try:
        text = index.document(query.id)
    except BadInput as error:
        raise NotShown(f"{index.path} has no document {query.id}", hint="it may have been removed") from error
    return show_document(text, query, index=str(index.path))


def read_run_document(run: Run, name: str, query: DocumentQuery) -> DocumentPage:
    """The page of a document of the index that a run names; `NotShown` if the document is not available."""
    documents = open_documents(run)
    said, hint = f"run {name} has no document {query.id}", documents.said or "it may have been removed"
    index, text = require(documents.index, said, hint), require(documents.read(query.id), said, hint)
    return show_document(text, query, index=str(index.path), run=name, said=documents.said)


def show_document(text: str, query: DocumentQuery, *, index: str = "", run: str = "", said: str = "") -> DocumentPage:
    """The part of a document that a query asks for, with its span marked."""
    size = len(text)
    start = min(max(0, query.start), size)
    first = min(max(0, start - WINDOW_CHARS // 2 if query.at is None else query.at), size)
    last = min(size, first + WINDOW_CHARS)
    return DocumentPage(
        run=run,
        query=query,
        index=index,
        num_chars=size,
        first=first,
        parts=mark_part(text[first:last], max(0, start - first), max(0, start - first, query.end - first)),
        before=max(0, first - WINDOW_CHARS) if first else None,
        after=last if last < size else None,
        said=said,
    )


def document_address(read_document: Callable[[str], str], base: str, found: Evidence) -> str:
    """The address of a document with a span marked, which a browser scrolls to.

    "/document?id=halm.md&start=118&end=163#span"; "" if the document does not exist or has another text at this place.
    """
    if not found.text or read_document(found.doc_id)[found.start : found.end] != found.text:
        return ""
    query = urlencode({"id": found.doc_id, "start": found.start, "end": found.end}, errors="replace")
    return f"{base}?{query}#span"


def place_of(passage: Passage) -> Evidence:
    """The place of a passage in its document; it ends where the shown text ends, if the passage was shortened."""
    return Evidence(passage.doc_id, passage.start, passage.start + len(passage.text), passage.text)
