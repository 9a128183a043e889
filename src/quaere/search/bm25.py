"""BM25 retrieval with bm25s, over the terms of `words.py`.

The scores are bm25s's, bit for bit. Only the selection of the best is done here, so that equal scores are in the order
of the passages and a passage without a query term is never returned.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from quaere.errors import BadInput
from quaere.records import Passage
from quaere.search.engines import Backend, EngineBuild, Match, rebuild_hint
from quaere.search.words import AUTO, NO_STEMMER, check_stemmer, question_words, terms

if TYPE_CHECKING:
    from quaere.search.index import IndexSettings

_BLOCK = 256  # passages whose highest score is taken together, in `best_matches`
_MOST_TITLES = 1000  # bound on `title_weight`: the terms of a title are stored that many times


class Bm25Settings(msgspec.Struct, frozen=True):
    """Settings of BM25: its constants `k1` and `b`, the weight of titles, and how text is split into terms.

    The terms of a title count `title_weight` times, those of the text once. The stemmer is a language, "none" or
    "auto"; the build replaces "auto" by the language it detects in the documents. With `whole_names`, a name such as
    `max_wal_size` is a term, and so are its parts.

        Bm25Settings(k1=1.2, b=0.75, title_weight=3, stemmer="english", whole_names=True)
    """

    k1: float = 1.2
    b: float = 0.75
    title_weight: int = 3
    stemmer: str = AUTO
    whole_names: bool = True

    @property
    def is_plain(self) -> bool:
        """True if terms are unstemmed words without whole names, as in every index of format 1."""
        return self.stemmer == NO_STEMMER and not self.whole_names

    @property
    def fingerprinted(self) -> msgspec.Struct | msgspec.Raw:
        """The settings in the index's fingerprint; for plain terms the JSON of format 1, to keep it unchanged."""
        plain = {"k1": self.k1, "b": self.b, "title_weight": self.title_weight}
        return msgspec.Raw(msgspec.json.encode(plain)) if self.is_plain else self

    def check(self) -> None:
        """Raise `BadInput` if a constant is out of range."""
        if not 0 <= self.k1 < math.inf or not 0 <= self.b <= 1:
            raise BadInput(f"BM25 needs a finite k1 >= 0 and b from 0 to 1, not k1={self.k1} and b={self.b}")
        if not 0 <= self.title_weight <= _MOST_TITLES:
            raise BadInput(f"the title weight must be from 0 to {_MOST_TITLES}, not {self.title_weight}")
        check_stemmer(self.stemmer)


PLAIN_WORDS = {"stemmer": NO_STEMMER, "whole_names": False}  # the settings of terms in indexes of format 1


def passage_terms(passage: Passage, settings: Bm25Settings) -> list[str]:
    """The terms of a passage: those of its title, repeated `title_weight` times, of its headings and of its text."""
    title, heading, text = (
        terms(part, stemmer=settings.stemmer, whole_names=settings.whole_names)
        for part in (passage.title, passage.heading, passage.text)
    )
    return title * settings.title_weight + heading + text


def query_terms(query: str, settings: Bm25Settings) -> list[str]:
    """The terms of a query, without the question words of the stemmer's language unless the query has only these."""
    asking = question_words(settings.stemmer)
    found = terms(query, stemmer=settings.stemmer, whole_names=settings.whole_names, without=asking)
    return found or terms(query, stemmer=settings.stemmer, whole_names=settings.whole_names)


class _Bm25Engine(msgspec.Struct):
    scorer: Any
    settings: Bm25Settings

    def search(self, queries: Sequence[str], topk: int) -> list[list[Match]]:
        known = (self.scorer.get_tokens_ids(query_terms(query, self.settings)) for query in queries)
        return [best_matches(self.scorer.get_scores_from_ids(ids), topk) if ids else [] for ids in known]


def build_bm25(build: EngineBuild) -> int:
    """Write the files of the BM25 engine into `build.folder`; returns 0, because no passage is embedded."""
    bm25s, settings = _import_bm25s(), build.settings.bm25
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new term gets the next number
    flat, ends = array("i"), array("q")
    for number in range(build.num_passages):
        flat.extend(map(numbers.__getitem__, passage_terms(build.read(number), settings)))
        ends.append(len(flat))
        build.progress("reading words", number + 1, build.num_passages)
    if not numbers:
        raise no_words()
    build.progress("scoring words", 0, None)
    scorer = bm25s.BM25(k1=settings.k1, b=settings.b, method="lucene")
    tokenized = bm25s.tokenization.Tokenized(ids=_TermLists(flat, ends), vocab=dict(numbers))
    scorer.index(tokenized, create_empty_token=False, show_progress=False)
    scorer.save(build.folder, show_progress=False)
    return 0


def open_bm25(folder: Path, settings: IndexSettings) -> _Bm25Engine:
    """Open an engine that `build_bm25` wrote with these settings."""
    bm25s = _import_bm25s()
    try:
        scorer = bm25s.BM25.load(folder, mmap=True, show_progress=False)
        # Plain array views of the mapped memory: slicing numpy's memmap class costs more than using the slice.
        scorer.scores |= {name: np.asarray(scorer.scores[name]) for name in ("data", "indices", "indptr")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = f"{rebuild_hint(folder.parent)} --force"
        raise BadInput(f"the index {folder.parent} is damaged: {folder} cannot be read", hint=hint) from error
    return _Bm25Engine(scorer, settings.bm25)


BM25 = Backend(build_bm25, open_bm25, uses=lambda settings: ("bm25",))


def no_words() -> BadInput:
    """The error for a corpus without a single searchable word."""
    return BadInput("the documents contain no word that can be searched for", hint="index documents with text")


def _import_bm25s() -> Any:
    """The module bm25s, imported without JAX: importing both would make JAX reserve most of a GPU's memory.

    bm25s uses JAX only to select the best scores, which `best_matches` does here.
    """
    if "jax" in sys.modules:  # the program uses JAX already
        return import_module("bm25s")
    sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        return import_module("bm25s")
    finally:
        del sys.modules["jax"]


def best_matches(scores: np.typing.NDArray[np.float32], topk: int) -> list[Match]:
    """The `topk` highest scores above zero; passages that tie with the last one are ordered before the cut.

    The passages are split into blocks, and the `topk` blocks with the highest maxima are found. Each of them has a
    score of at least the lowest of these maxima, so no passage below it is among the best. Finding this bound reads the
    scores once, which is several times faster than partitioning all of them.
    """
    num_blocks, bound = len(scores) // _BLOCK, np.float32(0)
    if topk <= num_blocks:
        bound = np.partition(scores[: num_blocks * _BLOCK].reshape(num_blocks, _BLOCK).max(axis=1), -topk)[-topk]
    candidates = np.flatnonzero(scores >= bound if bound > 0 else scores > 0)
    if topk < len(candidates):
        candidates = candidates[scores[candidates] >= np.partition(scores[candidates], -topk)[-topk]]
    order = np.lexsort((candidates, -scores[candidates]))[:topk]
    return [Match(int(number), float(scores[number])) for number in candidates[order]]


class _TermLists(msgspec.Struct):
    """A list of lists of term numbers with 4 bytes per term; Python lists need ten times as much."""

    flat: array[int]
    ends: array[int]

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[list[int]]:
        return (self.flat[start:end].tolist() for start, end in pairwise(chain((0,), self.ends)))
