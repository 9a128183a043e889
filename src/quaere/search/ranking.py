"""Rankings: the interface of search engines, fusion of several, reranking by an encoder, and titles first.

Fusion adds 1 / (60 + rank) of every engine to the score of a passage it found: ranks rather than scores, because the
scores of different engines have different scales.

    first [7, 3], second [3, 9]  ->  3: 1/62 + 1/61,  7: 1/61,  9: 1/62

A reranker compares the query with the first passages of an engine, and both rankings are fused. Only these passages are
encoded, so that a large corpus needs no vectors of all its passages; the most recently used vectors are cached.

A small model answers from the first passage it is shown, and BM25 often ranks the page about the question's subject
second or third, behind a page that repeats the question's other words: `titles_first` moves that page to the top.
"""

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
from msgspec import Struct, field

from quaere.records import Hit, Passage
from quaere.search.embedders import DenseSettings, Embedder, Vectors, open_embedder
from quaere.search.words import terms

Progress = Callable[[str, int, int | None], None]
"""Callback with the current stage, the amount done and the total: `progress("embedding", 512, 23784)`."""


class Match(NamedTuple):
    """A retrieved passage's number in the index and its score: `Match(number=17, score=7.25)`."""

    number: int
    score: float


class Engine(Protocol):
    """A search engine. Matches are sorted by score, ties by passage number; there are at most `topk` per query."""

    def search(self, queries: Sequence[str], topk: int) -> list[list[Match]]:
        """One list of matches per query, in the order of the queries."""


def rank(matches: Sequence[Match], topk: int) -> list[Match]:
    """The best `topk` matches, sorted by score, ties by passage number."""
    return sorted(matches, key=lambda match: (-match.score, match.number))[:topk]


# --------------------------------------------------------------------------------------------------------------- fusion


RANK_OFFSET = 60
# Matches requested of each engine even for a smaller `topk`: so the best 3 are the first 3 of the best 10.
FUSION_DEPTH = 100


class HybridEngine(Struct):
    """Engine that fuses the rankings of other engines."""

    engines: Sequence[Engine]

    def search(self, queries: Sequence[str], topk: int) -> list[list[Match]]:
        """The best passages for each query, at most `topk`."""
        found = [engine.search(queries, max(topk, FUSION_DEPTH)) for engine in self.engines]
        return [fuse(rankings, topk) for rankings in zip(*found, strict=True)]


def fuse_engines(engines: Sequence[Engine]) -> Engine:
    """The only engine, or a `HybridEngine` of several."""
    return engines[0] if len(engines) == 1 else HybridEngine(engines)


def fuse(rankings: Sequence[Sequence[Match]], topk: int) -> list[Match]:
    """The fused ranking of several rankings for the same query."""
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for place, match in enumerate(ranking, start=1):
            scores[match.number] += 1 / (RANK_OFFSET + place)
    return rank([Match(number, score) for number, score in scores.items()], topk)


# ------------------------------------------------------------------------------------------------------------ reranking


NO_RERANKER = "none"
RERANK_DEPTH = 20  # passages that are reranked


def open_reranker(name: str) -> Embedder:
    """Open the embedder used for reranking: a sentence-transformers model, or `openai:MODEL@BASE_URL` on a server."""
    settings = DenseSettings(embedder=name).with_known_prefixes()
    settings.check()
    return open_embedder(settings)


class RerankEngine(Struct):
    """Engine that reranks the first matches of another engine; `read` returns a passage by its number."""

    engine: Engine
    encoder: Embedder
    read: Callable[[int], Passage]
    num_kept: int = 65_536  # vectors in the cache; 100 MB of those of MiniLM
    _kept: dict[int, Vectors] = {}  # by passage number, the least recently used first
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Match]]:
        """The best passages for each query, at most `topk`."""
        found = self.engine.search(queries, max(topk, RERANK_DEPTH))
        vectors = self._embed({match.number for matches in found for match in matches[:RERANK_DEPTH]})
        if not vectors:
            return found
        asked = self.encoder.embed_queries(queries)
        return [
            fuse([matches, _rerank(query, matches[:RERANK_DEPTH], vectors)], topk)
            for query, matches in zip(asked, found, strict=True)
        ]

    def _embed(self, numbers: Iterable[int]) -> dict[int, Vectors]:
        """The vectors of these passages, by number: from the cache, else encoded in batches."""
        wanted = sorted(numbers)
        with self._lock:
            vectors = {number: self._kept[number] for number in wanted if number in self._kept}
        new = [number for number in wanted if number not in vectors]
        for start in range(0, len(new), self.encoder.num_at_once):
            batch = new[start : start + self.encoder.num_at_once]
            encoded = self.encoder.embed_passages([self.read(number) for number in batch])
            vectors |= zip(batch, map(np.copy, encoded), strict=True)  # a row alone, else it would keep its batch
        with self._lock:
            for number in vectors:
                self._kept.pop(number, None)
            self._kept |= vectors
            for number in [*islice(self._kept, max(0, len(self._kept) - self.num_kept))]:
                del self._kept[number]
        return vectors


def _rerank(query: Vectors, matches: Sequence[Match], vectors: dict[int, Vectors]) -> list[Match]:
    return rank([Match(match.number, float(query @ vectors[match.number])) for match in matches], RERANK_DEPTH)


# --------------------------------------------------------------------------------------------------------------- titles


CANDIDATES = 10  # hits to be ordered: pages further down share few words with the query
_QUALIFIER = re.compile(r"\s*\([^()]*\)$")  # "Mercury (planet)" is called Mercury
_ARTICLE = re.compile(r"the\s+(?=\S)", re.IGNORECASE)


def titles_first(query: str, hits: Sequence[Hit], topk: int) -> list[Hit]:
    """Move hits whose title the query names to the front, longer titles first, and return the first `topk` hits."""
    asked = frozenset(terms(query))
    return sorted(hits, key=lambda hit: -_num_named(hit.passage.title, query, asked))[:topk]


def _num_named(title: str, query: str, asked: frozenset[str]) -> int:
    """The number of terms of a title if the query contains all of them, else 0.

    A title of one word must occur in the query in the same case: "a request" does not name a page called Request.
    """
    name = _ARTICLE.sub("", _QUALIFIER.sub("", title), count=1)
    words = terms(name)
    is_named = asked.issuperset(words) and (
        len(words) != 1 or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", query) is not None
    )
    return len(words) if is_named else 0
