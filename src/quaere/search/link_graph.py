"""Which passages link to a document: the hyperlinks of an index, resolved and turned round.

graph = LinkGraph(store)
list(graph.links_to("people/venn.html")) -> [Backlink(passage=Passage(...), start=9, end=21)]
"""

from __future__ import annotations

import posixpath
import re
from array import array
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from quaere.records import Passage
from quaere.search.files import FILE_SUFFIXES
from quaere.search.store import Store

_LABELLED_SUFFIXES = (".md", ".markdown", ".rst", ".adoc")
# A name that a text gives to the place below: MyST's, reStructuredText's, AsciiDoc's.
_LABEL = re.compile(
    r"^[ \t]*+(?:\(([\w.:-]++)\)=|\.\. _([^:`\n]++):|\[\[([\w.:-]++)\]\]|\[#([\w.:-]++)\])[ \t\r]*+$", re.MULTILINE
)
_FOLDER_PAGES = ("index", "readme", "_index")  # the page that a folder is called by
_SPACES = str.maketrans(" _", "--")  # wiki pages: "Halm Bridge" is halm-bridge.md
_SEVERAL = -1


class Backlink(Struct, frozen=True):
    """The anchor `passage.text[start:end]` of a link.

    Backlink(passage=Passage(..., text="Built by Orsolya Venn."), start=9, end=21)
    """

    passage: Passage
    start: int
    end: int


class LinkGraph:
    """The links between the documents of a store; resolved at the first question, which takes a moment."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def links_to(self, doc_id: str) -> Iterator[Backlink]:
        """The links of other documents to this one, in order; those whose anchor is not whole in a passage excepted."""
        number = self._store.find_document(doc_id)
        first, end = np.searchsorted(self._links[:, 0], (number, number + 1)).tolist()
        for _, source, start, stop in self._links[first:end].tolist():
            passage = self._store.find_passage(source, start, stop)
            if passage:
                yield Backlink(passage, start - passage.start, stop - passage.start)

    @cached_property
    def _links(self) -> NDArray[np.int64]:
        """Per link the document it leads to, its own document, and its start and end there; sorted by the first."""
        targets, rows = _Targets(self._store), array("q")
        for source, doc_id in enumerate(self._store.document_ids()):
            for link in self._store.links(source):
                number = targets.find(doc_id, link.target)
                if number not in (None, source):
                    rows.extend((number, source, link.start, link.end))
        links = np.array(rows, dtype=np.int64).reshape(-1, 4)
        return links[np.argsort(links[:, 0], kind="stable")]


class _Targets:
    """Finds the document that a link of another one leads to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_id: dict[str, int] = {}
        self._by_key: dict[str, int] = {}  # for links with other capitals, without a suffix, or to a folder
        self._by_name: dict[str, int] = {}  # of a file, in whatever folder
        for number, doc_id in enumerate(store.document_ids()):
            self._by_id[doc_id] = number
            key = _key(doc_id)
            self._by_key.setdefault(key, number)
            name = posixpath.basename(key)
            self._by_name[name] = _SEVERAL if name in self._by_name else number

    def find(self, doc_id: str, target: str) -> int | None:
        """The number of the document, or None: by path, else by a label in its text, else by its file's name."""
        path = _resolve(doc_id, target)
        if path is None:
            return None
        number = self._by_id.get(path, self._by_key.get(_key(path)))
        if number is None and "/" not in target:
            name = target.casefold()
            number = self._labels.get(name, self._by_name.get(name.translate(_SPACES)))
        return None if number == _SEVERAL else number

    @cached_property
    def _labels(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for doc_id, number in self._by_id.items():
            if doc_id.lower().endswith(_LABELLED_SUFFIXES):
                for label in _LABEL.finditer(self._store.read_text(number)):
                    found.setdefault((label.group(label.lastindex or 0)).casefold(), number)
        return found


def _resolve(doc_id: str, target: str) -> str | None:
    """The path of a target; None if it leads out of the corpus.

    _resolve("guide/walks.md", "../people/venn.md") == _resolve("guide/walks.md", "/people/venn.md") == "people/venn.md"
    """
    # A path from the root is one of a site, which the corpus is taken for.
    folder = "" if target.startswith("/") else posixpath.dirname(doc_id)
    path = posixpath.normpath(posixpath.join(folder, target.lstrip("/")))
    return None if path.partition("/")[0] == ".." else "" if path == "." else path


def _key(path: str) -> str:
    """What two ways to write a path have in common: `_key("Guide/README.md") == _key("guide/") == "guide"`."""
    key = path.casefold().rstrip("/").translate(_SPACES)
    stem, suffix = posixpath.splitext(key)
    key = stem if suffix in FILE_SUFFIXES else key
    folder, _, name = key.rpartition("/")
    return folder if name.replace("-index", "index") in _FOLDER_PAGES else key
