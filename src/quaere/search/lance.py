"""Retrieval with LanceDB: words and vectors in one table on disk, of which a search reads what it needs.

The words are those of `words.py`, so that every script is matched as by `bm25.py`; scores are LanceDB's BM25 or the
cosine. A hybrid search fuses both, as `hybrid.py` does for the other engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from quaere.errors import BadInput
from quaere.search.bm25 import Bm25Settings, query_terms
from quaere.search.dense_settings import DenseSettings
from quaere.search.embedders import Embedder, open_embedder
from quaere.search.hybrid import HybridEngine
from quaere.search.lance_table import open_table, read_numbers
from quaere.search.search_engine import Engine, Match, rank

LanceSearch = Literal["text", "dense", "hybrid"]

# Passages fetched beyond `topk`, so that ties at the cut are ordered by passage number before the cut.
_SPARE = 16


class LanceSettings(Struct, frozen=True):
    """What a LanceDB index is searched by: words, vectors, or both.

    LanceSettings(lance_search="hybrid")
    """

    lance_search: LanceSearch = "text"

    @property
    def has_words(self) -> bool:
        """True if passages are found by their words."""
        return self.lance_search != "dense"

    @property
    def has_vectors(self) -> bool:
        """True if passages are found by their vectors."""
        return self.lance_search != "text"

    def check(self, bm25: Bm25Settings, dense: DenseSettings) -> None:
        """Raise `BadInput` for settings of the other engines that LanceDB does not have."""
        if self.has_words and (bm25.k1, bm25.b) != (1.2, 0.75):
            raise BadInput("LanceDB's BM25 has k1 1.2 and b 0.75", hint="leave out --k1 and --b, or use --engine bm25")
        if self.has_vectors and dense.ann == "hnsw":
            raise BadInput("--engine lance has no --ann hnsw", hint="--ann ivf, or --engine dense")


def open_lance(folder: Path, settings: LanceSettings, bm25: Bm25Settings, dense: DenseSettings) -> Engine:
    """Open the engine whose files `LanceBuild` wrote into `folder`; an embedder is loaded if it needs one."""
    table, numbers = open_table(folder), read_numbers(folder)
    engines: list[Engine] = []
    if settings.has_words:
        engines.append(LanceText(table, numbers, bm25))
    if settings.has_vectors:
        engines.append(LanceVectors(table, numbers, open_embedder(dense), dense))
    return engines[0] if len(engines) == 1 else HybridEngine(engines)


class LanceText:
    """Engine over the words of the table."""

    def __init__(self, table: Any, numbers: NDArray[np.int64], settings: Bm25Settings) -> None:
        self._table = table
        self._numbers = numbers
        self._settings = settings

    def search(self, queries: Sequence[str], topk: int) -> list[list[Match]]:
        """The best passages for each query, at most `topk`."""
        return [self._search_one(query, topk) for query in queries]

    def _search_one(self, query: str, topk: int) -> list[Match]:
        from lancedb.query import MatchQuery

        if not (words := query_terms(query, self._settings)):
            return []
        wanted = self._table.search(MatchQuery(" ".join(words), "terms"), query_type="fts")
        found = wanted.limit(topk + _SPARE).select(["serial", "_score"]).to_arrow()
        return _matches(found["serial"], found["_score"].to_numpy(), self._numbers, topk)


class LanceVectors:
    """Engine over the vectors of the table."""

    def __init__(self, table: Any, numbers: NDArray[np.int64], embedder: Embedder, settings: DenseSettings) -> None:
        self._table = table
        self._numbers = numbers
        self._embedder = embedder
        self._settings = settings
        self._width = table.schema.field("vector").type.list_size

    def search(self, queries: Sequence[str], topk: int) -> list[list[Match]]:
        """The best passages for each query, at most `topk`."""
        if not queries:
            return []
        vectors = self._embedder.embed_queries(queries)
        if vectors.shape[1] != self._width:
            raise BadInput(
                f"the embedder's vectors have {vectors.shape[1]} dimensions, those of the index {self._width}",
                hint="search with the embedder that the index was built with",
            )
        return [self._search_one(vector, topk) for vector in vectors]

    def _search_one(self, vector: NDArray[np.float32], topk: int) -> list[Match]:
        wanted = self._table.search(vector, vector_column_name="vector").distance_type("dot")
        if self._settings.ann == "ivf":
            wanted = wanted.nprobes(self._settings.num_probes)
        found = wanted.limit(topk + _SPARE).select(["serial", "_distance"]).to_arrow()
        return _matches(found["serial"], 1 - found["_distance"].to_numpy(), self._numbers, topk)


def _matches(serials: Any, scores: NDArray[np.float32], numbers: NDArray[np.int64], topk: int) -> list[Match]:
    found = numbers[serials.to_numpy()]
    return rank([Match(int(number), float(score)) for number, score in zip(found, scores, strict=True)], topk)
