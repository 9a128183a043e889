"""Reranking: a sentence encoder compares the query with the first passages of another engine.

Both rankings are fused (`hybrid.py`). Only the first passages are encoded, so that a large corpus needs no vectors of
all its passages; those of the passages that were encoded last are kept in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from quaere.records import Passage
from quaere.search.dense_settings import DenseSettings
from quaere.search.embedders import Embedder, open_embedder
from quaere.search.hybrid import fuse
from quaere.search.search_engine import Engine, Match, rank

NO_RERANKER = "none"
DEPTH = 20  # passages that are reranked
_NUM_KEPT = 65_536  # vectors; 100 MB of those of MiniLM


def open_reranker(name: str) -> Embedder:
    """The encoder of this name: a sentence-transformers model, or one on a server."""
    settings = DenseSettings(embedder=name).with_known_prefixes()
    settings.check()
    return open_embedder(settings)


class RerankEngine:
    """Engine that reranks the first matches of another; `read` gives passages by number."""

    def __init__(
        self, engine: Engine, encoder: Embedder, read: Callable[[int], Passage], *, num_kept: int = _NUM_KEPT
    ) -> None:
        self._engine = engine
        self._encoder = encoder
        self._read = read
        self._num_kept = num_kept
        self._kept: dict[int, NDArray[np.float32]] = {}  # by passage number, the least recently used first
        self._lock = threading.Lock()

    def search(self, queries: Sequence[str], topk: int) -> list[list[Match]]:
        """The best passages for each query, at most `topk`."""
        found = self._engine.search(queries, max(topk, DEPTH))
        vectors = self._embed({match.number for matches in found for match in matches[:DEPTH]})
        if not vectors:
            return found
        asked = self._encoder.embed_queries(queries)
        return [
            fuse([matches, _rerank(query, matches[:DEPTH], vectors)], topk)
            for query, matches in zip(asked, found, strict=True)
        ]

    def _embed(self, numbers: Iterable[int]) -> dict[int, NDArray[np.float32]]:
        """The vectors of these passages; those that are not kept are encoded, many at once."""
        wanted = sorted(numbers)
        with self._lock:
            vectors = {number: self._kept[number] for number in wanted if number in self._kept}
        new = [number for number in wanted if number not in vectors]
        for start in range(0, len(new), self._encoder.num_at_once):
            batch = new[start : start + self._encoder.num_at_once]
            encoded = self._encoder.embed_passages([self._read(number) for number in batch])
            vectors |= zip(batch, map(np.copy, encoded), strict=True)  # a row alone, else it would keep its batch
        with self._lock:
            for number in vectors:
                self._kept.pop(number, None)
            self._kept |= vectors
            for number in [*islice(self._kept, max(0, len(self._kept) - self._num_kept))]:
                del self._kept[number]
        return vectors


def _rerank(
    query: NDArray[np.float32], matches: Sequence[Match], vectors: dict[int, NDArray[np.float32]]
) -> list[Match]:
    return rank([Match(match.number, float(query @ vectors[match.number])) for match in matches], DEPTH)
