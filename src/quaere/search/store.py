"""Storage of an index's documents and passages: one file of text, and arrays of positions.

All files are memory-mapped, so opening is instant and reading a passage touches one page, however large the corpus is.

    documents.bin     id, title and text of every document, concatenated, in UTF-8
    documents.npy     per document: its offset, and the bytes of its id, title and text
    passages.npy      per passage: its document, its number in it, and its place in characters and in bytes
    identities.npy    per document: a digest of its id, sorted, and the document's number
    places.bin        each passage's place in its file ("page 3"), one after another; only if any place is known
    places.npy        0, then per passage where the name of its place ends
    headings.bin      the headings each passage is under, in the same way; only if there are any
    headings.npy      0, then per passage where its headings end
    parts.bin         the parts of each document, in MessagePack and compressed; only if any document has parts
    parts.npy         0, then per document where its parts end
    links.bin         the hyperlinks of each document, in the same way; only if any document has one
    links.npy         0, then per document where its hyperlinks end

An update takes over the documents and passages of files that have not changed, and the vectors of every passage whose
title and text are those of an earlier one, also where its file was renamed or edited elsewhere.
"""

from __future__ import annotations

import mmap
import os
import zlib
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import blake2b, sha256
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import numpy as np

from quaere.errors import BadInput
from quaere.records import Passage
from quaere.search.corpus import Document
from quaere.search.engines import KnownVectors
from quaere.search.extracted import Part
from quaere.search.hyperlinks import Hyperlink
from quaere.search.json_lines import is_rows_file
from quaere.search.sources import SOURCES, FileRecord, digest_bytes, digest_file, read_sources
from quaere.search.walk import SourceFile

_DOCUMENT_FIELDS = 4  # begins_at, id_bytes, title_bytes, text_bytes
_PASSAGE_FIELDS = 6  # document, number_there, start, end, start_byte, end_byte
_BLOBS = ("places", "headings", "parts", "links")


class StoreWriter:
    """Writer of documents with their passages; leaving the context writes the arrays.

    with StoreWriter(folder) as writer:
        writer.add(document, cut(document, settings))
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bytes = (folder / "documents.bin").open("wb")
        self._documents, self._passages, self._digests = array("Q"), array("Q"), array("Q")
        self._places, self._headings, self._parts, self._links = (_Blobs(folder, name) for name in _BLOBS)
        self.content = sha256()  # of all documents added so far, in order, with the headings of their passages

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        self._bytes.close()
        for blobs in (self._places, self._headings, self._parts, self._links):
            blobs.close(keep=kind is None)
        if kind is None:
            self._write_arrays()

    def add(self, document: Document, passages: Sequence[Passage]) -> None:
        """Append a document and its passages."""
        parts = [document.id.encode(), document.title.encode(), document.text.encode()]
        lengths = [len(part) for part in parts]
        self.content.update(array("Q", lengths).tobytes() + b"".join(parts))
        self.content.update(self._parts.pack(document.parts))
        self._links.pack(document.links)  # not in the digest: links do not change what a search finds
        byte_at = _byte_positions(document.text, passages)
        for number, passage in enumerate(passages):
            positions = (passage.start, passage.end, byte_at[passage.start], byte_at[passage.end])
            self._passages.extend((len(self._digests), number, *positions))
            self._places.add(passage.place.encode())
            # In the digest, because a search matches the headings too.
            self.content.update(self._headings.add(passage.heading.encode()))
        self._documents.extend((self._bytes.tell(), *lengths))
        self._digests.append(_id_digest(document.id))
        self._bytes.writelines(parts)

    def _write_arrays(self) -> None:
        digests, documents, passages = (
            np.array(each, dtype=np.uint64) for each in (self._digests, self._documents, self._passages)
        )
        order = np.argsort(digests, kind="stable")
        np.save(self._folder / "identities.npy", np.stack([digests[order], order.astype(np.uint64)]))
        np.save(self._folder / "documents.npy", documents.reshape(-1, _DOCUMENT_FIELDS))
        np.save(self._folder / "passages.npy", passages.reshape(-1, _PASSAGE_FIELDS))


_Record = TypeVar("_Record", bound=msgspec.Struct)


class _Blobs:
    """Writer of byte strings: concatenated in NAME.bin, with the end of each in NAME.npy."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = (folder / f"{name}.bin").open("wb")
        self._arrays = folder / f"{name}.npy"
        self._ends = array("Q", [0])

    def add(self, blob: bytes) -> bytes:
        self._file.write(blob)
        self._ends.append(self._ends[-1] + len(blob))
        return blob

    def pack(self, records: Sequence[msgspec.Struct]) -> bytes:
        """Append the records as one compressed MessagePack string; returns the encoding before compression."""
        encoded = msgspec.msgpack.encode(records) if records else b""
        self.add(zlib.compress(encoded) if records else b"")
        return encoded

    def close(self, *, keep: bool) -> None:
        """Write NAME.npy; if all strings are empty or `keep` is false, delete NAME.bin instead."""
        self._file.close()
        if keep and self._ends[-1]:
            np.save(self._arrays, np.array(self._ends, dtype=np.uint64))
        else:
            self._arrays.with_suffix(".bin").unlink()


