"""Index: a directory with a corpus's passages, its documents and the files of its search engines.

index = build_index(Path("docs"), Path("docs-index"), IndexSettings())     # index_build.py
index = open_index(Path("docs-index"))
hits = index.search(["who built the Halm bridge?"], topk=3)[0]
index.document(hits[0].passage.doc_id)[hits[0].passage.start : hits[0].passage.end] == hits[0].passage.text

Its manifest (`manifest.json`) has its sources, its settings and the versions that built it.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from quaere import __version__
from quaere.errors import UPDATE_HINT, BadInput, IndexMissing, StaleIndex
from quaere.records import Hit
from quaere.records.foreign_json import decode_json
from quaere.search.bm25 import PLAIN_WORDS, Bm25Settings
from quaere.search.chunks import ChunkSettings
from quaere.search.embedders import NO_RERANKER, DenseSettings, Embedder, RerankEngine, open_reranker
from quaere.search.engines import FUSED, Engine, find_engine, fuse_engines, rebuild_hint
from quaere.search.files import MAX_FILE_MIB
from quaere.search.json_lines import is_rows_file
from quaere.search.lance import LanceSettings
from quaere.search.link_graph import Backlink, LinkGraph
from quaere.search.sources import MAX_LOOKS, Changes, find_changes
from quaere.search.store import Store
from quaere.search.walk import CorpusReport, FileChoice

STALE_CHECK = "QUAERE_STALE_CHECK"  # the environment variable; "off" turns the check of sources off


class Index(Store):
    """An open index. It can be shared between threads; the engine is loaded at the first search."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        super().__init__(path)
        self.path = path
        self.manifest = manifest
        self._graph = LinkGraph(self, path)
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


# ------------------------------------------------------------------------------------------------------------- manifest

FORMAT = 2  # since 2 there are stems, whole names and rerankers, which a program that knows only 1 would not apply
KIND = "quaere-index"
MANIFEST = "manifest.json"


class IndexSettings(msgspec.Struct, frozen=True):
    """All settings of an index: engines, chunking, choice of files and reranker.

    IndexSettings(engine="bm25", chunks=ChunkSettings(max_words=120), bm25=Bm25Settings(k1=1.2))
    """

    engine: str = "bm25"
    chunks: ChunkSettings = ChunkSettings()
    bm25: Bm25Settings = Bm25Settings()
    dense: DenseSettings = DenseSettings()
    lance: LanceSettings = LanceSettings()
    rerank: str = NO_RERANKER  # the sentence encoder that reranks the first passages
    max_file_mib: int = MAX_FILE_MIB
    include: tuple[str, ...] = ()  # which files of a folder are read, and which are not, as in a .gitignore
    exclude: tuple[str, ...] = ()
    gitignore: bool = True

    @property
    def engine_names(self) -> tuple[str, ...]:
        """The names of the engines to build; for "hybrid" both "bm25" and "dense"."""
        return FUSED.get(self.engine, (self.engine,))

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the fields, such as "bm25", that the index's engines use."""
        return tuple(part for name in self.engine_names for part in find_engine(name).uses(self))

    @property
    def has_vectors(self) -> bool:
        """True if passages are embedded."""
        return "dense" in self.parts

    @property
    def format(self) -> int:
        """The oldest index format that supports these settings."""
        has_new_words = "bm25" in self.parts and not self.bm25.is_plain
        return 2 if has_new_words or self.rerank != NO_RERANKER else 1

    @property
    def summary(self) -> str:
        """A short description of engine, stemmer and reranker: `bm25, stemmer english, reranked by MODEL`."""
        stemmer = f", stemmer {self.bm25.stemmer}" if "bm25" in self.parts else ""
        return self.engine + stemmer + (f", reranked by {self.rerank}" if self.rerank != NO_RERANKER else "")

    def choose_files(self, index: Path) -> FileChoice:
        """The choice of source files for the index at this path, whose own folder is left out."""
        return FileChoice(index, self.max_file_mib, self.include, self.exclude, self.gitignore)

    def check(self) -> None:
        """Raise `BadInput` for an unknown engine, and for values out of range or in conflict."""
        self.chunks.check()
        self.bm25.check()
        self.dense.check()
        for name in self.engine_names:
            find_engine(name).check(self)
        if self.max_file_mib < 1:
            raise BadInput(f"max_file_mib must be at least 1, not {self.max_file_mib}")

    def open_reranker(self) -> Embedder | None:
        """Load the reranker; None if none is set."""
        return open_reranker(self.rerank) if self.rerank != NO_RERANKER else None


