"""Hybrid retrieval by reciprocal rank fusion: each engine adds 1 / (60 + rank) to the score of a passage it found.

Ranks are fused rather than scores, because the scores of different engines have different scales.

    first [7, 3], second [3, 9]  ->  3: 1/62 + 1/61,  7: 1/61,  9: 1/62
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from quaere.search.search_engine import Engine, Match, rank

RANK_OFFSET = 60
# Matches requested of each engine even for a smaller `topk`: so the best 3 are the first 3 of the best 10.
DEPTH = 100


class HybridEngine:
    """Engine that fuses the rankings of other engines."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = tuple(engines)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Match]]:
        """The best passages for each query, at most `topk`."""
        found = [engine.search(queries, max(topk, DEPTH)) for engine in self._engines]
        return [fuse(rankings, topk) for rankings in zip(*found, strict=True)]


def fuse(rankings: Sequence[Sequence[Match]], topk: int) -> list[Match]:
    """The fused ranking of several rankings for the same query."""
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for place, match in enumerate(ranking, start=1):
            scores[match.number] += 1 / (RANK_OFFSET + place)
    return rank([Match(number, score) for number, score in scores.items()], topk)