class _MappedBlobs:
    """Reader of the files of `_Blobs`; if they are missing, every string is empty."""

    def __init__(self, folder: Path, name: str) -> None:
        self.is_empty = not (folder / f"{name}.npy").exists()
        if not self.is_empty:
            self._bytes = _map_bytes(folder / f"{name}.bin")
            self._ends = _map_array(folder / f"{name}.npy")

    def read(self, number: int) -> bytes:
        if self.is_empty:
            return b""
        start, end = self._ends[number : number + 2].tolist()
        return self._bytes[start:end]

    def unpack(self, number: int, kind: type[_Record]) -> tuple[_Record, ...]:
        packed = self.read(number)
        return msgspec.msgpack.decode(zlib.decompress(packed), type=tuple[kind, ...]) if packed else ()  # type: ignore[valid-type]


class Store:
    """Reader of a `StoreWriter`'s files; it can be shared between threads."""

    def __init__(self, folder: Path) -> None:
        self._bytes = _map_bytes(folder / "documents.bin")
        self._documents = _map_array(folder / "documents.npy")
        self._passages = _map_array(folder / "passages.npy")
        self._digests, self._numbers = _map_array(folder / "identities.npy")
        self._places, self._headings, self._parts, self._links = (_MappedBlobs(folder, name) for name in _BLOBS)

    def __len__(self) -> int:
        """Number of passages."""
        return len(self._passages)

    def passage(self, number: int) -> Passage:
        """The passage with this number, from 0 to `len(store) - 1`."""
        if not 0 <= number < len(self):
            raise IndexError(f"there is no passage {number}: the index has {len(self)} passages, numbered from 0")
        document, there, start, end, start_byte, end_byte = self._passages[number].tolist()
        doc_id, title, text_at, _ = self._read_document(document)
        text = self._bytes[text_at + start_byte : text_at + end_byte].decode()
        place, heading = self._places.read(number).decode(), self._headings.read(number).decode()
        return Passage(f"{doc_id}#{there}", doc_id, title, text, start, end, place, heading)

    def find_passage(self, number: int, start: int, end: int) -> Passage | None:
        """The last passage of document `number` that contains its characters `start` to `end`; None if none does."""
        numbers = self.passage_numbers(number)
        starts = self._passages[numbers.start : numbers.stop, 2]
        place = numbers.start + int(np.searchsorted(starts, start, side="right")) - 1
        return self.passage(place) if place in numbers and end <= self._passages[place, 3] else None

    def passages(self) -> Iterator[Passage]:
        """All passages in order."""
        return (self.passage(number) for number in range(len(self)))

    def passage_numbers(self, number: int) -> range:
        """The numbers of the passages of document `number`."""
        first, end = self._first_passages[number : number + 2].tolist()
        return range(first, end)

    @cached_property
    def _first_passages(self) -> np.typing.NDArray[np.int64]:
        return np.searchsorted(self._passages[:, 0], np.arange(len(self._documents) + 1, dtype=np.uint64))

    def read_document(self, number: int, kind: Literal["file", "row"]) -> Document:
        """Document `number` as it was added; `kind` is not stored and has to be given."""
        doc_id, title, _, _ = self._read_document(number)
        text, parts = self.read_text(number), self._parts.unpack(number, Part)
        return Document(doc_id, title, text, kind, parts, stored=number, links=self.links(number))

    @property
    def has_links(self) -> bool:
        """True if any document has hyperlinks."""
        return not self._links.is_empty

    def links(self, number: int) -> tuple[Hyperlink, ...]:
        """The hyperlinks of document `number`; none in an index of an earlier version."""
        return self._links.unpack(number, Hyperlink)

    def document_ids(self) -> Iterator[str]:
        """Ids of all documents in order."""
        return (self._read_document(number)[0] for number in range(len(self._documents)))

    def document(self, doc_id: str) -> str:
        """The whole text of a document, which the offsets of its passages refer to."""
        return self.read_text(self.find_document(doc_id))

    def read_text(self, number: int) -> str:
        """The whole text of document `number`."""
        _, _, text_at, end = self._read_document(number)
        return self._bytes[text_at:end].decode()

    def find_document(self, doc_id: str) -> int:
        """The number of the document with this id; raises `BadInput` if there is none."""
        digest = np.uint64(_id_digest(doc_id))
        first, end = np.searchsorted(self._digests, digest), np.searchsorted(self._digests, digest, side="right")
        for number in self._numbers[first:end].tolist():  # ids with equal digests; in practice there is one at most
            if self._read_document(number)[0] == doc_id:
                return int(number)
        raise BadInput(f"there is no document {doc_id!r} in the index")

    def _read_document(self, number: int) -> tuple[str, str, int, int]:
        """Id and title of document `number`, and the byte offsets of its text's start and end in `documents.bin`."""
        at, id_bytes, title_bytes, text_bytes = self._documents[number].tolist()
        title_at = at + id_bytes
        text_at = title_at + title_bytes
        return self._bytes[at:title_at].decode(), self._bytes[title_at:text_at].decode(), text_at, text_at + text_bytes


