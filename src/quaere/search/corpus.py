"""Corpus reader: folders of documents, single documents or JSON Lines as a stream of documents in a stable order.

reader = CorpusReader(Path("docs"))
for document in reader:
    ...
reader.report.num_duplicates
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from quaere.errors import BadInput, ExtraMissing
from quaere.search.extracted import Part, Unreadable
from quaere.search.files import MAX_FILE_MIB, read_file
from quaere.search.rows import is_rows_file, read_rows
from quaere.search.walk import SUPPORTED, SourceFile, Walk

_MAX_NAMED = 10_000  # skipped files named in the report; the others are only counted
_MAX_SUFFIXES = 20


class Document(Struct, frozen=True):
    """A source document. `kind` says whether it is a whole file or a row of a JSON Lines file.

    `parts` say where its pages, rows or cells begin; a file without them is its own text, line for line.

        Document(id="rivers.md", title="The Oss", text="# The Oss ...", kind="file")
    """

    id: str
    title: str
    text: str
    kind: Literal["file", "row"]
    parts: tuple[Part, ...] = ()


class CorpusReport(Struct):
    """Counts of documents read and skipped, with the names and reasons of skipped files.

    `unreadable` names files that were left out, `problems` what was lost of files that were not, and `missing` counts
    files by the library they need and how to get it.

        CorpusReport(num_documents=12, num_duplicates=1, unreadable=["scan.pdf: not a readable PDF file (...)"],
                     missing={".docx files need python-docx: pip install -e '.[office]'": 3})
    """

    num_documents: int = 0
    num_duplicates: int = 0
    num_empty: int = 0
    num_unreadable: int = 0
    unreadable: list[str] = field(default_factory=list)
    ignored_suffixes: dict[str, int] = field(default_factory=dict)
    other_encodings: dict[str, int] = field(default_factory=dict)
    num_problems: int = 0
    problems: list[str] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)
    num_gitignored: int = 0
    num_excluded: int = 0


class CorpusReader:
    """Iterable over the documents of a corpus, to be used once; `report` then says what was skipped and why.

    While it runs, `num_read` of the `num_bytes` bytes of all files have been read.

    Skipped are exact duplicates (same title and text), empty documents, files that are not wanted (see `Walk`), files
    without text or that cannot be read, links out of the folder, documents larger than `max_file_mib`, and the folder
    `leave_out`. Two different documents with the same id raise `BadInput`.
    """

    def __init__(
        self,
        source: Path | Sequence[Path],
        leave_out: Path | None = None,
        max_file_mib: int = MAX_FILE_MIB,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        gitignore: bool = True,
    ) -> None:
        self.sources = [source] if isinstance(source, Path) else list(source)
        self.report = CorpusReport()
        self.num_read = self.num_bytes = 0
        self._limit = max_file_mib << 20
        self._walk = Walk(
            self.sources,
            leave_out=leave_out,
            max_file_mib=max_file_mib,
            include=include,
            exclude=exclude,
            gitignore=gitignore,
        )

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
            raise self._nothing_read()

    def _nothing_read(self) -> BadInput:
        """Error for a corpus without a document, with the first reason if there is one."""
        sources = ", ".join(str(source) for source in self.sources)
        missing, _, install = next(iter(self.report.missing), "").partition(": ")
        reason = missing or next(iter(self.report.unreadable), "")
        return BadInput(
            f"found no document with text in {sources}{reason and f' ({reason})'}", hint=install or SUPPORTED
        )

    def _documents(self) -> Iterator[tuple[Document, str]]:
        files = self._find_files()
        before = 0
        for file in files:
            self.num_read, before = before, before + file.size
            if file.refused:
                self._leave_out(file.id, file.refused)
            elif is_rows_file(file.path):
                for row in read_rows(file.path, partial(self._read_up_to, self.num_read)):
                    where = f"{file.path}, line {row.line}"
                    yield Document(id=row.id, title=row.title, text=row.text, kind="row"), where
            else:
                document = self._read_document(file)
                self.num_read = before
                if document:
                    yield document, str(file.path)

    def _find_files(self) -> list[SourceFile]:
        files = self._walk.files()
        self.num_bytes = sum(file.size for file in files)
        for name, reason in self._walk.passed_over:
            self._leave_out(name, reason)
        for name, problem in self._walk.problems:
            self._note_problem(name, problem)
        self.report.ignored_suffixes = dict(self._walk.ignored_suffixes.most_common(_MAX_SUFFIXES))
        self.report.num_gitignored, self.report.num_excluded = self._walk.num_gitignored, self._walk.num_excluded
        return files

    def _read_up_to(self, before: int, num_bytes: int) -> None:
        self.num_read = before + num_bytes

    def _read_document(self, file: SourceFile) -> Document | None:
        try:
            file.id.encode()  # a file name that is not text could not be stored as an id
            content = read_file(file.path, self._limit)
        except UnicodeEncodeError:
            self._leave_out(file.id, "its name is not valid Unicode")
            return None
        except Unreadable as reason:
            self._leave_out(file.id, str(reason))
            return None
        except ExtraMissing as error:
            needed = f"{error}: {error.hint}"
            self.report.missing[needed] = self.report.missing.get(needed, 0) + 1
            return None
        except OSError as error:
            self._leave_out(file.id, error.strerror or str(error))
            return None
        for problem in content.problems:
            self._note_problem(file.id, problem)
        if content.encoding not in ("", "utf-8"):
            counts = self.report.other_encodings
            counts[content.encoding] = counts.get(content.encoding, 0) + 1
        return Document(file.id, content.title, content.text, "file", content.parts)

    def _leave_out(self, name: str, reason: str) -> None:
        self.report.num_unreadable += 1
        _name(self.report.unreadable, name, reason)

    def _note_problem(self, name: str, problem: str) -> None:
        self.report.num_problems += 1
        _name(self.report.problems, name, problem)


def _name(named: list[str], name: str, reason: str) -> None:
    if len(named) < _MAX_NAMED:
        named.append(f"{name}: {reason}".encode(errors="replace").decode())


def _digest(*parts: str) -> bytes:
    """A 16-byte digest of the strings; lengths are included, so that ("ab", "c") and ("a", "bc") differ."""
    state = blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode()
        state.update(len(encoded).to_bytes(8, "little"))
        state.update(encoded)
    return state.digest()
