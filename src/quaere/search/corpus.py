"""Corpus reader: folders of documents, single documents or JSON Lines as a stream of documents in a stable order.

reader = CorpusReader(Path("docs"))
for document in reader:
    ...
reader.report.num_duplicates
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from quaere.errors import BadInput, ExtraMissing
from quaere.search.extracted import Heading, Part, Unreadable, storable_text
from quaere.search.files import parse_file
from quaere.search.hyperlinks import Hyperlink
from quaere.search.json_lines import BadLines, is_rows_file, read_rows
from quaere.search.sources import FileRecord, digest_bytes, digest_file
from quaere.search.walk import ANY_FILE, SUPPORTED, FileChoice, SourceFile, Walk

if TYPE_CHECKING:
    from quaere.search.store import EarlierIndex


class Document(Struct, frozen=True):
    """A source document. `kind` says whether it is a whole file or a row of a JSON Lines file.

    `parts` say where its pages, rows or cells begin; without parts, the text is the file's content, line for line.
    `headings` say where its sections begin. `links` lead to other documents of the corpus. A document that an update
    takes over from the earlier index has its number there in `stored`, and no headings: its passages hold them.

        Document(id="rivers.md", title="The Oss", text="# The Oss ...", kind="file")
    """

    id: str
    title: str
    text: str
    kind: Literal["file", "row"]
    parts: tuple[Part, ...] = ()
    stored: int | None = None
    headings: tuple[Heading, ...] = ()
    links: tuple[Hyperlink, ...] = ()


class CorpusReader:
    """Iterable over the documents of a corpus, to be used once; `report` then says what was skipped and why.

    While it runs, `num_read` of the `num_bytes` bytes of all files have been read. Afterwards `folders` and
    `records` describe every folder and file, and `num_files_read` counts the files that were parsed: all but those
    taken over from the earlier index `known`.

    Skipped are exact duplicates (same title and text), empty documents, files that are not wanted (see `Walk`), files
    without text or that cannot be read, links out of the folder, documents larger than `max_file_mib`, and the folder
    `leave_out`. A bad line of JSON Lines, or an id that an earlier document with another text has, raises `BadInput` if
    the file was named itself; in a folder the whole file is left out.
    """

    def __init__(
        self, source: Path | Sequence[Path], choice: FileChoice = ANY_FILE, known: EarlierIndex | None = None
    ) -> None:
        self.sources = [source] if isinstance(source, Path) else list(source)
        self.num_read = self.num_bytes = self.num_files_read = 0
        self.records: list[FileRecord] = []
        self._known = known
        self._named = {os.path.abspath(each) for each in self.sources if not each.is_dir()}
        # Digests rather than texts: the memory needed is some hundred bytes a document, whatever its length.
        self._seen_ids: set[bytes] = set()
        self._seen_contents: set[bytes] = set()
        self._files_by_content: dict[bytes, str] = {}  # ids of whole files only, because rows may be millions
        self._walk = Walk(self.sources, choice)
        self.report, self.folders = self._walk.report, self._walk.folders
        self._limit = choice.max_file_mib << 20

    def __iter__(self) -> Iterator[Document]:
        """Documents in the order of their paths, and within a file in the order of its lines."""
        files, before = self._walk.files(), 0
        self.num_bytes = sum(file.size for file in files)
        for file in files:
            self.num_read, before = before, before + file.size
            for document, line in self._read(file):
                if self._is_new(document, file, line):
                    yield document
            self._note_copy(self.records[-1])
        if not self.report.num_documents:
            raise self._nothing_read()

    def _is_new(self, document: Document, file: SourceFile, line: int) -> bool:
        """Count a document in the report; False if it is left out as empty or as a duplicate."""
        record, content, identity = self.records[-1], _digest_content(document), _digest(document.id)
        if not document.text.strip():
            record.num_empty += 1
            self.report.num_empty += 1
        elif content in self._seen_contents:
            record.duplicates.append(content.hex())
            self.report.num_duplicates += 1
        elif identity in self._seen_ids:
            error = _id_is_used(file, document.id, line)
            # Rows of files in a folder were checked before, so this file is a single document.
            if self._is_named(file) or document.kind == "row":
                raise error
            record.unreadable, record.digest = storable_text(error.reason), ""  # no digest, as in `_read_rows`
            self.report.leave_out(record.id, record.unreadable)
        else:
            self._seen_contents.add(content)
            self._seen_ids.add(identity)
            if document.kind == "file":
                self._files_by_content[content] = document.id
            record.num_documents += 1
            self.report.num_documents += 1
            return True
        return False

    def _note_copy(self, record: FileRecord) -> None:
        """Set which document a file is a copy of, also in a record taken over: another one may be the first now."""
        if record.duplicates and not is_rows_file(Path(record.id)):
            record.copy_of = self._files_by_content.get(bytes.fromhex(record.duplicates[0]), "")

    def _nothing_read(self) -> BadInput:
        report = self.report
        missing, _, install = next(iter(report.missing), "").partition(": ")
        reasons = [(missing, install), (next(iter(report.unreadable), ""), SUPPORTED)]
        if report.num_excluded:
            reasons += [(f"{report.num_excluded} left out by --include and --exclude", "--include '*.md'")]
        if report.num_gitignored:
            reasons += [(f"{report.num_gitignored} left out by a .gitignore", "--no-gitignore")]
        reason, hint = next((one for one in reasons if one[0]), ("", SUPPORTED))
        said = f"found no document with text in {', '.join(map(str, self.sources))}{reason and f' ({reason})'}"
        return BadInput(said, hint=hint)

    def _is_named(self, file: SourceFile) -> bool:
        """True if the file itself was given as a source; errors in it are then raised instead of reported."""
        return os.path.abspath(file.path) in self._named

    def _read(self, file: SourceFile) -> Iterator[tuple[Document, int]]:
        """The documents of a file, each with its line number; 0 if that is unknown."""
        record = FileRecord(file.id, file.size, file.mtime_ns, refused=file.refused)
        if file.refused:
            self._begin(record)
            return iter(())
        if self._known and (before := self._recall(file, self._known)):
            return self._take_over(file, self._known, before)
        self.num_files_read += 1
        return self._read_rows(file, record) if is_rows_file(file.path) else self._read_document(file, record)

    def _recall(self, file: SourceFile, known: EarlierIndex) -> FileRecord | None:
        """The earlier record of a file that need not be read again; None if it must be read.

        It need not be if it has not changed, its duplicates still are duplicates, and no other document uses its ids.
        """
        record = known.find(file)
        if record is None:
            return None
        promoted = {digest for digest in record.duplicates if bytes.fromhex(digest) not in self._seen_contents}
        if promoted:  # these are no duplicates any more, and their text is kept only if this same file has it elsewhere
            promoted -= {_digest_content(document).hex() for document in known.documents(record)}
        return None if promoted or self._has_used_id(file, known.documents(record)) else record

    def _has_used_id(self, file: SourceFile, documents: Iterator[Document]) -> bool:
        """True if a row of the file has the id of an earlier document with another text: the file is then left out."""
        if not self._seen_ids or self._is_named(file) or not is_rows_file(file.path):
            return False
        return any(
            _digest(document.id) in self._seen_ids and _digest_content(document) not in self._seen_contents
            for document in documents
        )

    def _take_over(self, file: SourceFile, known: EarlierIndex, before: FileRecord) -> Iterator[tuple[Document, int]]:
        now = {"size": file.size, "mtime_ns": file.mtime_ns, "num_documents": 0}
        self._begin(structs.replace(before, **now, duplicates=list(before.duplicates)))
        self.num_read += file.size
        self.report.num_empty += before.num_empty
        self.report.num_duplicates += len(before.duplicates)
        for document in known.documents(before):
            yield document, 0

    def _read_rows(self, file: SourceFile, record: FileRecord) -> Iterator[tuple[Document, int]]:
        before = begin = self.num_read
        share = 1.0
        try:
            record.digest = digest_file(file.path)
            if not self._is_named(file):
                share = 0.5  # of the progress: the file is read twice
                self._check_rows(file, partial(self._read_up_to, before, share))
                begin = before + file.size // 2
        except OSError as error:
            if self._is_named(file):
                raise BadLines(file.path, f"cannot be read: {error.strerror or error}") from error
            record.unreadable = error.strerror or str(error)
        except BadLines as error:
            # Without a digest an update reads the file again: which line is the first bad one may depend on others.
            record.unreadable, record.digest = storable_text(error.reason), ""
        self._begin(record)
        if record.unreadable:
            self.num_read = before + file.size
            return
        for row in read_rows(file.path, partial(self._read_up_to, begin, share), self._limit):
            yield Document(id=row.id, title=row.title, text=row.text, kind="row"), row.line

    def _check_rows(self, file: SourceFile, at: Callable[[int], None]) -> None:
        """Read a file to its end without keeping it; raises `BadLines` if a line is bad or its id is in use."""
        added: list[tuple[bytes, bytes]] = []
        try:
            for row in read_rows(file.path, at, self._limit):
                content, identity = _digest(row.title, row.text), _digest(row.id)
                if not row.text.strip() or content in self._seen_contents:
                    continue
                if identity in self._seen_ids:
                    raise _id_is_used(file, row.id, row.line)
                added.append((content, identity))
                self._seen_contents.add(content)
                self._seen_ids.add(identity)
        finally:  # `_is_new` adds these digests when the rows are read again; until then they must not be known
            self._seen_contents.difference_update(content for content, _ in added)
            self._seen_ids.difference_update(identity for _, identity in added)

    def _read_up_to(self, begin: int, share: float, num_bytes: int) -> None:
        self.num_read = begin + int(num_bytes * share)

    def _read_document(self, file: SourceFile, record: FileRecord) -> Iterator[tuple[Document, int]]:
        content = None
        try:
            file.id.encode()  # a file name that is not text could not be stored as an id
            data = file.path.read_bytes()
            record.digest = digest_bytes(data)
            content = parse_file(file.path, data, self._limit)
            record.encoding, record.problems = content.encoding, tuple(map(storable_text, content.problems))
        except UnicodeEncodeError:
            record.unreadable = "its name is not valid Unicode"
        except Unreadable as reason:
            record.unreadable = storable_text(str(reason))
        except ExtraMissing as error:
            record.missing = f"{error}: {error.hint}"
        except OSError as error:
            record.unreadable = error.strerror or str(error)
        self._begin(record)
        self.num_read += file.size
        if content:
            title, text, parts = content.title, content.text, content.parts
            yield Document(file.id, title, text, "file", parts, headings=content.headings, links=content.links), 0

    def _begin(self, record: FileRecord) -> None:
        """Append the record of the next file, and add its problems, encoding and missing libraries to the report."""
        self.records.append(record)
        if record.refused or record.unreadable:
            self.report.leave_out(record.id, record.refused or record.unreadable)
        for problem in record.problems:
            self.report.note_problem(record.id, problem)
        encoding = "" if record.encoding == "utf-8" else record.encoding
        for name, counts in ((record.missing, self.report.missing), (encoding, self.report.other_encodings)):
            if name:
                counts[name] = counts.get(name, 0) + 1


def _id_is_used(file: SourceFile, document_id: str, line: int) -> BadLines:
    said = f"the id {document_id!r} is used by an earlier document with another text"
    return BadLines(file.path, said, line=line, hint="give every document an id of its own")


def _digest_content(document: Document) -> bytes:
    return _digest(document.title, document.text)


def _digest(*parts: str) -> bytes:
    """A 16-byte digest of the strings; lengths are included, so that ("ab", "c") and ("a", "bc") differ."""
    encoded = [part.encode() for part in parts]
    return blake2b(b"".join(len(part).to_bytes(8, "little") + part for part in encoded), digest_size=16).digest()
