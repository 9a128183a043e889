"""Build of an index, and its update.

index = build_index(Path("docs"), Path("docs-index"), IndexSettings())
updated = update_index(Path("docs-index"))
updated.counts     -> UpdateCounts(num_added=1, num_changed=2, num_removed=0, num_unchanged=40, num_read=3, ...)

In an update only changed files are read and embedded; the result equals that of a new build.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from array import array
from collections.abc import Sequence
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path

import msgspec

from quaere import __version__
from quaere.disk import link_file, new_folder, refuse_taken
from quaere.errors import BadInput
from quaere.search.chunks import cut
from quaere.search.corpus import CorpusReader
from quaere.search.embedders import NO_RERANKER
from quaere.search.engines import EngineBuild, Progress, find_engine
from quaere.search.index import (
    KIND,
    Index,
    IndexSettings,
    Manifest,
    is_index,
    open_index,
    owned_names,
    read_manifest,
    refuse_indexes,
    update_hint,
)
from quaere.search.sources import SOURCES, FileRecord, write_sources
from quaere.search.store import EarlierIndex, Store, StoreWriter
from quaere.search.walk import SourceFile, Walk, common_folder
from quaere.search.words import AUTO, detect_language

READING = "reading documents"  # the part of the work whose progress is in bytes
_NUM_SAMPLED = 1000  # passages from which the language is detected
_LIBRARIES = (
    *("bm25s", "PyStemmer", "numpy", "faiss-cpu", "sentence-transformers", "lancedb"),
    *("pypdf", "python-docx", "python-pptx", "openpyxl"),
)


def build_index(
    source: Path | Sequence[Path],
    out: Path,
    settings: IndexSettings | None = None,
    progress: Progress | None = None,
    force: bool = False,
) -> Index:
    """Build an index of the corpus at one or several sources in the directory `out`, atomically.

    With `force`, an existing index is replaced; a directory that is not an index is never changed.
    """
    settings = settings or IndexSettings()
    settings.check()
    sources = [source] if isinstance(source, Path) else list(source)
    _check_target(sources, out, force)
    settings.open_reranker()  # a missing model fails now and not at the first search
    with new_folder(out, owned=owned_names(out)) as unfinished:
        write_index(sources, out, unfinished, settings, progress or say_nothing)
    return open_index(out, check_sources=False)


class UpdateCounts(msgspec.Struct, frozen=True):
    """Counts of an update: files added, changed, removed, unchanged and read; passages kept and embedded.

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


def write_index(
    sources: list[Path],
    out: Path,
    folder: Path,
    settings: IndexSettings,
    progress: Progress,
    *,
    earlier: EarlierIndex | None = None,
    reuse: bool = False,
) -> tuple[Manifest, UpdateCounts]:
    """Write the index that will be moved to `out` into `folder`; returns its manifest and the counts of the work done.

    Vectors of an `earlier` index are reused; with `reuse` also the documents and passages of unchanged files.
    """
    began_ns = time.time_ns()
    known = earlier if reuse else None
    reader = CorpusReader(sources, settings.choose_files(out), known)
    digest, kept = _write_store(folder, reader, settings, known, progress)
    settings = _choose_stemmer(settings, store := Store(folder))
    write_sources(folder, reader.folders, reader.records, began_ns)
    fingerprint = _fingerprint(digest, settings)
    same, num_embedded = known if known and read_manifest(known.path).fingerprint == fingerprint else None, 0
    for name in settings.engine_names:
        if same:
            shutil.copytree(same.path / name, folder / name, copy_function=link_file)
        else:
            vectors = partial(earlier.find_vectors, name, store, kept) if earlier else None
            build = EngineBuild(store.passage, len(store), settings, folder / name, progress, vectors)
            num_embedded += find_engine(name).build(build)
    written = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = Manifest(
        kind=KIND,
        format=settings.format,
        fingerprint=fingerprint,
        num_documents=reader.report.num_documents,
        num_passages=len(store),
        settings=settings,
        corpus=reader.report,
        versions=library_versions(),
        file_sizes={path.relative_to(folder).as_posix(): path.stat().st_size for path in written},
        source=_stored_path(sources[0].resolve() if len(sources) == 1 else common_folder(sources)),
        sources=tuple(_stored_path(Path(os.path.abspath(source))) for source in sources),
    )
    manifest.write(folder)
    files = _count_files(earlier.files if earlier else {}, reader.records)
    return manifest, UpdateCounts(*files, reader.num_files_read, sum(number >= 0 for number in kept), num_embedded)


