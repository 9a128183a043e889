"""Index: a directory with a corpus's passages, its documents and the files of its search engines.

index = build_index(Path("docs"), Path("docs-index"), IndexSettings())
index = open_index(Path("docs-index"))
hits = index.search(["who built the Halm bridge?"], topk=3)[0]
index.document(hits[0].passage.doc_id)[hits[0].passage.start : hits[0].passage.end] == hits[0].passage.text
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
import warnings
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import sha256
from operator import attrgetter
from pathlib import Path

import msgspec

from quaere.disk import link_file, new_folder, refuse_taken
from quaere.errors import BadInput, StaleIndex
from quaere.records import Hit
from quaere.search.chunks import cut
from quaere.search.corpus import CorpusReader
from quaere.search.embedders import NO_RERANKER, RerankEngine
from quaere.search.engines import Engine, EngineBuild, Progress, find_engine, fuse_engines, rebuild_hint
from quaere.search.json_lines import is_rows_file
from quaere.search.link_graph import Backlink, LinkGraph
from quaere.search.manifest import (
    KIND,
    MANIFEST,
    IndexSettings,
    Manifest,
    is_index,
    library_versions,
    read_manifest,
    update_hint,
)
from quaere.search.sources import MAX_LOOKS, Changes, FileRecord, find_changes, write_sources
from quaere.search.store import EarlierIndex, Store, StoreWriter
from quaere.search.walk import common_folder
from quaere.search.words import AUTO, detect_language

__all__ = ["Index", "IndexSettings", "Manifest", "build_index", "open_index"]

STALE_CHECK = "QUAERE_STALE_CHECK"  # the environment variable; "off" turns the check of sources off
READING = "reading documents"  # the part of the work whose progress is in bytes
_NUM_SAMPLED = 1000  # passages that the language is told by


class Index(Store):
    """An open index. It can be shared between threads; the engine is loaded at the first search."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        super().__init__(path)
        self.path = path
        self.manifest = manifest
        self._graph = LinkGraph(self)
        self._engine: Engine | None = None
        self._engine_lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        """Digest of the corpus and of the settings that influence search results."""
        return self.manifest.fingerprint

    def links_to(self, doc_id: str) -> Iterator[Backlink]:
        """Hyperlinks of other documents to this one, each with its passage; none in an index of an earlier version."""
        return self._graph.links_to(doc_id)

    def document_file(self, doc_id: str) -> Path | None:
        """The file a document was read from, if it was a file of its own and still exists; else None."""
        source = Path(self.manifest.source)
        if not self.manifest.source or is_rows_file(source) or not source.exists():
            return None
        folder = source if source.is_dir() else source.parent
        file = Path(os.path.normpath(folder / doc_id))
        # An id may be any string, such as "../../etc/passwd": only a file inside the corpus is returned.
        corpus = [Path(named) for named in self.manifest.sources] if len(self.manifest.sources) > 1 else [folder]
        try:
            return file if any(map(file.is_relative_to, corpus)) and file.is_file() else None
        except (OSError, ValueError):  # the id is too long for a file name, or contains NUL
            return None

    def find_changes(self, *, bounded: bool = True) -> Changes:
        """Names of source files and folders that changed since the index was built; none if the sources are missing.

        With `bounded`, only the first few thousand folders and files are checked.
        """
        sources = [Path(source) for source in self.manifest.sources]
        if not sources or not all(map(Path.exists, sources)):
            return Changes()
        gitignore, most = self.manifest.settings.gitignore, MAX_LOOKS if bounded else sys.maxsize
        return find_changes(self.path, sources, gitignore=gitignore, max_looks=most)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """At most `topk` passages per query, best first."""
        if topk < 1:
            raise BadInput(f"topk must be at least 1, not {topk}")
        found = self.engine.search(queries, topk)
        return [[Hit(self.passage(match.number), match.score) for match in matches] for matches in found]

    @property
    def engine(self) -> Engine:
        """The search engine. Loading an embedder takes seconds, so a server accesses this before it listens."""
        with self._engine_lock:
            if self._engine is None:
                if read_manifest(self.path).fingerprint != self.fingerprint:
                    raise BadInput(f"the index {self.path} was replaced after it had been opened", hint="try again")
                settings = self.manifest.settings
                parts = [find_engine(name).open(self.path / name, settings) for name in settings.engine_names]
                engine, encoder = fuse_engines(parts), settings.open_reranker()
                self._engine = RerankEngine(engine, encoder, self.passage) if encoder else engine
            return self._engine


# ---------------------------------------------------------------------------------------------------------- building


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
    with new_folder(out) as unfinished:
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
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2))
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
    if inside := next((source for source in sources if source.resolve().is_relative_to(out.resolve())), None):
        raise BadInput(f"the corpus {inside} lies inside the index {out} it would replace", hint="choose another --out")


def say_nothing(doing: str, done: int, total: int | None) -> None:
    """Progress callback that does nothing."""


# ----------------------------------------------------------------------------------------------------------- opening


def open_index(path: Path, *, check_sources: bool = True) -> Index:
    """Open an index; raises an error with a hint if it is missing or damaged.

    With `check_sources`, a `StaleIndex` warning is issued if the sources have changed since it was built.
    """
    manifest = read_manifest(path)
    try:
        for name, size in manifest.file_sizes.items():
            if not (path / name).is_file() or (path / name).stat().st_size != size:
                raise ValueError(f"{name} is missing or has the wrong size")
        index = Index(path, manifest)
    except (OSError, ValueError) as error:
        raise BadInput(f"the index {path} is damaged: {error}", hint=f"{rebuild_hint(path)} --force") from error
    is_checked = check_sources and os.environ.get(STALE_CHECK, "").lower() not in ("off", "0", "no", "false")
    if is_checked and (changes := index.find_changes()):
        said = f"the index {path} is stale, {changes.describe()} since it was built: {update_hint(path)}"
        # Always warned from this line, so that Python shows the warning once for an index that is opened repeatedly.
        warnings.warn(said, StaleIndex, stacklevel=1)
    return index
