"""`quaere.Index`: a corpus that can be searched.

index = Index.build("notes/", "notes-index")
index.search("backups", k=3) -> [Hit(passage=Passage(...), score=7.25), ...]
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, Unpack

import msgspec

from quaere.api.printing import count
from quaere.errors import BadInput
from quaere.records import Hit, Passage
from quaere.search.bm25 import Bm25Settings
from quaere.search.chunks import ChunkSettings
from quaere.search.embedders import DenseSettings
from quaere.search.engines import Progress
from quaere.search.index import Index as OpenIndex
from quaere.search.index import IndexSettings, open_index
from quaere.search.index_build import build_index
from quaere.search.lance import LanceSearch, LanceSettings
from quaere.setting_types import refuse_unknown


class IndexOptions(TypedDict, total=False):
    """What can be set about an index; the options of `quaere index` say what each does."""

    max_words: int
    overlap_words: int
    row_words: int
    max_file_mib: int
    include: Sequence[str]
    exclude: Sequence[str]
    gitignore: bool
    k1: float
    b: float
    title_weight: int
    stemmer: str
    rerank: str
    embedder: str
    query_prefix: str
    passage_prefix: str
    ann: Literal["flat", "ivf", "hnsw"]
    num_lists: int
    num_probes: int
    num_links: int
    search_width: int
    batch_size: int
    lance_search: LanceSearch


def index_settings(given: Mapping[str, Any]) -> IndexSettings:
    """Settings of an index out of options by name; each goes to the part that has a field of that name.

    index_settings({"engine": "bm25", "max_words": 200}).chunks.max_words == 200
    """
    try:
        parts = {
            "chunks": msgspec.convert(given, ChunkSettings),
            "bm25": msgspec.convert(given, Bm25Settings),
            "dense": msgspec.convert(given, DenseSettings).with_known_prefixes(),
            "lance": msgspec.convert(given, LanceSettings),
        }
        settings = msgspec.convert({**given, **parts}, IndexSettings)
    except msgspec.ValidationError as error:
        raise BadInput(f"an index cannot be built like this: {error}") from error
    for engine in sorted({"bm25", "dense", "lance"}.difference(settings.parts)):
        if unused := next((name for name in parts[engine].__struct_fields__ if name in given), None):
            said = f"engine {settings.engine} has no use for {unused}"
            raise BadInput(said, hint=f"leave it out, or --engine {engine}")
    return settings


class Index:
    """An index directory, open for searching. It may be shared between threads and between agents.

    Index.open("notes-index").search("backups")
    """

    def __init__(self, opened: OpenIndex) -> None:
        self.opened = opened

    @classmethod
    def build(
        cls,
        source: str | Path,
        out: str | Path,
        *,
        engine: str = "bm25",
        force: bool = False,
        on_progress: Progress | None = None,
        **options: Unpack[IndexOptions],
    ) -> Self:
        """Index a folder of documents, one document or a JSON Lines file, and open the result.

        The index appears at `out` when it is complete. With `force`, an index that is there is replaced. `on_progress`
        is called with what is being done, how much of it is done, and how much there is (None: unknown).
        """
        refuse_unknown(options, IndexOptions.__annotations__, "index option")
        settings = index_settings({"engine": engine, **options})
        return cls(build_index(Path(source), Path(out), settings, on_progress, force=force))

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open the index directory at `path`."""
        return cls(open_index(Path(path)))

    def search(self, query: str, k: int = 3) -> list[Hit]:
        """At most `k` passages, best first."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int = 3) -> list[list[Hit]]:
        """For each query at most `k` passages, best first; embedders are faster on many at once."""
        if isinstance(queries, str) or not all(isinstance(query, str) for query in queries):
            raise BadInput("queries are texts", hint='index.search("halm bridge"), index.search_many(["oss", "halm"])')
        return self.opened.search(queries, k)

    def document(self, doc_id: str) -> str:
        """The whole text of a document, which the offsets of passages and evidence point into."""
        return self.opened.document(doc_id)

    def document_ids(self) -> Iterator[str]:
        """The id of every document, in order."""
        return self.opened.document_ids()

    def passages(self) -> Iterator[Passage]:
        """Every passage, in order."""
        return self.opened.passages()

    @property
    def path(self) -> Path:
        """The index directory."""
        return self.opened.path

    def __len__(self) -> int:
        """The number of passages."""
        return len(self.opened)

    def __repr__(self) -> str:
        manifest = self.opened.manifest
        return f"<Index {self.path}: {count(len(self), 'passage')} of {count(manifest.num_documents, 'document')}>"