def _count_files(before: dict[str, FileRecord], records: list[FileRecord]) -> tuple[int, int, int, int]:
    """Numbers of files added, changed, removed and unchanged since the earlier records."""
    now = {record.id: record for record in records}
    both, alike = now.keys() & before.keys(), attrgetter("size", "digest", "refused")
    num_same = sum(alike(now[name]) == alike(before[name]) for name in both)
    return len(now.keys() - both), len(both) - num_same, len(before.keys() - both), num_same


def _write_store(
    folder: Path, reader: CorpusReader, settings: IndexSettings, known: EarlierIndex | None, progress: Progress
) -> tuple[str, array[int]]:
    """Write documents and passages to `folder`; returns their digest and, per passage, its earlier number or -1."""
    kept = array("q")
    with StoreWriter(folder) as writer:
        for document in reader:
            if known is None or document.stored is None:
                passages = cut(document, settings.chunks)
                kept.extend([-1] * len(passages))
            else:
                numbers = known.passage_numbers(document.stored)
                passages = [known.passage(number) for number in numbers]
                kept.extend(numbers)
            writer.add(document, passages)
            progress(READING, reader.num_read, reader.num_bytes)
    return writer.content.hexdigest(), kept


def _choose_stemmer(settings: IndexSettings, store: Store) -> IndexSettings:
    if "bm25" not in settings.parts or settings.bm25.stemmer != AUTO:
        return settings
    step = max(1, len(store) // _NUM_SAMPLED)
    language = detect_language(store.passage(number).text for number in range(0, len(store), step))
    return msgspec.structs.replace(settings, bm25=msgspec.structs.replace(settings.bm25, stemmer=language))


def _stored_path(path: Path) -> str:
    return str(path).encode(errors="replace").decode()  # JSON cannot hold names that are not Unicode


def _fingerprint(content_digest: str, settings: IndexSettings) -> str:
    """Digest of the corpus and of the settings in use; settings of engines that are not built do not count."""
    used: dict[str, object] = {"format": settings.format, "engine": settings.engine, "chunks": settings.chunks}
    used |= {name: getattr(settings, name) for name in settings.parts}
    used |= {"bm25": settings.bm25.fingerprinted} if "bm25" in used else {}
    used |= {"rerank": settings.rerank} if settings.rerank != NO_RERANKER else {}
    return sha256(content_digest.encode() + msgspec.json.encode(used, order="deterministic")).hexdigest()


def _check_target(sources: list[Path], out: Path, force: bool) -> None:
    refuse_taken(out, "an index", is_ours=is_index(out), force=force, hint=update_hint(out))
    refuse_indexes(sources)
    if inside := next((source for source in sources if source.resolve().is_relative_to(out.resolve())), None):
        raise BadInput(f"the corpus {inside} lies inside the index {out} it would replace", hint="choose another --out")


def say_nothing(doing: str, done: int, total: int | None) -> None:
    """Progress callback that does nothing."""


def library_versions() -> dict[str, str]:
    """The versions of Quaere and of the installed libraries that read and search documents, by name."""
    installed = {library: _version_of(library) for library in _LIBRARIES}
    return {"quaere": __version__, **{library: found for library, found in installed.items() if found}}


@cache
def _version_of(library: str) -> str:
    """The installed version of a library, "" if it is not installed; cached, because each lookup reads a file."""
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


# --------------------------------------------------------------------------------------------------------------- update

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
        with new_folder(path, owned=owned_names(path)) as unfinished:
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
        raise BadInput(f"{index.path} was built by an earlier version, which did not record its sources", hint=again)
    sources = [Path(source) for source in index.manifest.sources]
    if gone := next((source for source in sources if not source.exists()), None):
        raise BadInput(f"{index.path} was built from {gone}, which no longer exists", hint=again)
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
