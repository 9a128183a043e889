"""Retrieval with LanceDB: words and vectors in one table on disk, of which a search reads what it needs.

The words are those of `words.py`, so that every script is matched as by `bm25.py`; scores are LanceDB's BM25 or the
cosine. A hybrid search fuses both, as `hybrid.py` does for the other engines.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain
from math import sqrt
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from quaere.errors import BadInput, ExtraMissing
from quaere.records import Passage
from quaere.search.bm25 import Bm25Settings, passage_terms, query_terms
from quaere.search.dense import SAME_COSINE, KnownVectors
from quaere.search.embedders import DenseSettings, Embedder, open_embedder
from quaere.search.ranking import Engine, HybridEngine, Match, Progress, rank

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


# ------------------------------------------------------------------------------------------------------------- building


_TABLE = "passages"
_CACHE_BYTES = 1 << 30  # of index parts that are kept in memory between searches
_TRAINING_BYTES = 1 << 30  # of vectors that clusters are made of; k-means has them all in memory
_ROWS_AT_ONCE = 1024
_RANGES_AT_ONCE = 500
Serials = NDArray[np.int64]


class LanceContents(msgspec.Struct, frozen=True):
    """What a table holds: words of passages if `bm25` is given, vectors if `dense` is.

    LanceContents(bm25=Bm25Settings(), dense=None)
    """

    bm25: Bm25Settings | None
    dense: DenseSettings | None


class LanceBuild:
    """Writes the table of an index; `read` gives passages by number."""

    def __init__(
        self,
        read: Callable[[int], Passage],
        num_passages: int,
        contents: LanceContents,
        folder: Path,
        progress: Progress,
    ) -> None:
        self.num_embedded = 0
        self._read = read
        self._num_passages = num_passages
        self._contents = contents
        self._folder = folder
        self._progress = progress
        self._embedder: Embedder | None = None
        self._has_words = False

    def write(self) -> None:
        """Write a new table."""
        serials = np.arange(self._num_passages)
        create = partial(connect(self._folder).create_table, _TABLE)
        table = _Stream(self._batches(serials, serials)).write(create)
        if self._contents.bm25:
            if not self._has_words:
                said = "the documents contain no word that can be searched for"
                raise BadInput(said, hint="index documents with text")
            self._index_words(table)
        self._train(table)
        np.save(self._folder / "numbers.npy", serials)

    def update(self, known: KnownVectors) -> None:
        """Write a table that shares the rows of an earlier one, `known.rows` saying which.

        It is a new one if there is none to share, or if the embedder is not the one that made the earlier vectors.
        """
        earlier = read_numbers(known.folder)
        serials = _keep_serials(known.rows, earlier)
        new = np.flatnonzero(serials < 0)
        is_same = not self._contents.dense or not new.size or self._makes_same(known.folder, serials)
        if not is_same or new.size == self._num_passages:
            self.write()
            return
        shutil.copytree(known.folder, self._folder, copy_function=_share, dirs_exist_ok=True)
        table = open_table(self._folder)
        if self._contents.bm25:
            table.drop_index("terms_idx")  # made anew: added to, it would count words of passages that are gone
        self._delete(table, np.setdiff1d(np.flatnonzero(earlier >= 0), serials))
        serials[new] = np.arange(len(earlier), len(earlier) + new.size)
        if new.size:
            _Stream(self._batches(new, serials[new])).write(table.add)
        self._optimise(table)
        if self._contents.bm25:
            self._index_words(table)
        if self._num_passages > 2 * int((self._folder / "trained.json").read_text()):
            self._train(table)
        numbers = np.full(len(earlier) + new.size, -1)
        numbers[serials] = np.arange(self._num_passages)
        np.save(self._folder / "numbers.npy", numbers)

    def _batches(self, numbers: Serials, serials: Serials) -> Iterator[Any]:
        """Rows of these passages, as Arrow's record batches."""
        arrow = _arrow()
        if self._contents.dense and numbers.size:
            self._embedder = self._embedder or open_embedder(self._contents.dense)
        step = self._embedder.num_at_once if self._embedder else _ROWS_AT_ONCE
        for start in range(0, len(numbers), step):
            passages = [self._read(number) for number in numbers[start : start + step].tolist()]
            columns = {"serial": arrow.array(serials[start : start + step])}
            if self._contents.bm25:
                words = [" ".join(passage_terms(passage, self._contents.bm25)) for passage in passages]
                self._has_words = self._has_words or any(words)
                columns["terms"] = arrow.array(words)
            if self._embedder:
                vectors = self._embedder.embed_passages(passages)
                self.num_embedded += len(passages)
                columns["vector"] = arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.ravel()), vectors.shape[1])
            self._progress("embedding" if self._embedder else "reading words", start + len(passages), len(numbers))
            yield arrow.RecordBatch.from_pydict(columns)

    def _index_words(self, table: Any) -> None:
        from lancedb.index import FTS

        # The terms are split and folded already (words.py): LanceDB is to take them as they are.
        plain = {"lower_case": False, "stem": False, "remove_stop_words": False, "ascii_folding": False}
        self._progress("scoring words", 0, None)
        table.create_index("terms", config=FTS(base_tokenizer="whitespace", max_token_length=None, **plain))

    def _train(self, table: Any) -> None:
        """Cluster the vectors."""
        dense = self._contents.dense
        if dense and dense.ann == "ivf":
            from lancedb.index import IvfFlat

            # About 4 sqrt(n) lists, but at least 40 passages per list: with fewer, the clusters are noise.
            most = max(1, min(round(4 * sqrt(self._num_passages)), self._num_passages // 40))
            num_lists = dense.num_lists or most
            width = table.schema.field("vector").type.list_size
            a_list = min(256, max(16, _TRAINING_BYTES // (4 * width * num_lists)))
            self._progress("linking neighbours", 0, None)
            config = IvfFlat(distance_type="dot", num_partitions=num_lists, sample_rate=a_list)
            table.create_index("vector", config=config)
        (self._folder / "trained.json").write_text(str(self._num_passages))

    def _makes_same(self, folder: Path, serials: Serials) -> bool:
        """True if the embedder is still the one that made the earlier vectors: another may have its name now."""
        assert self._contents.dense
        self._embedder = open_embedder(self._contents.dense)
        number = int(np.argmax(serials))
        if serials[number] < 0:
            return False
        again = self._embedder.embed_passages([self._read(number)])[0]
        row = open_table(folder).search().where(f"serial = {serials[number]}").select(["vector"]).limit(1).to_arrow()
        earlier = row["vector"].combine_chunks().flatten().to_numpy()
        return again.shape == earlier.shape and float(again @ earlier) > SAME_COSINE

    def _delete(self, table: Any, serials: Serials) -> None:
        """Delete rows, by ranges: passages of a document, and often of its neighbours, go together."""
        if not serials.size:
            return
        runs = np.split(serials, np.flatnonzero(np.diff(serials) > 1) + 1)
        ranges = [f"(serial BETWEEN {run[0]} AND {run[-1]})" for run in runs]
        for start in range(0, len(ranges), _RANGES_AT_ONCE):
            table.delete(" OR ".join(ranges[start : start + _RANGES_AT_ONCE]))

    def _optimise(self, table: Any) -> None:
        """Put new vectors into their clusters, and remove the files of earlier versions."""
        self._progress("linking neighbours", 0, None)
        table.optimize()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that readers of an earlier version would fail: this copy has none
            table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)


def _keep_serials(rows: NDArray[np.int64], earlier: Serials) -> Serials:
    """The serial number of each passage that is in the earlier table (`rows`: its number there), else -1.

    Two passages of one text may be matched with the same earlier one; the first gets it.
    """
    serial_of = np.full(int(earlier.max()) + 1, -1)
    live = np.flatnonzero(earlier >= 0)
    serial_of[earlier[live]] = live
    serials = np.where(rows >= 0, serial_of[rows], -1)
    _, firsts = np.unique(serials, return_index=True)
    kept = np.full(len(serials), -1)
    kept[firsts] = serials[firsts]
    return kept


def _share(source: str, target: str) -> None:
    """A link to a file that LanceDB never changes, a copy of any other."""
    if f"{os.sep}data{os.sep}" in source or f"{os.sep}_indices{os.sep}" in source:
        try:
            os.link(source, target)
            return
        except OSError:
            pass
    shutil.copyfile(source, target)


class _Stream:
    """Record batches on their way into a table; they are never in memory all at once.

    LanceDB would report an error of the iterator as one of its own; the first is kept, and raised as it was.
    """

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._error: Exception | None = None

    def write(self, take: Callable[[Any], Any]) -> Any:
        """What `take` returns, given a reader of the batches."""
        first = next(self._batches)
        reader = _arrow().RecordBatchReader.from_batches(first.schema, chain([first], self._rest()))
        try:
            return take(reader)
        except Exception as error:
            raise self._error or error from None

    def _rest(self) -> Iterator[Any]:
        try:
            yield from self._batches
        except Exception as error:
            self._error = error
            raise


# ----------------------------------------------------------------------------------------------------------- opening


def connect(folder: Path) -> Any:
    """LanceDB's connection to a folder."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # its warnings are for its developers
    try:
        import lancedb
    except ImportError:
        raise ExtraMissing("--engine lance needs lancedb", extra="lance") from None
    return lancedb.connect(folder, session=lancedb.Session(index_cache_size_bytes=_CACHE_BYTES))


def open_table(folder: Path) -> Any:
    """The table in a folder."""
    connection = connect(folder)
    hint = f"quaere index FOLDER --out {folder.parent} --force"
    try:
        table = connection.open_table(_TABLE)
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(f"the table in {folder} is damaged or missing", hint=hint) from error
    if "serial" not in table.schema.names:
        raise BadInput(f"the table in {folder} is damaged: it has no column of serial numbers", hint=hint)
    return table


def read_numbers(folder: Path) -> Serials:
    """Per serial number the passage's number in the index."""
    return np.asarray(np.load(folder / "numbers.npy", mmap_mode="r"))


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ExtraMissing("--engine lance needs lancedb", extra="lance") from None
    return pyarrow
