"""Retrieval with LanceDB: terms and vectors in one table on disk; a search reads only the parts it needs.

    lance/passages.lance   LanceDB's table: per passage a serial number, its terms, its vector
    lance/numbers.npy      per serial number the passage's number in the index; -1 for deleted passages
    lance/trained.json     how many passages the vectors' clusters were computed from

The words are those of `words.py`, so that every script is matched as by `bm25.py`; scores are LanceDB's BM25 or the
cosine. A hybrid search fuses both, as `engines.py` does for the other engines.

The number of a passage changes when a document before it does; its serial number does not, so that an update only
deletes and adds rows. LanceDB adds files to a table but never changes one, so an update hard-links the files of the
earlier index.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec import Struct

from quaere.disk import link_file
from quaere.errors import BadInput, import_extra
from quaere.search.bm25 import Bm25Settings, no_words, passage_terms, query_terms
from quaere.search.dense import SPARE, choose_num_lists, embed_queries, makes_same
from quaere.search.embedders import DenseSettings, Embedder, Vectors, open_embedder
from quaere.search.engines import Backend, Engine, EngineBuild, KnownVectors, Match, fuse_engines, rank, rebuild_hint

if TYPE_CHECKING:
    from quaere.search.index import IndexSettings

LanceSearch = Literal["text", "dense", "hybrid"]
_Serials = np.typing.NDArray[np.int64]
_TABLE = "passages"
_CACHE_BYTES = 1 << 30  # bytes of index parts that are kept in memory between searches
_TRAINING_BYTES = 1 << 30  # bytes of vectors that clusters are computed from; k-means holds all of them in memory
_ROWS_AT_ONCE = 1024
_RANGES_AT_ONCE = 500


class LanceSettings(Struct, frozen=True):
    """Settings of the LanceDB engine: whether it searches by words, by vectors, or by both.

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


def _check(settings: IndexSettings) -> None:
    if settings.lance.has_words and (settings.bm25.k1, settings.bm25.b) != (1.2, 0.75):
        raise BadInput("LanceDB's BM25 has k1 1.2 and b 0.75", hint="leave out --k1 and --b, or use --engine bm25")
    if settings.lance.has_vectors and settings.dense.ann == "hnsw":
        raise BadInput("--engine lance has no --ann hnsw", hint="--ann ivf, or --engine dense")


def _uses(settings: IndexSettings) -> tuple[str, ...]:
    return ("lance", *("bm25",) * settings.lance.has_words, *("dense",) * settings.lance.has_vectors)


# ---------------------------------------------------------------------------------------------------------- searching


def _open_lance(folder: Path, settings: IndexSettings) -> Engine:
    table, numbers = _open_table(folder), _read_numbers(folder)
    engines: list[Engine] = []
    if settings.lance.has_words:
        engines.append(_LanceText(table, numbers, settings.bm25))
    if settings.lance.has_vectors:
        engines.append(_LanceVectors(table, numbers, settings.dense, open_embedder(settings.dense)))
    return fuse_engines(engines)


class _LanceText(Struct):
    table: Any
    numbers: _Serials
    settings: Bm25Settings

    def search(self, queries: Sequence[str], topk: int) -> list[list[Match]]:
        return [self._search_one(query, topk) for query in queries]

    def _search_one(self, query: str, topk: int) -> list[Match]:
        from lancedb.query import MatchQuery

        if not (words := query_terms(query, self.settings)):
            return []
        wanted = self.table.search(MatchQuery(" ".join(words), "terms"), query_type="fts")
        return _matches(wanted, "_score", self.numbers, topk)


class _LanceVectors(Struct):
    table: Any
    numbers: _Serials
    settings: DenseSettings
    embedder: Embedder

    def search(self, queries: Sequence[str], topk: int) -> list[list[Match]]:
        vectors = embed_queries(self.embedder, queries, _width(self.table)) if queries else ()
        return [self._search_one(vector, topk) for vector in vectors]

    def _search_one(self, vector: Vectors, topk: int) -> list[Match]:
        wanted = self.table.search(vector, vector_column_name="vector").distance_type("dot")
        wanted = wanted.nprobes(self.settings.num_probes) if self.settings.ann == "ivf" else wanted
        return _matches(wanted, "_distance", self.numbers, topk)


