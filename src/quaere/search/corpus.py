"""Corpus reader: a folder of documents, one document, or JSON Lines, read as a stream of documents in a stable order.

reader = CorpusReader(Path("docs"))
for document in reader:
    ...
reader.report.num_duplicates
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from quaere.errors import BadInput
from quaere.search.files import FILE_SUFFIXES, Unreadable, read_file
from quaere.search.rows import ROW_SUFFIXES, is_rows_file, read_rows

MAX_FILE_MIB = 64
_MAX_NAMED = 20  # skipped files named in the report; the others are only counted


class Document(Struct, frozen=True):
    """A source document. `kind` says whether it is a whole file or a row of a JSON Lines file.

    Document(id="rivers.md", title="The Oss", text="# The Oss ...", kind="file")
    """

    id: str
    title: str
    text: str
    kind: Literal["file", "row"]


class CorpusReport(Struct):
    """Counts of documents read and skipped, with the names and reasons of skipped files.

    CorpusReport(num_documents=12, num_duplicates=1, unreadable=["scan.pdf: not a readable PDF (...)"])
    """

    num_documents: int = 0
    num_duplicates: int = 0
    num_empty: int = 0
    num_unreadable: int = 0
    unreadable: list[str] = field(default_factory=list)
    ignored_suffixes: dict[str, int] = field(default_factory=dict)
    other_encodings: dict[str, int] = field(default_factory=dict)


class CorpusReader:
    """Iterable over the documents of a corpus, to be used once; `report` then says what was skipped and why.

    While it runs, `num_read` of the `num_bytes` bytes of all files have been read.

    Skipped are exact duplicates (same title and text), empty documents, hidden files, files of unknown types, files
    without text or that cannot be read, links out of the folder, documents larger than `max_file_mib`, and the folder
    `leave_out`. Two different documents with the same id raise `BadInput`.
    """

    def __init__(self, source: Path, leave_out: Path | None = None, max_file_mib: int = MAX_FILE_MIB) -> None:
        self.source = source
        self.report = CorpusReport()
        self.num_read = self.num_bytes = 0
        self._root = source.resolve()
        self._max_file_mib = max_file_mib
        self._leave_out = leave_out.resolve() if leave_out else None

    def __iter__(self) -> Iterator[Document]:
        """Documents in the order of their paths, and within a file in the order of its lines."""
        # Digests rather than texts: memory is a few hundred bytes per document, whatever its length.
        seen_ids: set[bytes] = set()
        seen_contents: set[bytes] = set()
        for document, where in self._documents():
            if not document.text.strip():
                self.report.num_empty += 1
                continue
            content, identity = _digest(document.title, document.text), _digest(document.id)
            if content in seen_contents:
                self.report.num_duplicates += 1
                continue
            if identity in seen_ids:
                raise BadInput(
                    f"{where}: the id {document.id!r} is used by an earlier document with another text",
                    hint="give every document an id of its own",
                )
            seen_contents.add(content)
            seen_ids.add(identity)
            self.report.num_documents += 1
            yield document
        if not self.report.num_documents:
            reasons = "".join(f" ({reason})" for reason in self.report.unreadable[:1])
            raise BadInput(f"found no document with text in {self.source}{reasons}", hint=_SUPPORTED)

    def _documents(self) -> Iterator[tuple[Document, str]]:
        sizes = {path: _size(path) for path in self._files()}
        self.num_bytes, before = sum(sizes.values()), 0
        for path, size in sizes.items():
            self.num_read, before = before, before + size
            if why := self._why_left_out(path):
                self._leave_out_file(path, why)
            elif is_rows_file(path):
                for row in read_rows(path, partial(self._read_up_to, self.num_read)):
                    yield Document(id=row.id, title=row.title, text=row.text, kind="row"), f"{path}, line {row.line}"
            else:
                document = self._read_document(path)
                self.num_read = before
                if document:
                    yield document, str(path)

    def _read_up_to(self, before: int, num_bytes: int) -> None:
        self.num_read = before + num_bytes

    def _why_left_out(self, path: Path) -> str:
        """Reason to skip a file without opening it, or "". A pipe might never end, and a link may lead anywhere."""
        try:
            file = path.resolve(strict=True)
            status = file.stat()
        except (OSError, RuntimeError):  # RuntimeError: links that lead to one another, before Python 3.13
            return "a link that leads nowhere" if path.is_symlink() else "it is gone"
        if not file.is_relative_to(self._root):
            return "a link out of the folder"
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"
        # The limit is per document. JSON Lines files hold many documents and are streamed, so it does not apply.
        if status.st_size > self._max_file_mib << 20 and not is_rows_file(path):
            return f"larger than {self._max_file_mib} MiB"
        return "" if os.access(file, os.R_OK) else "permission denied"

    def _read_document(self, path: Path) -> Document | None:
        name = self._name(path)
        try:
            name.encode()  # a file name that is not text could not be stored as an id
            content = read_file(path)
        except UnicodeEncodeError:
            self._leave_out_file(path, "its name is not valid Unicode")
            return None
        except Unreadable as reason:
            self._leave_out_file(path, str(reason))
            return None
        except OSError as error:
            self._leave_out_file(path, error.strerror or str(error))
            return None
        if content.encoding not in ("utf-8", "pdf"):
            counts = self.report.other_encodings
            counts[content.encoding] = counts.get(content.encoding, 0) + 1
        return Document(id=name, title=content.title, text=content.text, kind="file")

    def _name(self, path: Path) -> str:
        return path.relative_to(self.source).as_posix() if path != self.source else path.name

    def _leave_out_file(self, path: Path, reason: str) -> None:
        self.report.num_unreadable += 1
        if len(self.report.unreadable) < _MAX_NAMED:
            name = self._name(path).encode(errors="replace").decode()
            self.report.unreadable.append(f"{name}: {reason}")

    def _leave_out_folder(self, error: OSError) -> None:
        self._leave_out_file(Path(error.filename), error.strerror or str(error))

    def _files(self) -> Iterator[Path]:
        """The files to read, sorted by path."""
        if not self.source.exists():
            raise BadInput(f"{self.source} does not exist", hint="give a folder of documents or a JSON Lines file")
        if not self.source.is_dir():
            if not _is_supported(self.source):
                raise BadInput(f"{self.source} is not a file of a supported type", hint=_SUPPORTED)
            return iter([self.source])
        ignored: Counter[str] = Counter()
        files: list[Path] = []
        for folder, folders, names in os.walk(self.source, onerror=self._leave_out_folder):
            folders[:] = [name for name in folders if self._is_wanted(Path(folder, name))]
            for path in (Path(folder, name) for name in folders):
                if path.is_symlink():
                    self._leave_out_file(path, "a link to a folder, which is not followed")
            for path in (Path(folder, name) for name in names if not name.startswith(".")):
                if _is_supported(path):
                    files.append(path)
                else:
                    ignored[path.suffix.lower() or path.name] += 1
        self.report.ignored_suffixes = dict(ignored.most_common(_MAX_NAMED))
        return iter(sorted(files, key=lambda path: path.parts))

    def _is_wanted(self, folder: Path) -> bool:
        return not folder.name.startswith(".") and folder.resolve() != self._leave_out


_SUPPORTED = (
    "files that can be read: " + " ".join(sorted(FILE_SUFFIXES) + list(ROW_SUFFIXES[:2])) + " (or .jsonl.gz ...)"
)


def _is_supported(path: Path) -> bool:
    return path.suffix.lower() in FILE_SUFFIXES or is_rows_file(path)


def _size(path: Path) -> int:
    """Size in bytes of a regular file; 0 for anything else or if it cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _digest(*parts: str) -> bytes:
    """A 16-byte digest of the strings; lengths are included, so that ("ab", "c") and ("a", "bc") differ."""
    state = blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode()
        state.update(len(encoded).to_bytes(8, "little"))
        state.update(encoded)
    return state.digest()
