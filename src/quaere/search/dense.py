"""Dense retrieval: an embedder turns passages and queries into vectors, FAISS finds the nearest passages.

Vectors have norm 1, so a score is the cosine similarity of query and passage, from -1 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from quaere.errors import BadInput, ExtraMissing
from quaere.records import Passage
from quaere.search.embedders import DenseSettings, Embedder, Vectors, open_embedder
from quaere.search.ranking import Match, Progress, rank

__all__ = ["DenseEngine", "DenseSettings", "KnownVectors", "read_vectors"]

# Passages fetched beyond `topk`, so that ties at the cut are ordered by passage number before the cut.
_SPARE = 16
_READ_AT_ONCE = 65_536
SAME_COSINE = 0.999  # of two vectors of one text by one embedder, whatever else was in its batches


class KnownVectors(msgspec.Struct, frozen=True):
    """Vectors of an earlier index, in `folder`: that of passage n is `rows[n]` there, or none if that is -1."""

    folder: Path
    rows: NDArray[np.int64]


class DenseEngine:
    """Dense engine: embeds the queries and finds their nearest passages with FAISS."""

    def __init__(self, embedder: Embedder, neighbours: Any) -> None:
        self._embedder = embedder
        self._neighbours = neighbours

    @staticmethod
    def build(
        read: Callable[[int], Passage],
        num_passages: int,
        settings: DenseSettings,
        folder: Path,
        progress: Progress,
        known: KnownVectors | None = None,
    ) -> int:
        """Write the engine's files into `folder`; `read` gives passages by number. How many passages were embedded."""
        faiss = _import_faiss()
        folder.mkdir(parents=True, exist_ok=True)
        gathering = _Gathering(read, num_passages, settings, folder / "vectors.tmp", progress)
        try:
            vectors = gathering.gather(known)
            progress("linking neighbours", 0, None)
            faiss.write_index(_build_neighbours(faiss, vectors, settings), str(folder / "neighbours.faiss"))
            del vectors
        finally:
            gathering.scratch.unlink(missing_ok=True)
        return gathering.num_embedded

    @staticmethod
    def open(folder: Path, settings: DenseSettings) -> DenseEngine:
        """Open an engine that `build` wrote, and load the embedder."""
        neighbours = _read_neighbours(folder)
        if settings.ann == "ivf":
            neighbours.nprobe = min(settings.num_probes, neighbours.nlist)
        elif settings.ann == "hnsw":
            neighbours.hnsw.efSearch = settings.search_width
        return DenseEngine(open_embedder(settings), neighbours)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Match]]:
        """The best passages for each query, at most `topk`."""
        if not queries:
            return []
        vectors = self._embedder.embed_queries(queries)
        if vectors.shape[1] != self._neighbours.d:
            raise BadInput(
                f"the embedder's vectors have {vectors.shape[1]} dimensions, those of the index {self._neighbours.d}",
                hint="search with the embedder that the index was built with",
            )
        depth = min(topk + _SPARE, self._neighbours.ntotal)
        scores, numbers = self._neighbours.search(vectors, depth)
        # FAISS pads with -1 if it finds fewer.
        return [
            rank([Match(int(n), float(s)) for n, s in zip(*row, strict=True) if n >= 0], topk)
            for row in zip(numbers, scores, strict=True)
        ]


