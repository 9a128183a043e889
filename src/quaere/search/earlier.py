"""What of an index can be used again for the next one of the same sources.

A file that has not changed is not read: its documents and passages are taken over as they are. Vectors are taken over
for every passage whose title and text are those of an earlier one, also where its file was renamed or edited elsewhere.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quaere.records import Passage
from quaere.search.corpus import Document
from quaere.search.json_lines import is_rows_file
from quaere.search.sources import SOURCES, FileRecord, digest_file, read_sources
from quaere.search.store import Store
from quaere.search.walk import SourceFile

# Some file systems keep times in steps of two seconds: a file may change once more within the step it was read in.
_TIME_STEP_NS = 2_000_000_000


class EarlierIndex:
    """The documents, passages and files of an index that is being replaced (a `KnownFiles` of a `CorpusReader`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = Store(path)
        self.files: dict[str, FileRecord] = {}
        self._first_documents: dict[str, int] = {}
        num_documents = 0
        for record in read_sources(path):
            if isinstance(record, FileRecord):
                self.files[record.id] = record
                self._first_documents[record.id] = num_documents
                num_documents += record.num_documents
        began_ns = os.stat(path / SOURCES).st_mtime_ns if self.files else 0
        self._trusted_ns = began_ns - _TIME_STEP_NS

    def find(self, file: SourceFile) -> FileRecord | None:
        """The record of a file of the same size and time, or, if only its time is another, of the same bytes."""
        record = self.files.get(file.id)
        if record is None or not record.digest or record.size != file.size:
            return None
        if record.mtime_ns == file.mtime_ns and file.mtime_ns < self._trusted_ns:
            return record
        try:
            return record if digest_file(file.path) == record.digest else None
        except OSError:
            return None

    def documents(self, record: FileRecord) -> Iterator[Document]:
        """The documents that were read from a file."""
        first = self._first_documents[record.id]
        kind: Literal["file", "row"] = "row" if is_rows_file(Path(record.id)) else "file"
        return (self.store.read_document(number, kind) for number in range(first, first + record.num_documents))

    def passages(self, number: int) -> list[Passage]:
        """The passages of document `number`."""
        return [self.store.passage(each) for each in self.store.passage_numbers(number)]

    def match_texts(self, store: Store, kept: array[int]) -> NDArray[np.int64]:
        """For each passage of `store` the number of an earlier one to be embedded alike, or -1.

        `kept` says which were taken over; only the others, and what is left of the earlier ones, are compared.
        """
        rows = np.array(kept, dtype=np.int64)
        new = np.flatnonzero(rows < 0).tolist()
        if new:
            left = np.setdiff1d(np.arange(len(self.store)), rows).tolist()
            by_text = {_digest_text(self.store.passage(number)): number for number in left}
            rows[new] = [by_text.get(_digest_text(store.passage(number)), -1) for number in new]
        return rows


def _digest_text(passage: Passage) -> bytes:
    return blake2b(passage.titled_text.encode(), digest_size=16).digest()
