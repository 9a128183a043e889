"""The manifest of an index (`manifest.json`): its sources, its settings and the versions that built it."""

import shlex
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from quaere import __version__
from quaere.errors import UPDATE_HINT, BadInput, IndexMissing
from quaere.records.foreign_json import decode_json
from quaere.search.bm25 import PLAIN_WORDS, Bm25Settings
from quaere.search.chunks import ChunkSettings
from quaere.search.embedders import NO_RERANKER, DenseSettings, Embedder, open_reranker
from quaere.search.engines import FUSED, find_engine, rebuild_hint
from quaere.search.files import MAX_FILE_MIB
from quaere.search.lance import LanceSettings
from quaere.search.walk import CorpusReport, FileChoice

FORMAT = 2  # since 2 there are stems, whole names and rerankers, which a program that knows only 1 would not apply
KIND = "quaere-index"
MANIFEST = "manifest.json"
_LIBRARIES = (
    *("bm25s", "PyStemmer", "numpy", "faiss-cpu", "sentence-transformers", "lancedb"),
    *("pypdf", "python-docx", "python-pptx", "openpyxl"),
)


class IndexSettings(msgspec.Struct, frozen=True):
    """All settings of an index: engines, chunking, choice of files and reranker.

    IndexSettings(engine="bm25", chunks=ChunkSettings(max_words=120), bm25=Bm25Settings(k1=1.2))
    """

    engine: str = "bm25"
    chunks: ChunkSettings = ChunkSettings()
    bm25: Bm25Settings = Bm25Settings()
    dense: DenseSettings = DenseSettings()
    lance: LanceSettings = LanceSettings()
    rerank: str = NO_RERANKER  # the sentence encoder that the first passages are compared with the query by
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
    source: str = ""  # the folder or file that document ids are relative to; "" in indexes built before this was kept
    sources: tuple[str, ...] = ()  # what was named on the command line; () in indexes built before this was kept


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


class _Label(msgspec.Struct):
    """The fields that a manifest has in every format; read first, to find the format."""

    kind: str
    format: int
    settings: Any = None


def read_manifest(path: Path) -> Manifest:
    """The manifest of the index at `path`; raises an error with a hint if it is missing, damaged or too new."""
    rebuild = rebuild_hint(path)
    try:
        written = (path / MANIFEST).read_bytes()
    except OSError:
        state = "is not an index (it has no manifest.json)" if path.exists() else "does not exist"
        raise IndexMissing(f"{path} {state}", hint=rebuild) from None
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