def _map_bytes(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _map_array(path: Path) -> np.typing.NDArray[np.uint64]:
    """A plain array view of the mapped file: numpy's memmap class makes small slices slow."""
    return np.asarray(np.load(path, mmap_mode="r"))


def _byte_positions(text: str, passages: Sequence[Passage]) -> dict[int, int]:
    """UTF-8 byte offsets of the characters at which passages start and end: `{0: 0, 4: 5}` for "café"."""
    characters = sorted({position for passage in passages for position in (passage.start, passage.end)})
    if text.isascii():
        return dict(zip(characters, characters, strict=True))
    lengths = (len(text[start:end].encode()) for start, end in pairwise([0, *characters]))
    return dict(zip(characters, accumulate(lengths), strict=True))


def _id_digest(doc_id: str) -> int:
    return int.from_bytes(blake2b(doc_id.encode(), digest_size=8).digest(), "little")


# ---------------------------------------------------------------------------------------------------------------- reuse


# Some file systems keep times in steps of two seconds: a file may change once more within the step it was read in.
_TIME_STEP_NS = 2_000_000_000


class EarlierIndex(Store):
    """The index that an update replaces: its documents, passages and file records, for reuse."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path
        records = [record for record in read_sources(path) if isinstance(record, FileRecord)]
        first_documents = accumulate((record.num_documents for record in records), initial=0)
        self.files = {record.id: record for record in records}
        self._first_documents = {record.id: first for record, first in zip(records, first_documents, strict=False)}
        self._trusted_ns = (os.stat(path / SOURCES).st_mtime_ns if self.files else 0) - _TIME_STEP_NS

    def find(self, file: SourceFile) -> FileRecord | None:
        """The earlier record of an unchanged file, else None: same size and time, or same size and content."""
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
        """The documents of the earlier index that were read from the file of this record."""
        first = self._first_documents[record.id]
        kind: Literal["file", "row"] = "row" if is_rows_file(Path(record.id)) else "file"
        return (self.read_document(number, kind) for number in range(first, first + record.num_documents))

    def find_vectors(self, engine: str, store: Store, kept: array[int]) -> KnownVectors:
        """For each passage of `store` the earlier passage with the same vector, that is with equal title and text.

        `kept` has the earlier numbers of passages that were taken over, else -1; only the others are compared.
        """
        rows = np.array(kept, dtype=np.int64)
        if new := np.flatnonzero(rows < 0).tolist():
            left = np.setdiff1d(np.arange(len(self)), rows).tolist()
            by_text = {digest_bytes(self.passage(number).titled_text.encode()): number for number in left}
            new_texts = (store.passage(number).titled_text.encode() for number in new)
            rows[new] = [by_text.get(digest_bytes(text), -1) for text in new_texts]
        return KnownVectors(self.path / engine, rows)
