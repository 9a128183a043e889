"""Index: a directory with a corpus's passages, its documents and the files of its search engines.

index = build_index(Path("docs"), Path("docs-index"), IndexSettings())
index = open_index(Path("docs-index"))
hits = index.search(["who built the Halm bridge?"], topk=3)[0]
index.document(hits[0].passage.doc_id)[hits[0].passage.start : hits[0].passage.end] == hits[0].passage.text
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import msgspec

from quaere import __version__
from quaere.atomic import new_folder
from quaere.errors import UPDATE_HINT, BadInput, IndexMissing
from quaere.records import Hit, Passage
from quaere.records.foreign_json import decode_json
from quaere.search.bm25 import Bm25Engine, Bm25Settings
from quaere.search.chunks import ChunkSettings, cut
from quaere.search.corpus import CorpusReader, CorpusReport
from quaere.search.dense import DenseEngine, DenseSettings
from quaere.search.engine import Engine, Progress
from quaere.search.files import MAX_FILE_MIB
from quaere.search.hybrid import HybridEngine
from quaere.search.rows import is_rows_file
from quaere.search.store import Store, StoreWriter
from quaere.search.walk import common_folder

FORMAT = 1
READING = "reading documents"  # the stage whose progress is in bytes
_KIND = "quaere-index"
_MANIFEST = "manifest.json"
_LIBRARIES = ("bm25s", "numpy", "faiss-cpu", "sentence-transformers")
_READING_LIBRARIES = ("pypdf", "python-docx", "python-pptx", "openpyxl", "trafilatura")

EngineName = Literal["bm25", "dense", "hybrid"]


class IndexSettings(msgspec.Struct, frozen=True):
    """All settings that determine an index of a given corpus.

    IndexSettings(engine="bm25", chunks=ChunkSettings(max_words=120), bm25=Bm25Settings(k1=1.2))
    """

    engine: EngineName = "bm25"
    chunks: ChunkSettings = ChunkSettings()
    bm25: Bm25Settings = Bm25Settings()
    dense: DenseSettings = DenseSettings()
    max_file_mib: int = MAX_FILE_MIB
    include: tuple[str, ...] = ()  # which files of a folder are read, and which are not, as in a .gitignore
    exclude: tuple[str, ...] = ()
    gitignore: bool = True

    @property
    def engine_names(self) -> tuple[str, ...]:
        """The engines to build: both for "hybrid"."""
        return ("bm25", "dense") if self.engine == "hybrid" else (self.engine,)

    def check(self) -> None:
        """Raise `BadInput` if a setting is out of range."""
        self.chunks.check()
        self.bm25.check()
        self.dense.check()
        if self.max_file_mib < 1:
            raise BadInput(f"max_file_mib must be at least 1, not {self.max_file_mib}")


class Manifest(msgspec.Struct, frozen=True):
    """Content of `manifest.json`. The file is written last: a directory without it is not an index.

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
    source: str = ""  # folder or file that document ids are relative to; "" in indexes built before this field existed
    sources: tuple[str, ...] = ()  # sources as given on the command line; () in indexes built before this field existed


