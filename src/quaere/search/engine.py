"""What a search engine is to the rest of the program: queries in, passage numbers and scores out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

Progress = Callable[[str, int, int | None], None]
"""Told what is being done, how much is done and how much there is: `progress("embedding", 512, 23784)`."""


class Match(NamedTuple):
    """A passage found, by its number in the index: `Match(number=17, score=7.25)`."""

    number: int
    score: float


class Engine(Protocol):
    """Best first; equal scores in the order of the passages; never more than `topk`, and fewer when fewer match."""

    def search(self, queries: Sequence[str], topk: int) -> list[list[Match]]:
        """One list of matches per query."""
        ...


def rank(matches: Sequence[Match], topk: int) -> list[Match]:
    """Sort by score, ties by passage number, and keep the best `topk`."""
    return sorted(matches, key=lambda match: (-match.score, match.number))[:topk]
