"""Interface of search engines: queries in, passage numbers and scores out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

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
        ...


def rank(matches: Sequence[Match], topk: int) -> list[Match]:
    """The best `topk` matches, sorted by score, ties by passage number."""
    return sorted(matches, key=lambda match: (-match.score, match.number))[:topk]
