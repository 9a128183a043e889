"""Records of an index's source files and folders as they were read, and detection of changes since.

    sources.jsonl     one line per folder, then one per file; its own modification time is when reading began

write_sources(folder, reader.folders, reader.records, began_ns)
find_changes(Path("docs-index"), [Path("docs")]) == ["rivers.md"]
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b, file_digest
from itertools import islice
from pathlib import Path

import msgspec

from quaere.errors import BadInput
from quaere.search.walk import SourceFolder, common_folder, describe_folder

SOURCES = "sources.jsonl"
MAX_LOOKS = 20_000  # folders, entries of folders and files that are looked at when an index is opened


class FileRecord(msgspec.Struct, tag="file", omit_defaults=True):
    """A file as it was read, and the result: enough to report on it again without reading it.

    Records are in the order of the index's documents; `num_documents` of them come from the file. `duplicates` are
    digests of documents left out as equal to an earlier one; `copy_of` is the id of that one, if a whole file was left
    out: links to the file lead there. `refused` says why the file was not opened.

        FileRecord(id="rivers.md", size=812, mtime_ns=1763300000000000000, digest="5f2c...", num_documents=1)
    """

    id: str  # "" if its name is not Unicode: then it is never recognised
    size: int
    mtime_ns: int
    digest: str = ""  # of the file's bytes; "" if they were not read
    refused: str = ""
    unreadable: str = ""
    missing: str = ""
    encoding: str = ""
    problems: tuple[str, ...] = ()
    num_documents: int = 0
    num_empty: int = 0
    duplicates: list[str] = msgspec.field(default_factory=list)
    copy_of: str = ""


class Changes(list[str]):
    """Names of source files and folders that have changed: `Changes(["docs/", "docs/rivers.md"])`."""

    def describe(self) -> str:
        """A message that names the last change (files come after folders): "rivers.md and 2 more have changed"."""
        *others, last = self
        return f"{last} and {len(others)} more have changed" if others else f"{last} has changed"


def digest_bytes(data: bytes) -> str:
    """The 16-byte BLAKE2b digest of the bytes, as hexadecimal digits."""
    return blake2b(data, digest_size=16).hexdigest()


def digest_file(path: Path) -> str:
    """The digest of a file's content, equal to `digest_bytes`; the file may be larger than memory."""
    with path.open("rb") as file:
        return file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()


# ------------------------------------------------------------------------------------------------- writing and reading


def write_sources(folder: Path, folders: Iterable[SourceFolder], files: Iterable[FileRecord], began_ns: int) -> None:
    """Write the records to `sources.jsonl` in `folder`; its file time is set to `began_ns`, when reading began."""
    path = folder / SOURCES
    records: list[SourceFolder | FileRecord] = [*sorted(folders, key=lambda folder: folder.id), *files]
    path.write_bytes(msgspec.json.Encoder().encode_lines(map(_storable, records)))
    os.utime(path, ns=(began_ns, began_ns))


def _storable(record: SourceFolder | FileRecord) -> SourceFolder | FileRecord:
    """The record with sorted duplicates, so that the file is reproducible, and "" for a name that is not Unicode."""
    if isinstance(record, FileRecord):
        record = msgspec.structs.replace(record, duplicates=sorted(record.duplicates))
    try:
        record.id.encode()
        return record
    except UnicodeEncodeError:
        return msgspec.structs.replace(record, id="")


def read_sources(folder: Path) -> Iterator[SourceFolder | FileRecord]:
    """The records of an index in the order they were written; none if an earlier version wrote the index."""
    decoder = msgspec.json.Decoder(SourceFolder | FileRecord)
    try:
        with (folder / SOURCES).open("rb") as file:
            for line in file:
                yield decoder.decode(line)
    except FileNotFoundError:
        return
    except msgspec.DecodeError as error:
        raise BadInput(f"{folder / SOURCES} is damaged: {error}", hint=f"delete {folder} and build it again") from error


# ------------------------------------------------------------------------------------------------------------- changes


def find_changes(
    index: Path, sources: Sequence[Path], *, gitignore: bool = True, max_looks: int = MAX_LOOKS
) -> Changes:
    """The source files and folders that changed since the index was built, by size, time and names; no file is opened.

    At most `max_looks` entries are checked, folders first, so that opening a large index stays fast.
    """
    base, leave_out = common_folder(sources), index.resolve()
    changed = Changes()
    for record in read_sources(index):
        if not record.id:
            continue
        path = os.path.join(base, record.id)  # a `Path` of each would take longer than to look at it
        if isinstance(record, FileRecord):
            max_looks -= 1
            if _look_at(path) != (record.size, record.mtime_ns):
                changed.append(record.id)
        else:
            folder, looks = _list_folder(Path(path), record, leave_out, max_looks)
            max_looks -= looks
            if folder is None or folder.names != record.names or (gitignore and folder.ignore != record.ignore):
                changed.append(f"{Path(path)}/")
        if max_looks <= 0:
            break
    return changed


def _list_folder(
    path: Path, record: SourceFolder, leave_out: Path, max_entries: int
) -> tuple[SourceFolder | None, int]:
    """The folder's present record, None if the folder is gone, and how many entries were listed.

    A folder with `max_entries` entries or more counts as unchanged.
    """
    try:
        with os.scandir(path) as listing:
            entries = [(entry.name, _is_folder(entry)) for entry in islice(listing, max_entries)]
    except OSError:
        return None, 1
    if len(entries) == max_entries:
        return record, max_entries
    folders, files = ([name for name, is_folder in entries if is_folder == wanted] for wanted in (True, False))
    return describe_folder(path, record.id, folders, files, leave_out), len(entries) + 1


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links that lead to one another, which a walk takes for files
        return False


def _look_at(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return 0, 0  # as a walk records links that lead nowhere
    return status.st_size, status.st_mtime_ns