class _Gathering:
    """Puts the vectors of all passages together, on disk: those of a large corpus do not fit into memory twice."""

    def __init__(
        self,
        read: Callable[[int], Passage],
        num_passages: int,
        settings: DenseSettings,
        scratch: Path,
        progress: Progress,
    ) -> None:
        self.scratch = scratch
        self.num_embedded = 0
        self._read = read
        self._num_passages = num_passages
        self._settings = settings
        self._progress = progress

    def gather(self, known: KnownVectors | None) -> Vectors:
        """A row per passage: the known one, or one that is embedded now."""
        rows = known.rows if known else np.full(self._num_passages, -1)
        wanted = np.flatnonzero(rows < 0)
        # To load an embedder takes seconds, and where passages were only removed there is no need for one.
        embedder = open_embedder(self._settings) if wanted.size else None
        vectors: Vectors | None = None
        if known and wanted.size < self._num_passages:
            earlier = read_vectors(known.folder)
            if embedder is None or self._makes_same(embedder, earlier, rows):
                vectors = self._take_over(earlier, rows)
            else:
                wanted = np.arange(self._num_passages)
            del earlier
        if embedder is not None:
            vectors = self._embed(embedder, wanted, vectors)
        assert vectors is not None, "an index holds at least one passage"
        return vectors

    def _makes_same(self, embedder: Embedder, earlier: Vectors, rows: NDArray[np.int64]) -> bool:
        """True if the embedder is still the one that made the earlier vectors: another may have its name now."""
        number = int(np.argmax(rows >= 0))
        again = embedder.embed_passages([self._read(number)])[0]
        return again.shape == earlier.shape[1:] and float(again @ earlier[rows[number]]) > SAME_COSINE

    def _take_over(self, earlier: Vectors, rows: NDArray[np.int64]) -> Vectors:
        vectors = self._allocate(earlier.shape[1])
        kept = np.flatnonzero(rows >= 0)
        for start in range(0, len(kept), _READ_AT_ONCE):
            numbers = kept[start : start + _READ_AT_ONCE]
            vectors[numbers] = earlier[rows[numbers]]
        return vectors

    def _embed(self, embedder: Embedder, wanted: NDArray[np.int64], vectors: Vectors | None) -> Vectors:
        for start in range(0, len(wanted), embedder.num_at_once):
            numbers = wanted[start : start + embedder.num_at_once]
            embedded = embedder.embed_passages([self._read(number) for number in numbers.tolist()])
            if vectors is None:
                vectors = self._allocate(embedded.shape[1])
            vectors[numbers] = embedded
            self.num_embedded += len(numbers)
            self._progress("embedding", self.num_embedded, len(wanted))
        assert vectors is not None
        return vectors

    def _allocate(self, width: int) -> Vectors:
        return np.memmap(self.scratch, dtype=np.float32, mode="w+", shape=(self._num_passages, width))


def _build_neighbours(faiss: Any, vectors: Vectors, settings: DenseSettings) -> Any:
    num_vectors, width = vectors.shape
    match settings.ann:
        case "flat":
            index = faiss.IndexFlatIP(width)
        case "hnsw":
            index = faiss.IndexHNSWFlat(width, settings.num_links, faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction = settings.build_width
        case "ivf":
            # About 4 sqrt(n) lists, but at least 40 passages per list: with fewer, the clusters are noise.
            num_lists = settings.num_lists or max(1, min(round(4 * sqrt(num_vectors)), num_vectors // 40))
            if num_lists > num_vectors:
                raise BadInput(
                    f"an ivf index of {num_vectors} passages cannot have {num_lists} lists",
                    hint="use fewer lists, or --ann flat",
                )
            index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, num_lists, faiss.METRIC_INNER_PRODUCT)
            index.train(_sample(vectors, 256 * num_lists))
    for start in range(0, num_vectors, 65536):
        index.add(np.ascontiguousarray(vectors[start : start + 65536]))
    return index


def _sample(vectors: Vectors, num_wanted: int) -> Vectors:
    """Up to `num_wanted` rows for k-means, drawn with a fixed seed."""
    if num_wanted >= len(vectors):
        return np.ascontiguousarray(vectors)
    chosen = np.random.default_rng(0).choice(len(vectors), num_wanted, replace=False)
    return np.ascontiguousarray(vectors[np.sort(chosen)])


def read_vectors(folder: Path) -> Vectors:
    """The vectors stored by `build`, row n for passage n; every FAISS layout used here keeps them exact."""
    neighbours = _read_neighbours(folder)
    vectors = np.empty((neighbours.ntotal, neighbours.d), np.float32)
    for start in range(0, neighbours.ntotal, _READ_AT_ONCE):
        count = min(_READ_AT_ONCE, neighbours.ntotal - start)
        vectors[start : start + count] = neighbours.reconstruct_n(start, count)
    return vectors


def _read_neighbours(folder: Path) -> Any:
    faiss = _import_faiss()
    try:
        return faiss.read_index(str(folder / "neighbours.faiss"))
    except RuntimeError as error:
        raise BadInput(
            f"{folder / 'neighbours.faiss'} is damaged or missing",
            hint=f"quaere index FOLDER --out {folder.parent} --force",
        ) from error


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise ExtraMissing("dense search needs faiss", extra="dense") from None
    return faiss
