"""Retrieval that is recorded, and replayed from the record: the same queries get the same hits, bit for bit.

    record:study.warc.gz@docs-index                          # searches the index, and writes what it finds
    record:study.warc.gz@web:searxng@http://127.0.0.1:8888   # any place can be recorded
    replay:study.warc.gz                                     # searches nothing

A record is a WARC file (`warc.py`). It begins with the place and the fingerprint of its index. Each search is a record
of its own: query, number of passages, hits or failure. Pages of the web are there as they were sent. A search that was
recorded is not repeated, so that a record has one result for each query; failures may come before it.
"""

import asyncio
import fcntl
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec
from msgspec import Struct

from quaere import __version__
from quaere.disk import append_whole, explain_errors, open_regular
from quaere.errors import BadInput, QuaereError, SearchFailed, StaleIndex
from quaere.records import Hit
from quaere.records.foreign_json import decode_json
from quaere.search.cache import Cache
from quaere.search.index import read_manifest
from quaere.search.searcher import Searcher, find_fingerprint, find_opener, is_folder
from quaere.search.warc import BadRecord, has_record_after, pack_record, read_record, read_records

if TYPE_CHECKING:
    from quaere.search.fetch import Fetched

_KEY = tuple[str, int]
_NUM_REMEMBERED = 4096  # searches whose hits are kept in memory
_SYNTAX = "record:FILE@PLACE, such as record:study.warc.gz@docs-index"
_SEARCH = "urn:quaere:search:"
_OF_TRANSFER = ("content-encoding", "content-length", "transfer-encoding")


class RecordInfo(Struct, frozen=True):
    """The first record of a file: what was searched, and the fingerprint of its index, "" if it has none.

    RecordInfo(place="docs-index", fingerprint="5f2c...", software="quaere/0.2.0")
    """

    place: str
    fingerprint: str = ""
    software: str = f"quaere/{__version__}"


class Retrieval(Struct, frozen=True, omit_defaults=True):
    """A search and its outcome: the hits or, if it failed, the kind of failure and its message.

    Retrieval(query="who built the Halm bridge?", topk=3, hits=[Hit(...)])
    """

    query: str
    topk: int
    hits: list[Hit] = []
    failed: str = ""
    message: str = ""


def read_recording(rest: str) -> Callable[[], Searcher]:
    """The function that opens the searcher of `record:FILE@PLACE`; `rest` is the text after `record:`."""
    file, at, place = rest.partition("@")
    if not (file and at and place):
        raise BadInput(f"a record must be written as {_SYNTAX}", hint=_SYNTAX.rpartition(" ")[2])
    open_inner = find_opener(place)
    return lambda: Recorder(Path(file), place, open_inner)


def read_replay(rest: str) -> Callable[[], Searcher]:
    """The function that opens the searcher of `replay:FILE`; `rest` is the text after `replay:`."""
    path = Path(rest)
    if not path.is_file():
        hint = f"--search record:{rest or 'FILE'}@PLACE makes one"
        raise BadInput(f"there is no record {rest or 'FILE'}", hint=hint)
    return partial(Replayer, path)


class RecordFile:
    """A record on disk. Hits stay in the file and are read when they are needed."""

    def __init__(self, path: Path, stream: BinaryIO, *, repair: bool = False) -> None:
        """Read the file's searches; with `repair`, cut off what a killed process left at its end."""
        self.path, self._stream = path, stream
        self.info: RecordInfo | None = None
        self._offsets: dict[_KEY, list[int]] = {}  # of the searches with this query, in the order of the file
        try:
            for record in read_records(stream):
                if record.kind == "warcinfo":
                    self.info = decode_json(record.content, RecordInfo)
                elif record.uri.startswith(_SEARCH):
                    found = decode_json(record.content, Retrieval)
                    self._offsets.setdefault((found.query, found.topk), []).append(record.offset)
        except BadRecord as error:
            if not error.is_torn or self.info is None or has_record_after(stream, error.offset):
                raise BadInput(f"{path} cannot be read: {error}", hint="record again, to another file") from error
            if repair:
                stream.truncate(error.offset)
        except msgspec.DecodeError as error:
            raise BadInput(f"{path} is not a record of searches: {error}", hint=f"it is made by {_SYNTAX}") from error

    def find(self, key: _KEY) -> list[Retrieval]:
        """The searches with this query, in the order of the file."""
        return [self._read(offset) for offset in self._offsets.get(key, ())]

    def begin(self, info: RecordInfo) -> None:
        """Write the file's description."""
        self.info = info
        self._append(pack_record("warcinfo", "", "application/json", msgspec.json.encode(info)))

    def add(self, found: Retrieval) -> None:
        """Write a search."""
        key = found.query, found.topk
        uri = _SEARCH + sha256(msgspec.json.encode(key)).hexdigest()
        offset = self._append(pack_record("resource", uri, "application/json", msgspec.json.encode(found)))
        self._offsets.setdefault(key, []).append(offset)

    def add_page(self, page: "Fetched") -> None:
        """Write a page of the web, with the headers that are true of its unpacked body."""
        kept = [each for each in page.headers if each[0] not in _OF_TRANSFER]
        lines = [f"{name}: {value}" for name, value in (*kept, ("content-length", str(len(page.body))))]
        status = f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}"
        head = "".join(f"{line}\r\n" for line in (status, *lines, ""))
        content = head.encode("utf-8", "replace") + page.body
        self._append(pack_record("response", page.url, "application/http; msgtype=response", content))

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _read(self, offset: int) -> Retrieval:
        self._stream.seek(offset)
        try:
            record = read_record(self._stream)
            return decode_json(record.content if record else b"", Retrieval)
        except (BadRecord, msgspec.DecodeError) as error:
            raise BadInput(f"{self.path} has changed while it was read", hint="try again") from error

    def _append(self, data: bytes) -> int:
        with explain_errors(self.path):
            return append_whole(self._stream.fileno(), data)


