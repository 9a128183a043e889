"""Dense retrieval: an embedder turns passages and queries into vectors, FAISS finds the nearest passages.

Vectors have norm 1, so a score is the cosine similarity of query and passage, from -1 to 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from quaere.errors import BadInput, import_extra
from quaere.records import Passage
from quaere.search.embedders import DenseSettings, Embedder, Vectors, open_embedder
from quaere.search.engines import Backend, EngineBuild, Match, rank, rebuild_hint

if TYPE_CHECKING:
    from quaere.search.index import IndexSettings

SPARE = 16  # passages fetched beyond `topk`, so that ties at the cut are ordered by passage number before the cut
_AT_ONCE = 65_536  # vectors that are read or added
_import_faiss = partial(import_extra, "faiss", "dense search needs faiss", extra="dense")
_SAME_COSINE = 0.999  # least cosine of two vectors of one text by one embedder, whose rounding depends on the batch


class _DenseEngine(Struct):
    embedder: Embedder
    neighbours: Any

    def search(self, queries: Sequence[str], topk: int) -> list[list[Match]]:
        if not queries:
            return []
        vectors = embed_queries(self.embedder, queries, self.neighbours.d)
        scores, numbers = self.neighbours.search(vectors, min(topk + SPARE, self.neighbours.ntotal))
        # FAISS pads with -1 if it finds fewer.
        return [
            rank([Match(int(n), float(s)) for n, s in zip(*row, strict=True) if n >= 0], topk)
            for row in zip(numbers, scores, strict=True)
        ]


def _open_dense(folder: Path, settings: IndexSettings) -> _DenseEngine:
    dense, neighbours = settings.dense, _read_neighbours(folder)
    if dense.ann == "ivf":
        neighbours.nprobe = min(dense.num_probes, neighbours.nlist)
    elif dense.ann == "hnsw":
        neighbours.hnsw.efSearch = dense.search_width
    return _DenseEngine(open_embedder(dense), neighbours)


def embed_queries(embedder: Embedder, queries: Sequence[str], width: int) -> Vectors:
    """Vectors of the queries; `BadInput` unless they have `width` dimensions, as the passages of the index."""
    vectors = embedder.embed_queries(queries)
    if vectors.shape[1] != width:
        said = f"the embedder's vectors have {vectors.shape[1]} dimensions, those of the index {width}"
        raise BadInput(said, hint="search with the embedder that the index was built with")
    return vectors


def makes_same(embedder: Embedder, passage: Passage, earlier: Vectors) -> bool:
    """True if the embedder gives the passage its earlier vector again; its name may by now be that of another model."""
    again = embedder.embed_passages([passage])[0]
    return again.shape == earlier.shape and float(again @ earlier) > _SAME_COSINE


def choose_num_lists(settings: DenseSettings, num_vectors: int) -> int:
    """The number of clusters of an IVF index: that of the settings, or about 4 sqrt(n) with 40 passages or more each.

    With fewer passages per cluster, the clusters are noise.
    """
    return settings.num_lists or max(1, min(round(4 * sqrt(num_vectors)), num_vectors // 40))


# ----------------------------------------------------------------------------------------------------------- building


def _build_dense(build: EngineBuild) -> int:
    faiss = _import_faiss()
    build.folder.mkdir(parents=True, exist_ok=True)
    scratch = build.folder / "vectors.tmp"
    try:
        vectors, num_embedded = _gather_vectors(build, scratch)
        build.progress("linking neighbours", 0, None)
        neighbours = _build_neighbours(faiss, vectors, build.settings.dense)
        faiss.write_index(neighbours, str(build.folder / "neighbours.faiss"))
        del vectors
    finally:
        scratch.unlink(missing_ok=True)
    return num_embedded


DENSE = Backend(_build_dense, _open_dense, uses=lambda settings: ("dense",))


def _gather_vectors(build: EngineBuild, scratch: Path) -> tuple[Vectors, int]:
    """The vectors, one row per passage: taken from the earlier index if known there, else embedded now and counted.

    They are written to the file `scratch`, because two copies of a large corpus's vectors do not fit into memory.
    """
    known = build.known() if build.known else None
    rows = known.rows if known else np.full(build.num_passages, -1)

    def allocate(width: int) -> Vectors:
        return np.memmap(scratch, dtype=np.float32, mode="w+", shape=(build.num_passages, width))

    # Loading an embedder takes seconds, and an update that only removes passages does not need one.
    embedder = open_embedder(build.settings.dense) if (rows < 0).any() else None
    vectors: Vectors | None = None
    if known and (rows >= 0).any():
        earlier, number = read_vectors(known.folder), int(np.argmax(rows >= 0))
        if embedder is None or makes_same(embedder, build.read(number), earlier[rows[number]]):
            vectors = allocate(earlier.shape[1])
            for numbers in _batches(np.flatnonzero(rows >= 0), _AT_ONCE):
                vectors[numbers] = earlier[rows[numbers]]
        else:
            rows = np.full(build.num_passages, -1)
        del earlier
    wanted, num_embedded = np.flatnonzero(rows < 0), 0
    if embedder:
        for numbers in _batches(wanted, embedder.num_at_once):
            embedded = embedder.embed_passages([build.read(number) for number in numbers.tolist()])
            vectors = allocate(embedded.shape[1]) if vectors is None else vectors
            vectors[numbers] = embedded
            num_embedded += len(numbers)
            build.progress("embedding", num_embedded, len(wanted))
    assert vectors is not None, "an index holds at least one passage"
    return vectors, num_embedded


def _batches(numbers: np.typing.NDArray[np.int64], size: int) -> Iterator[np.typing.NDArray[np.int64]]:
    return (numbers[start : start + size] for start in range(0, len(numbers), size))


def _build_neighbours(faiss: Any, vectors: Vectors, settings: DenseSettings) -> Any:
    num_vectors, width = vectors.shape
    match settings.ann:
        case "flat":
            index = faiss.IndexFlatIP(width)
        case "hnsw":
            index = faiss.IndexHNSWFlat(width, settings.num_links, faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction = settings.build_width
        case "ivf":
            num_lists = choose_num_lists(settings, num_vectors)
            if num_lists > num_vectors:
                said = f"an ivf index of {num_vectors} passages cannot have {num_lists} lists"
                raise BadInput(said, hint="use fewer lists, or --ann flat")
            index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, num_lists, faiss.METRIC_INNER_PRODUCT)
            index.train(_sample(vectors, 256 * num_lists))
    for start in range(0, num_vectors, _AT_ONCE):
        index.add(np.ascontiguousarray(vectors[start : start + _AT_ONCE]))
    return index


def _sample(vectors: Vectors, num_wanted: int) -> Vectors:
    if num_wanted < len(vectors):
        vectors = vectors[np.sort(np.random.default_rng(0).choice(len(vectors), num_wanted, replace=False))]
    return np.ascontiguousarray(vectors)


# ------------------------------------------------------------------------------------------------------------ reading


def read_vectors(folder: Path) -> Vectors:
    """The vectors of a dense engine, row n for passage n; every FAISS layout used here keeps them exact."""
    neighbours = _read_neighbours(folder)
    return np.asarray(neighbours.reconstruct_n(0, neighbours.ntotal))


def _read_neighbours(folder: Path) -> Any:
    file = folder / "neighbours.faiss"
    try:
        return _import_faiss().read_index(str(file))
    except RuntimeError as error:
        raise BadInput(f"{file} is damaged or missing", hint=f"{rebuild_hint(folder.parent)} --force") from error