class Index:
    """An open index. It can be shared between threads; the engine is loaded at the first search."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._store = Store(path)
        self._engine: Engine | None = None
        self._engine_lock = threading.Lock()

    def __len__(self) -> int:
        """Number of passages."""
        return len(self._store)

    @property
    def fingerprint(self) -> str:
        """Digest of the corpus and the settings in use."""
        return self.manifest.fingerprint

    def passage(self, number: int) -> Passage:
        """The passage with this number, from 0 to `len(index) - 1`."""
        return self._store.passage(number)

    def passages(self) -> Iterator[Passage]:
        """All passages in order."""
        return self._store.passages()

    def document(self, doc_id: str) -> str:
        """The whole text of a document, which the offsets of its passages refer to."""
        return self._store.document(doc_id)

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

    def document_ids(self) -> Iterator[str]:
        """Ids of all documents in order."""
        return self._store.document_ids()

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
                self._engine = _open_engine(self.path, self.manifest.settings)
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
    with new_folder(out) as unfinished:
        _write_index(sources, out, unfinished, settings, progress or _say_nothing)
    return open_index(out)


def _write_index(sources: list[Path], out: Path, folder: Path, settings: IndexSettings, progress: Progress) -> None:
    reader = CorpusReader(
        sources,
        leave_out=out,
        max_file_mib=settings.max_file_mib,
        include=settings.include,
        exclude=settings.exclude,
        gitignore=settings.gitignore,
    )
    with StoreWriter(folder) as writer:
        for document in reader:
            writer.add(document, cut(document, settings.chunks))
            progress(READING, reader.num_read, reader.num_bytes)
    store = Store(folder)
    if "bm25" in settings.engine_names:
        Bm25Engine.build(store.passages(), len(store), settings.bm25, folder / "bm25", progress)
    if "dense" in settings.engine_names:
        DenseEngine.build(store.passages(), len(store), settings.dense, folder / "dense", progress)
    manifest = Manifest(
        kind=_KIND,
        format=FORMAT,
        fingerprint=_fingerprint(writer.content_digest, settings),
        num_documents=writer.num_documents,
        num_passages=writer.num_passages,
        settings=settings,
        corpus=reader.report,
        versions=_versions(),
        file_sizes=_file_sizes(folder),
        source=_stored_path(sources[0].resolve() if len(sources) == 1 else common_folder(sources)),
        sources=tuple(_stored_path(Path(os.path.abspath(source))) for source in sources),
    )
    (folder / _MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def _stored_path(path: Path) -> str:
    return str(path).encode(errors="replace").decode()  # JSON cannot hold names that are not Unicode


def _fingerprint(content_digest: str, settings: IndexSettings) -> str:
    """Digest of the corpus and of the settings in use; settings of engines that are not built do not count."""
    used: dict[str, object] = {"format": FORMAT, "engine": settings.engine, "chunks": settings.chunks}
    used |= {name: getattr(settings, name) for name in settings.engine_names}
    return sha256(content_digest.encode() + msgspec.json.encode(used, order="deterministic")).hexdigest()


def _versions() -> dict[str, str]:
    versions = {"quaere": __version__}
    for library in _LIBRARIES + _READING_LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            continue
    return versions


def _file_sizes(folder: Path) -> dict[str, int]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}


def _check_target(sources: list[Path], out: Path, force: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not _is_index(out):
        raise BadInput(f"{out} exists and is not an index, so it is not replaced", hint="choose another --out")
    if not force:
        raise BadInput(f"{out} is an index already", hint="--force replaces it")
    for source in sources:
        if source.resolve().is_relative_to(out.resolve()):
            said = f"the corpus {source} lies inside the index {out} it would replace"
            raise BadInput(said, hint="choose another --out")


def _is_index(path: Path) -> bool:
    try:
        return decode_json((path / _MANIFEST).read_bytes(), _Label).kind == _KIND
    except (OSError, msgspec.DecodeError):
        return False


def _say_nothing(doing: str, done: int, total: int | None) -> None:
    """Progress callback that does nothing."""


# ----------------------------------------------------------------------------------------------------------- opening


class _Label(msgspec.Struct):
    """The two fields that the manifest has in every format version."""

    kind: str
    format: int


def open_index(path: Path) -> Index:
    """Open an index; errors say what is wrong with it and what to type."""
    rebuild = f"quaere index FOLDER --out {path}"
    try:
        written = (path / _MANIFEST).read_bytes()
    except OSError:
        state = "is not an index (it has no manifest.json)" if path.exists() else "does not exist"
        raise IndexMissing(f"{path} {state}", hint=rebuild) from None
    try:
        label = decode_json(written, _Label)
        if label.kind == _KIND and label.format > FORMAT:
            message = f"{path} has format {label.format}, this Quaere ({__version__}) reads up to {FORMAT}"
            raise BadInput(message, hint=UPDATE_HINT)
        manifest = decode_json(written, Manifest)
    except msgspec.DecodeError as error:
        raise BadInput(f"{path}/{_MANIFEST} is damaged: {error}", hint=f"delete {path}, then {rebuild}") from error
    if manifest.kind != _KIND:
        raise IndexMissing(f"{path} is not an index (its manifest.json is of another program)", hint=rebuild)
    for name, size in manifest.file_sizes.items():
        file = path / name
        if not file.is_file() or file.stat().st_size != size:
            raise BadInput(
                f"the index {path} is damaged: {name} is missing or has the wrong size", hint=f"{rebuild} --force"
            )
    try:
        return Index(path, manifest)
    except (OSError, ValueError) as error:
        raise BadInput(f"the index {path} is damaged: {error}", hint=f"{rebuild} --force") from error


def _open_engine(path: Path, settings: IndexSettings) -> Engine:
    engines: list[Engine] = []
    if "bm25" in settings.engine_names:
        try:
            engines.append(Bm25Engine.open(path / "bm25"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = f"quaere index FOLDER --out {path} --force"
            raise BadInput(f"the index {path} is damaged: {path / 'bm25'} cannot be read", hint=hint) from error
    if "dense" in settings.engine_names:
        engines.append(DenseEngine.open(path / "dense", settings.dense))
    return engines[0] if len(engines) == 1 else HybridEngine(engines)
