"""Update of an index: only changed files are read and embedded; the result equals that of a new build.

updated = update_index(Path("docs-index"))
updated.counts     -> UpdateCounts(num_added=1, num_changed=2, num_removed=0, num_unchanged=40, num_read=3, ...)
"""

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from quaere.disk import new_folder
from quaere.errors import BadInput
from quaere.search.engines import Progress
from quaere.search.index import Index, UpdateCounts, open_index, say_nothing, write_index
from quaere.search.manifest import library_versions
from quaere.search.sources import SOURCES
from quaere.search.store import EarlierIndex
from quaere.search.walk import SourceFile, Walk

POLL_S = 2.0


class Updated(msgspec.Struct, frozen=True):
    """The result of `update_index`: the updated index, and counts of files and passages processed."""

    index: Index
    counts: UpdateCounts


class _NothingToWrite(Exception):
    """Raised to discard the new index if it equals the old one."""


def update_index(path: Path, progress: Progress | None = None, *, rerank: str | None = None) -> Updated:
    """Update the index at `path` to the present state of its sources, atomically; `rerank` changes its reranker.

    The new index is written to a temporary folder, which replaces the old one at the end, as by `build_index`.
    """
    before = open_index(path, check_sources=False)
    sources, began_ns, earlier = _find_sources(before), time.time_ns(), EarlierIndex(path)
    settings = before.manifest.settings
    if rerank not in (None, settings.rerank):
        settings = msgspec.structs.replace(settings, rerank=rerank)
        settings.open_reranker()  # a missing model fails now and not at the first search
    # Another version of a library may read a file differently, so files are then read again; vectors stay valid.
    reads_alike = before.manifest.versions == library_versions()
    try:
        with new_folder(path) as unfinished:
            manifest, counts = write_index(
                sources, path, unfinished, settings, progress or say_nothing, earlier=earlier, reuse=reads_alike
            )
            if manifest == before.manifest and _same_sources(path, unfinished):
                raise _NothingToWrite
    except _NothingToWrite:
        os.utime(path / SOURCES, ns=(began_ns, began_ns))  # its files were compared at this moment
    return Updated(open_index(path, check_sources=False), counts)


def _find_sources(index: Index) -> list[Path]:
    again = f"quaere index FOLDER --out {shlex.quote(str(index.path))} --force"
    if not index.manifest.sources:
        raise BadInput(f"{index.path} was built by a version that did not keep what it was built from", hint=again)
    sources = [Path(source) for source in index.manifest.sources]
    if gone := next((source for source in sources if not source.exists()), None):
        raise BadInput(f"{index.path} was built from {gone}, which is not there", hint=again)
    return sources


def _same_sources(one: Path, other: Path) -> bool:
    try:
        return (one / SOURCES).read_bytes() == (other / SOURCES).read_bytes()
    except FileNotFoundError:
        return False


# --------------------------------------------------------------------------------------------------------------- watch


def wait_for_changes(path: Path, passed_over: Sequence[SourceFile] = ()) -> list[SourceFile]:
    """Block until the sources of an index have changed and then been stable for `POLL_S` seconds; returns their files.

    `passed_over` are the files of an update that failed: it returns only once they have changed again.
    """
    last: list[SourceFile] = []
    while True:
        started = time.monotonic()
        index = open_index(path, check_sources=False)
        # Listing the files takes longer than checking that none has changed.
        now = _find_files(index) if index.find_changes(bounded=False) else []
        if now and now == last and now != passed_over:
            return now
        last = now
        # Checking a large corpus takes a while: at most a tenth of the time is spent on it.
        time.sleep(max(POLL_S, 10 * (time.monotonic() - started)))


def _find_files(index: Index) -> list[SourceFile]:
    return Walk(_find_sources(index), index.manifest.settings.choose_files(index.path)).files()