class Manifest(msgspec.Struct, frozen=True):
    """Content of `manifest.json`. It is written last: a directory without it is not an index.

    Manifest(kind="quaere-index", format=1, fingerprint="5f2c...", num_documents=12, num_passages=31, ...)
    """

    kind: str
    format: int
    fingerprint: str
    num_documents: int
    num_passages: int
    settings: IndexSettings
    corpus: CorpusReport
    versions: dict[str, str]
    file_sizes: dict[str, int]
    source: str = ""  # the folder or file that document ids are relative to; "" in indexes built before this was stored
    sources: tuple[str, ...] = ()  # the paths named on the command line; () in indexes built before this was stored

    def write(self, folder: Path) -> None:
        """Write the manifest of the index in a folder."""
        (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2))


class _Label(msgspec.Struct):
    """The fields that a manifest has in every format; read first, to find the format."""

    kind: str
    format: int
    settings: Any = None


class _Owned(msgspec.Struct):
    """The fields of a manifest of any version that say which files the index has."""

    file_sizes: dict[str, int] = {}


def read_manifest(path: Path) -> Manifest:
    """The manifest of the index at `path`; raises an error with a hint if it is missing, damaged or too new."""
    rebuild = rebuild_hint(path)
    try:
        written = (path / MANIFEST).read_bytes()
    except PermissionError as error:
        raise BadInput(f"{path}/{MANIFEST} cannot be read: {error.strerror}") from None
    except OSError:
        if str(path).startswith(("http:/", "https:/")):
            raise IndexMissing(f"{path} is the URL of a server: an index directory is needed here") from None
        if not os.path.exists(path):  # unlike Path.exists, false for a name that is too long
            raise IndexMissing(f"{path} does not exist", hint=rebuild) from None
        # Most often the user named the folder of the documents instead of their index.
        said = f"{path} is not an index (it has no manifest.json)"
        raise IndexMissing(said, hint=f"quaere index {shlex.quote(str(path))} --out INDEX") from None
    try:
        label = decode_json(written, _Label)
        if label.kind == KIND and label.format > FORMAT:
            message = f"{path} has format {label.format}, this Quaere ({__version__}) reads up to {FORMAT}"
            raise BadInput(message, hint=UPDATE_HINT)
        manifest = decode_json(written, Manifest)
        if "stemmer" not in label.settings.get("bm25", {}):
            bm25 = msgspec.structs.replace(manifest.settings.bm25, **PLAIN_WORDS)
            manifest = msgspec.structs.replace(manifest, settings=msgspec.structs.replace(manifest.settings, bm25=bm25))
    except msgspec.DecodeError as error:
        raise BadInput(f"{path}/{MANIFEST} is damaged: {error}", hint=f"delete {path}, then {rebuild}") from error
    if manifest.kind != KIND:
        raise IndexMissing(f"{path} is not an index (its manifest.json is of another program)", hint=rebuild)
    return manifest


def update_hint(path: Path) -> str:
    """The command that updates the index at `path`, for messages."""
    return f"quaere index --update {shlex.quote(str(path))}"


def is_index(path: Path) -> bool:
    """True if there is an index of any version at `path`."""
    try:
        return decode_json((path / MANIFEST).read_bytes(), _Label).kind == KIND
    except (OSError, msgspec.DecodeError):
        return False


def refuse_indexes(sources: Iterable[Path]) -> None:
    """Raise BadInput if one of the sources of documents is an index: its files are not the documents."""
    for source in filter(is_index, sources):
        documents = shlex.join(read_manifest(source).sources) or "FOLDER"
        search = f'quaere search "..." --index {shlex.quote(str(source))}'
        said = f"{source} is an index, and documents are needed here"
        raise BadInput(said, hint=f"name its documents: {documents}; or search it: {search}")


def owned_names(path: Path) -> frozenset[str]:
    """The names of an index's files and folders in its folder, as far as its manifest can be read."""
    try:
        sizes = decode_json((path / MANIFEST).read_bytes(), _Owned).file_sizes
    except (OSError, msgspec.DecodeError):
        sizes = {}
    return frozenset({MANIFEST, *(name.partition("/")[0] for name in sizes)})


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
        if read_manifest(path) != manifest:  # an update has replaced the index after its manifest was read
            return open_index(path, check_sources=check_sources)
        raise BadInput(f"the index {path} is damaged: {error}", hint=f"{rebuild_hint(path)} --force") from error
    is_checked = check_sources and os.environ.get(STALE_CHECK, "").lower() not in ("off", "0", "no", "false")
    if is_checked and (changes := index.find_changes()):
        said = f"the index {path} is stale, {changes.describe()} since it was built: {update_hint(path)}"
        # Always warned from this line, so that Python shows the warning once for an index that is opened repeatedly.
        warnings.warn(said, StaleIndex, stacklevel=1)
    return index