class Recorder:
    """Searcher that records every search of another searcher in a file; a search in the file is answered from it.

    An existing file is continued if its place and the fingerprint of its index are the same.
    """

    def __init__(self, path: Path, place: str, open_inner: Callable[[], Searcher]) -> None:
        with explain_errors(path):
            stream = path.open("a+b")
        try:
            self._file = _lock_record(path, stream)
            self._inner = open_inner()
        except BaseException:
            stream.close()
            raise
        self._place = place
        self._found: Cache[_KEY, list[Hit]] = Cache(_NUM_REMEMBERED)
        self._beginning: Cache[str, None] = Cache(1)
        self.index = getattr(self._inner, "index", None)
        if hasattr(self._inner, "keep_page"):
            self._inner.keep_page = self._file.add_page

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the index, if it is one in this process; else ""."""
        return str(getattr(self._inner, "fingerprint", ""))

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """One list of hits per query, in the order of the queries."""
        await self._beginning.get("", self._begin)
        searches = [self._found.get((query, topk), partial(self._search, query, topk)) for query in queries]
        found = await asyncio.gather(*searches, return_exceptions=True)  # all have ended when one has failed
        return _raise_first(found)

    async def check(self) -> object:
        """Check the searcher that is recorded, and that the record is of the same index."""
        health = await check() if (check := getattr(self._inner, "check", None)) else None
        await self._beginning.get("", self._begin)
        return health

    async def close(self) -> None:
        """Close the searcher that is recorded, and the file."""
        try:
            await self._inner.close()
        finally:
            self._file.close()

    async def _begin(self) -> None:
        now = RecordInfo(self._place, await find_fingerprint(self._inner))
        then = self._file.info
        if then is None:
            self._file.begin(now)
        elif (then.place, then.fingerprint) != (now.place, now.fingerprint):
            was = "another index" if then.place == now.place else then.place
            raise BadInput(f"{self._file.path} is a record of {was}", hint="record to another file")

    async def _search(self, query: str, topk: int) -> list[Hit]:
        if (known := self._file.find((query, topk))) and not known[-1].failed:
            return known[-1].hits
        try:
            (hits,) = await self._inner.search([query], topk)
        except SearchFailed as failure:
            self._file.add(Retrieval(query, topk, failed=failure.kind, message=str(failure)))
            raise
        self._file.add(Retrieval(query, topk, hits))
        return hits


class Replayer:
    """Searcher that answers from a record; a query that is not in it is `BadInput`."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = RecordFile(path, open_regular(path))
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}") from error
        if self._file.info is None:
            raise BadInput(f"{path} is not a record of searches", hint=f"it is made by {_SYNTAX}")
        self.info = self._file.info
        self._num_failed: dict[_KEY, int] = {}  # failures that were replayed
        self._warn_if_changed()

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the index, if it was one in the recording process; else ""."""
        return self.info.fingerprint if is_folder(self.info.place) else ""

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """One list of hits per query, in the order of the queries."""
        return _raise_first([self._find((query, topk)) for query in queries])

    async def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _find(self, key: _KEY) -> list[Hit] | SearchFailed:
        """The next outcome of the search: its recorded failures in order, then always its hits."""
        found = self._file.find(key)
        if not found:
            said = f"the record {self._file.path} has no search for {key[0][:200]!r} with {key[1]} passages"
            raise BadInput(said, hint=f"--search record:{self._file.path}@{self.info.place} adds it")
        number = self._num_failed.get(key, 0)
        outcome = found[min(number, len(found) - 1)]
        if outcome.failed:
            self._num_failed[key] = number + 1
            return SearchFailed(outcome.message, kind=outcome.failed)
        return outcome.hits

    def _warn_if_changed(self) -> None:
        if not self.fingerprint:
            return
        with suppress(QuaereError):  # the index is gone: a record needs none
            if read_manifest(Path(self.info.place)).fingerprint != self.fingerprint:
                said = f"the index {self.info.place} has changed since {self._file.path} was recorded"
                warnings.warn(f"{said}: the recorded results are replayed", StaleIndex, stacklevel=1)


def _raise_first(found: Sequence[list[Hit] | BaseException]) -> list[list[Hit]]:
    """The hits of all queries; raises the first failure among them."""
    for outcome in found:
        if isinstance(outcome, BaseException):
            raise outcome
    return [[*hits] for hits in found if not isinstance(hits, BaseException)]


def _lock_record(path: Path, stream: BinaryIO) -> RecordFile:
    """The record, locked until it is closed: two processes would mix their writes."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadInput(f"{path} is being recorded by another process", hint="record to another file") from None
    except OSError:  # a file system without locks
        pass
    stream.seek(0)
    file = RecordFile(path, stream, repair=True)
    if file.info is None and stream.seek(0, 2):
        raise BadInput(f"{path} exists and is not a record of searches", hint="record to another file")
    return file
