"""Backlinks: which passages of an index link to a document.

graph = LinkGraph(store, folder)
list(graph.links_to("people/venn.html")) -> [Backlink(passage=Passage(...), start=9, end=21, to_part=False)]
"""

import posixpath
import re
from array import array
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

import numpy as np
from msgspec import Struct

from quaere.records import Passage
from quaere.search.files import FILE_SUFFIXES
from quaere.search.sources import FileRecord, read_sources
from quaere.search.store import Store

_LABELLED_SUFFIXES = (".md", ".markdown", ".rst", ".adoc")
# A label that names the place below it, in MyST, reStructuredText or AsciiDoc.
_LABEL = re.compile(
    r"^[ \t]*+(?:\(([\w.:-]++)\)=|\.\. _([^:`\n]++):|\[\[([\w.:-]++)\]\]|\[#([\w.:-]++)\])[ \t\r]*+$", re.MULTILINE
)
_SPACES = str.maketrans(" _", "--")  # wiki pages: "Halm Bridge" is halm-bridge.md
_FOLDER_PAGES = ("index", "readme", "-index")  # names of a folder's own page, after `_SPACES`
_NONE = -1


class Backlink(Struct, frozen=True):
    """A link to a document from a passage: `passage.text[start:end]` is its anchor; `to_part` if it leads to a section.

    Backlink(passage=Passage(..., text="Built by Orsolya Venn."), start=9, end=21, to_part=False)
    """

    passage: Passage
    start: int
    end: int
    to_part: bool


class LinkGraph:
    """The links between the documents of a store in a folder. They are resolved at the first lookup: it takes a moment.

    A link to a file that was left out as a copy of another leads to the other.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self._store, self._folder = store, folder

    def links_to(self, doc_id: str) -> Iterator[Backlink]:
        """The links of other documents to `doc_id`, in document order; anchors split over two passages are left out."""
        number = self._store.find_document(doc_id)
        first, end = np.searchsorted(self._links[:, 0], (number, number + 1)).tolist()
        for _, source, start, stop, to_part in self._links[first:end].tolist():
            if passage := self._store.find_passage(source, start, stop):
                yield Backlink(passage, start - passage.start, stop - passage.start, bool(to_part))

    @cached_property
    def _links(self) -> np.typing.NDArray[np.int64]:
        """Sorted rows of target document, source document, anchor's start and end, and 1 if it leads to a part."""
        if not self._store.has_links:
            return np.empty((0, 5), dtype=np.int64)  # rather than the ids of millions of rows in memory
        targets, rows = _Targets(self._store, self._folder), array("q")
        for source, doc_id in enumerate(self._store.document_ids()):
            for link in self._store.links(source):
                number, to_part = targets.find(doc_id, link.target)
                if number not in (_NONE, source):
                    rows.extend((number, source, link.start, link.end, to_part))
        links = np.array(rows, dtype=np.int64).reshape(-1, 5)
        return links[np.argsort(links[:, 0], kind="stable")]


class _Targets:
    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._by_id: dict[str, int] = {}
        self._by_key: dict[str, int] = {}  # for links with other capitals, without a suffix, or to a folder
        self._by_name: dict[str, int] = {}  # documents by file name, in any folder
        for number, doc_id in enumerate(store.document_ids()):
            self._add(doc_id, number)
        for record in read_sources(folder):
            if isinstance(record, FileRecord) and record.copy_of and record.copy_of in self._by_id:
                self._add(record.id, self._by_id[record.copy_of])

    def _add(self, doc_id: str, number: int) -> None:
        self._by_id.setdefault(doc_id, number)
        key = _key(doc_id)
        self._by_key.setdefault(key, number)
        name = posixpath.basename(key)
        self._by_name[name] = number if self._by_name.get(name, number) == number else _NONE

    def find(self, doc_id: str, target: str) -> tuple[int, bool]:
        """Resolve a link of document `doc_id`, by path, else by label, else by file name.

        Returns the number of the target document, `_NONE` if there is none, and whether the link leads to a part of it.
        """
        written, _, fragment = target.partition("#")
        written = unquote(written)
        path = _resolve(doc_id, written)
        if path is None:
            return _NONE, False
        number = self._by_id.get(path, self._by_key.get(_key(path)))
        if number is not None or "/" in written:
            return (_NONE if number is None else number), bool(fragment)
        name = written.casefold()
        return self._labels.get(name, (self._by_name.get(name.translate(_SPACES), _NONE), bool(fragment)))

    @cached_property
    def _labels(self) -> dict[str, tuple[int, bool]]:
        """Per label its document's number, and whether it means a part; a document's first label means all of it."""
        found: dict[str, tuple[int, bool]] = {}
        for doc_id, number in self._by_id.items():
            if doc_id.lower().endswith(_LABELLED_SUFFIXES):
                for place, label in enumerate(_LABEL.finditer(self._store.read_text(number))):
                    found.setdefault(label[label.lastindex or 0].casefold(), (number, place > 0))
        return found


def _resolve(doc_id: str, target: str) -> str | None:
    """The path of a link's target relative to the corpus; None if it is outside of the corpus.

    _resolve("guide/walks.md", "../people/venn.md") == _resolve("guide/walks.md", "/people/venn.md") == "people/venn.md"
    """
    # A path that begins with / is relative to the root of the corpus, as on a web site.
    folder = "" if target.startswith("/") else posixpath.dirname(doc_id)
    path = posixpath.normpath(posixpath.join(folder, target.lstrip("/")))
    return None if path.partition("/")[0] == ".." else "" if path == "." else path


def _key(path: str) -> str:
    """The path in a form that is equal for equivalent paths: `_key("Guide/README.md") == _key("guide/") == "guide"`."""
    key = path.casefold().rstrip("/").translate(_SPACES)
    stem, suffix = posixpath.splitext(key)
    key = stem if suffix in FILE_SUFFIXES else key
    folder, _, name = key.rpartition("/")
    return folder if name in _FOLDER_PAGES else key