def _matches(wanted: Any, column: str, numbers: _Serials, topk: int) -> list[Match]:
    """Run a LanceDB query and return its matches; `column` has the scores, or distances, which are 1 - score."""
    found = wanted.limit(topk + SPARE).select(["serial", column]).to_arrow()
    scores = 1 - found[column].to_numpy() if column == "_distance" else found[column].to_numpy()
    pairs = zip(numbers[found["serial"].to_numpy()], scores, strict=True)
    return rank([Match(int(number), float(score)) for number, score in pairs], topk)


# ----------------------------------------------------------------------------------------------------------- building


def _build_lance(build: EngineBuild) -> int:
    writer = _TableWriter(build)
    writer.update(build.known()) if build.known else writer.write()
    return writer.num_embedded


LANCE = Backend(_build_lance, _open_lance, _uses, _check)


class _TableWriter:
    def __init__(self, build: EngineBuild) -> None:
        lance = build.settings.lance
        self.num_embedded = 0
        self._build, self._folder = build, build.folder
        self._bm25 = build.settings.bm25 if lance.has_words else None
        self._dense = build.settings.dense if lance.has_vectors else None
        self._embedder: Embedder | None = None
        self._has_words = False

    def write(self) -> None:
        serials = np.arange(self._build.num_passages)
        connection = _connect(self._folder)
        table = _write_stream(self._batches(serials, serials), partial(connection.create_table, _TABLE))
        if self._bm25 and not self._has_words:
            raise no_words()
        self._index_words(table)
        self._train(table)
        np.save(self._folder / "numbers.npy", serials)

    def update(self, known: KnownVectors) -> None:
        """Write a table that reuses the rows `known.rows` of the earlier table and adds the missing ones.

        All rows are written anew if none can be reused, or if the embedder did not make the earlier vectors.
        """
        earlier = _read_numbers(known.folder)
        serials = _keep_serials(known.rows, earlier)
        new = np.flatnonzero(serials < 0)
        is_same = not self._dense or not new.size or self._makes_same(known.folder, serials)
        if not is_same or new.size == self._build.num_passages:
            self.write()
            return
        shutil.copytree(known.folder, self._folder, copy_function=_share, dirs_exist_ok=True)
        table = _open_table(self._folder)
        if self._bm25:
            table.drop_index("terms_idx")  # rebuilt below: if extended, it would still count words of deleted passages
        self._delete(table, np.setdiff1d(np.flatnonzero(earlier >= 0), serials))
        serials[new] = np.arange(len(earlier), len(earlier) + new.size)
        if new.size:
            _write_stream(self._batches(new, serials[new]), table.add)
        self._optimise(table)
        self._index_words(table)
        if self._build.num_passages > 2 * int((self._folder / "trained.json").read_text()):
            self._train(table)
        numbers = np.full(len(earlier) + new.size, -1)
        numbers[serials] = np.arange(self._build.num_passages)
        np.save(self._folder / "numbers.npy", numbers)

    def _batches(self, numbers: _Serials, serials: _Serials) -> Iterator[Any]:
        """The table's rows for these passages, as Arrow record batches; embeds the passages if there are vectors."""
        arrow = _import("pyarrow")
        if self._dense and numbers.size:
            self._embedder = self._embedder or open_embedder(self._dense)
        step = self._embedder.num_at_once if self._embedder else _ROWS_AT_ONCE
        for start in range(0, len(numbers), step):
            passages = [self._build.read(number) for number in numbers[start : start + step].tolist()]
            columns = {"serial": arrow.array(serials[start : start + step])}
            if self._bm25:
                words = [" ".join(passage_terms(passage, self._bm25)) for passage in passages]
                self._has_words = self._has_words or any(words)
                columns["terms"] = arrow.array(words)
            if self._embedder:
                vectors = self._embedder.embed_passages(passages)
                self.num_embedded += len(passages)
                columns["vector"] = arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.ravel()), vectors.shape[1])
            doing = "embedding" if self._embedder else "reading words"
            self._build.progress(doing, start + len(passages), len(numbers))
            yield arrow.RecordBatch.from_pydict(columns)

    def _index_words(self, table: Any) -> None:
        if self._bm25:
            from lancedb.index import FTS

            # The terms are split and folded already (words.py): LanceDB must not process them again.
            plain = {"lower_case": False, "stem": False, "remove_stop_words": False, "ascii_folding": False}
            self._build.progress("scoring words", 0, None)
            table.create_index("terms", config=FTS(base_tokenizer="whitespace", max_token_length=None, **plain))

    def _train(self, table: Any) -> None:
        """Build the table's approximate index (IVF): vectors in clusters, of which a search reads the nearest."""
        if self._dense and self._dense.ann == "ivf":
            from lancedb.index import IvfFlat

            num_lists = choose_num_lists(self._dense, self._build.num_passages)
            a_list = min(256, max(16, _TRAINING_BYTES // (4 * _width(table) * num_lists)))
            self._build.progress("linking neighbours", 0, None)
            table.create_index(
                "vector", config=IvfFlat(distance_type="dot", num_partitions=num_lists, sample_rate=a_list)
            )
        (self._folder / "trained.json").write_text(str(self._build.num_passages))

    def _makes_same(self, folder: Path, serials: _Serials) -> bool:
        """True if the embedder gives an earlier passage its vector again (`makes_same`)."""
        assert self._dense
        self._embedder = open_embedder(self._dense)
        number = int(np.argmax(serials))
        if serials[number] < 0:
            return False
        row = _open_table(folder).search().where(f"serial = {serials[number]}").select(["vector"]).limit(1).to_arrow()
        earlier = row["vector"].combine_chunks().flatten().to_numpy()
        return makes_same(self._embedder, self._build.read(number), earlier)

    def _delete(self, table: Any, serials: _Serials) -> None:
        """Delete the rows with these serial numbers, by ranges: passages of one document have adjacent numbers."""
        runs = np.split(serials, np.flatnonzero(np.diff(serials) > 1) + 1) if serials.size else []
        ranges = [f"(serial BETWEEN {run[0]} AND {run[-1]})" for run in runs]
        for start in range(0, len(ranges), _RANGES_AT_ONCE):
            table.delete(" OR ".join(ranges[start : start + _RANGES_AT_ONCE]))

    def _optimise(self, table: Any) -> None:
        """Put new vectors into their clusters, and remove the files of earlier versions."""
        self._build.progress("linking neighbours", 0, None)
        table.optimize()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns about readers of an earlier version; this copy has no readers
            table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)


def _keep_serials(rows: _Serials, earlier: _Serials) -> _Serials:
    """Per passage its serial number in the earlier table, or -1; `rows` are the passages' numbers in that index.

    If two passages with the same text match one earlier passage, only the first gets its serial number.
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
    """Hard-link a file that LanceDB never changes to `target`; copy any other file."""
    never_changes = any(f"{os.sep}{folder}{os.sep}" in source for folder in ("data", "_indices"))
    (link_file if never_changes else shutil.copyfile)(source, target)


def _write_stream(batches: Iterator[Any], take: Callable[[Any], Any]) -> Any:
    """Stream the Arrow record batches into `take` and return its result; they are never all in memory.

    LanceDB would wrap an exception of the iterator in its own; here the original exception is raised.
    """
    first = next(batches)
    failures: list[Exception] = []

    def all_batches() -> Iterator[Any]:
        yield first
        try:
            yield from batches
        except Exception as error:
            failures.append(error)
            raise

    try:
        return take(_import("pyarrow").RecordBatchReader.from_batches(first.schema, all_batches()))
    except Exception as error:
        raise (failures[0] if failures else error) from None


# ----------------------------------------------------------------------------------------------------------- opening


def _connect(folder: Path) -> Any:
    os.environ.setdefault("LANCEDB_LOG", "error")  # its warnings are for its developers
    lancedb = _import("lancedb")
    return lancedb.connect(folder, session=lancedb.Session(index_cache_size_bytes=_CACHE_BYTES))


def _open_table(folder: Path) -> Any:
    connection, hint = _connect(folder), f"{rebuild_hint(folder.parent)} --force"
    try:
        table = connection.open_table(_TABLE)
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(f"the table in {folder} is damaged or missing", hint=hint) from error
    if "serial" not in table.schema.names:
        raise BadInput(f"the table in {folder} is damaged: it has no column of serial numbers", hint=hint)
    return table


def _width(table: Any) -> int:
    return int(table.schema.field("vector").type.list_size)


def _read_numbers(folder: Path) -> _Serials:
    return np.asarray(np.load(folder / "numbers.npy", mmap_mode="r"))


_import = partial(import_extra, needed="--engine lance needs lancedb", extra="lance")
