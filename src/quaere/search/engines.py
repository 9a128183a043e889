"""Search engines: their interface and registry, fusion of several rankings, and titles first.

    find_engine("bm25").open(Path("docs-index/bm25"), settings).search(["who built the Halm bridge?"], topk=3)

An installed package adds an engine with an entry point of the group `quaere.retrievers` (`plugins.py`) that is a
`Backend`:

    [project.entry-points."quaere.retrievers"]
    splade = "quaere_splade:SPLADE"

Fusion adds 1 / (60 + rank) of every engine to the score of a passage it found: ranks rather than scores, because the
scores of different engines have different scales.

    first [7, 3], second [3, 9]  ->  3: 1/62 + 1/61,  7: 1/61,  9: 1/62

A small model answers from the first passage it is shown, and BM25 often ranks the page about the question's subject
second or third, behind a page that repeats the question's other words: `titles_first` moves that page to the top.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from quaere.errors import BadInput
from quaere.plugins import Names, Registry
from quaere.records import Hit, Passage
from quaere.search.words import terms

if TYPE_CHECKING:  # the command line lists the engines' names, so importing this module must stay cheap
    import numpy as np

    from quaere.search.index import IndexSettings

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


# ------------------------------------------------------------------------------------------------------------- registry

# By name: the module, and its constant.
_ENGINES = Registry(
    "search engine",
    "quaere.retrievers",
    {"bm25": "quaere.search.bm25:BM25", "dense": "quaere.search.dense:DENSE", "lance": "quaere.search.lance:LANCE"},
)
FUSED = {"hybrid": ("bm25", "dense")}  # engines whose rankings are fused
ENGINE_NAMES = Names(sorted([*_ENGINES.places, *FUSED]), lambda: _ENGINES.outside)


class KnownVectors(Struct, frozen=True):
    """Vectors of an earlier index in `folder`: passage n has the vector in row `rows[n]`, or none if that is -1."""

    folder: Path
    rows: np.typing.NDArray[np.int64]


class EngineBuild(Struct, frozen=True):
    """What an engine is built from: passages by number, the settings, and the folder for its files.

    `known` is a slow function that finds the vectors of an earlier index to take over; None for a new index.

        EngineBuild(store.passage, num_passages=31, settings=IndexSettings(), folder=Path("docs-index/bm25"), ...)
    """

    read: Callable[[int], Passage]
    num_passages: int
    settings: IndexSettings
    folder: Path
    progress: Progress
    known: Callable[[], KnownVectors] | None = None


class Backend(Struct, frozen=True):
    """A search engine.

    `build` writes its files and returns how many passages it embedded, and `open` loads it from their folder. `uses`
    names the fields of `IndexSettings` that influence its results; `check` raises `BadInput` for unsupported settings.

        Backend(build_splade, open_splade, uses=lambda settings: ("dense",))
    """

    build: Callable[[EngineBuild], int]
    open: Callable[[Path, IndexSettings], Engine]
    uses: Callable[[IndexSettings], tuple[str, ...]] = lambda settings: ()
    check: Callable[[IndexSettings], None] = lambda settings: None


def find_engine(name: str) -> Backend:
    """Import and return the engine of this name; raises `BadInput` if there is none or its package is broken."""
    if name not in _ENGINES.names:
        choices = ", ".join(ENGINE_NAMES)
        raise BadInput(f"there is no search engine {name!r}", hint=f"one of {choices}, or install the package it is in")
    return _ENGINES.load(name, Backend)


def rebuild_hint(index: Path) -> str:
    """The command that builds the index again, for error messages."""
    return f"quaere index FOLDER --out {shlex.quote(str(index))}"


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
