"""Bringing an index up to date: only what has changed is read and embedded, and the result is that of a new build.

updated = update_index(Path("docs-index"))
updated.counts     -> UpdateCounts(num_added=1, num_changed=2, num_removed=0, num_unchanged=40, num_read=3, ...)
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from quaere.disk import new_folder
from quaere.errors import BadInput
from quaere.search.earlier import EarlierIndex
from quaere.search.index import Index, Written, open_index, say_nothing, write_index
from quaere.search.manifest import library_versions
from quaere.search.search_engine import Progress
from quaere.search.sources import SOURCES, FileRecord
from quaere.search.walk import SourceFile, Walk

POLL_S = 2.0


class UpdateCounts(msgspec.Struct, frozen=True):
    """How many files were added, changed, removed and neither; how many were read, and passages kept and embedded.

    A file can be read without having changed: if the document it was a duplicate of is gone, or if the index was
    written by another version of Quaere or of a library.

        UpdateCounts(num_added=1, num_changed=2, num_removed=0, num_unchanged=40, num_read=3, num_kept=310, ...)
    """

    num_added: int
    num_changed: int
    num_removed: int
    num_unchanged: int
    num_read: int
    num_kept: int
    num_embedded: int


class Updated(msgspec.Struct, frozen=True):
    """An index that is up to date, and what was done for it."""

    index: Index
    counts: UpdateCounts


class _NothingToWrite(Exception):
    """The new index would be the old one."""


def update_index(path: Path, progress: Progress | None = None, *, rerank: str | None = None) -> Updated:
    """Bring the index at `path` up to date with its sources, and its reranker if one is named: all of it, or nothing.

    The new index is made beside the old one and put in its place at the end, as by `build_index`.
    """
    before = open_index(path, check_sources=False)
    sources = _find_sources(before)
    began_ns = time.time_ns()
    earlier = EarlierIndex(path)
    settings = before.manifest.settings
    if rerank not in (None, settings.rerank):
        settings = msgspec.structs.replace(settings, rerank=rerank)
        settings.check_reranker()
    # What another version of a library would read is not known without reading; vectors are good in either case.
    reads_alike = before.manifest.versions == library_versions()
    try:
        with new_folder(path) as unfinished:
            written = write_index(
                sources,
                path,
                unfinished,
                settings,
                progress or say_nothing,
                earlier=earlier,
                reuse=reads_alike,
            )
            counts = _count(earlier.files, written)
            if written.manifest == before.manifest and _same_sources(path, unfinished):
                raise _NothingToWrite
    except _NothingToWrite:
        os.utime(path / SOURCES, ns=(began_ns, began_ns))  # its files were compared at this moment
    return Updated(open_index(path, check_sources=False), counts)


def _find_sources(index: Index) -> list[Path]:
    again = f"quaere index FOLDER --out {shlex.quote(str(index.path))} --force"
    if not index.manifest.sources:
        raise BadInput(f"{index.path} was built by a version that did not keep what it was built from", hint=again)
    sources = [Path(source) for source in index.manifest.sources]
    for source in sources:
        if not source.exists():
            raise BadInput(f"{index.path} was built from {source}, which is not there", hint=again)
    return sources


def _same_sources(one: Path, other: Path) -> bool:
    try:
        return (one / SOURCES).read_bytes() == (other / SOURCES).read_bytes()
    except FileNotFoundError:
        return False


def _count(before: dict[str, FileRecord], written: Written) -> UpdateCounts:
    now = {record.id: record for record in written.files}
    same = {name for name in now.keys() & before.keys() if _is_same(now[name], before[name])}
    return UpdateCounts(
        num_added=len(now.keys() - before.keys()),
        num_changed=len(now.keys() & before.keys()) - len(same),
        num_removed=len(before.keys() - now.keys()),
        num_unchanged=len(same),
        num_read=written.num_files_read,
        num_kept=written.num_kept,
        num_embedded=written.num_embedded,
    )


def _is_same(one: FileRecord, other: FileRecord) -> bool:
    return (one.size, one.digest, one.refused) == (other.size, other.digest, other.refused)


# --------------------------------------------------------------------------------------------------------------- watch


def wait_for_changes(path: Path, passed_over: Sequence[SourceFile] = ()) -> list[SourceFile]:
    """Wait until the sources of an index have changed and then stood still for `POLL_S`; the files there are then.

    Sources that were `passed_over`, because an update failed with them, are waited for to change once more.
    """
    last: list[SourceFile] = []
    while True:
        started = time.monotonic()
        index = open_index(path, check_sources=False)
        # To find the files takes longer than to see that none has changed.
        now = _find_files(index) if index.find_changes(bounded=False) else []
        if now and now == last and now != passed_over:
            return now
        last = now
        # A large corpus takes a while to look at: at most a tenth of the time is spent on it.
        time.sleep(max(POLL_S, 10 * (time.monotonic() - started)))


def _find_files(index: Index) -> list[SourceFile]:
    settings = index.manifest.settings
    walk = Walk(
        _find_sources(index),
        leave_out=index.path,
        max_file_mib=settings.max_file_mib,
        include=settings.include,
        exclude=settings.exclude,
        gitignore=settings.gitignore,
    )
    return walk.files()
