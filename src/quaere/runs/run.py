"""One run: its directory is the truth about it.

    runs/ask-20250301-101500/
        run.db                       what it was run with, metrics, and where each episode lies
        episodes/00000.jsonl.zst     the episodes
        run.lock                     held by the one process that writes

An episode is written in two steps: its frame is appended to a shard and synced, then its row is committed to the
index. A process killed between the two leaves bytes that no row points at; the next writer cuts them off. So whatever
the index knows can be read, at any moment, and by any number of readers beside the writer.
"""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count, groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from filelock import FileLock, Timeout
from msgspec import Struct

import quaere
from quaere.errors import BadInput
from quaere.records import Answer, EndReason, Episode, Proposal, SolveTask, Task
from quaere.runs.database import connect, create_database
from quaere.runs.nearest import nearest_hint
from quaere.runs.shards import Frame, ShardWriter, read_frame

_DATABASE, _EPISODES, _LOCK = "run.db", "episodes", "run.lock"


class RunInfo(Struct, frozen=True):
    """What was run.

    RunInfo(id="ask-20250301-101500", kind="ask", created="2025-03-01T10:15:00+00:00", version="0.1.0",
            settings={"model": "smollm2-135m"})
    """

    id: str
    kind: str
    created: str
    version: str
    settings: dict[str, Any]


class EpisodeRow(Struct, frozen=True):
    """What the index knows of an episode without reading it; `answer` is None where it ended without one.

    EpisodeRow(number=1, id="ask-0", task_id="q1", question="Who built the Halm bridge?", answer="Orsolya Venn",
               protocol="drzero-solver", model="smollm2-135m", end="answered", num_turns=2, num_searches=1,
               num_tokens=412, metrics={"seconds": 2.5})
    """

    number: int
    id: str
    task_id: str
    question: str
    answer: str | None
    protocol: str
    model: str
    end: EndReason
    num_turns: int
    num_searches: int
    num_tokens: int
    metrics: dict[str, float]


class Metric(Struct, frozen=True):
    """One measured value.

    Metric(step=3, value=0.25)
    """

    step: int
    value: float


class Run:
    """A run directory, open for reading, or for reading and writing by this process alone."""

    def __init__(self, path: Path, database: sqlite3.Connection, lock: FileLock | None) -> None:
        self.path = path
        self._database = database
        self._lock = lock
        self.info = self._read_info()
        self._shards = ShardWriter(path / _EPISODES, self._shard_ends()) if lock else None

    # ------------------------------------------------------------------------------------------ open and close

    @classmethod
    def create(cls, path: str | Path, kind: str, settings: Mapping[str, Any] | None = None) -> Self:
        """Make a run directory at `path` and open it for writing; it appears complete, in one rename."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
            shutil.rmtree(partial, ignore_errors=True)  # left by a process of the same number that was killed
            partial.mkdir()
            try:
                (partial / _EPISODES).mkdir()
                _write_info(partial / _DATABASE, _describe(path.name, kind, settings or {}))
                partial.rename(path)
            finally:
                shutil.rmtree(partial, ignore_errors=True)  # still there only if it was not renamed
        except OSError as error:
            reason = "it exists already" if path.exists() else error.strerror
            raise BadInput(f"cannot create the run directory {path}: {reason}", hint="quaere runs list") from error
        return cls.open(path, write=True)

    @classmethod
    def start(cls, root: str | Path, kind: str, settings: Mapping[str, Any] | None = None) -> Self:
        """Create a run under `root`, named after its kind and the time: `ask-20250301-101500`, then `...-2`."""
        stem = f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        for number in count(1):
            path = Path(root) / (stem if number == 1 else f"{stem}-{number}")
            try:
                return cls.create(path, kind, settings)
            except BadInput:
                if not path.exists():  # not a name taken by somebody else
                    raise
        raise AssertionError("count() never ends")

    @classmethod
    def open(cls, path: str | Path, *, write: bool = False) -> Self:
        """Open a run: read-only beside a writer, or as its only writer."""
        path = Path(path)
        database = connect(path / _DATABASE, write=write)
        lock: FileLock | None = None
        try:
            if write:
                lock = _take_lock(path, database)
            return cls(path, database, lock)
        except BaseException:
            database.close()
            if lock:
                lock.release()
            raise

    def close(self) -> None:
        """Let go of the files, and of the right to write."""
        if self._shards and self._lock:
            self._shards.close()
            with suppress(sqlite3.Error), self._database:
                self._database.execute("UPDATE runs SET writer_pid = NULL")
        self._database.close()
        if self._lock:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------------- write

    def add_episode(self, episode: Episode, metrics: Mapping[str, float] | None = None) -> None:
        """Append one episode with what was measured on it; when this returns, it is on disk."""
        self.add_episodes([episode], [metrics or {}])

    def add_episodes(self, episodes: Sequence[Episode], metrics: Sequence[Mapping[str, float]] | None = None) -> None:
        """Append several episodes at once: all of them are stored, or none."""
        if not episodes:
            return
        shards = self._writer()
        self._refuse_duplicates(episodes)
        measured = metrics if metrics is not None else [{}] * len(episodes)
        lines = [_encode(episode) for episode in episodes]
        try:
            frame = shards.append(lines)
        except OSError as error:
            raise BadInput(f"cannot write to the run {self.path}: {error.strerror}") from error
        rows = [
            {**_index_row(episode), "line": line, "metrics": _encode_metrics(values), **msgspec.structs.asdict(frame)}
            for line, (episode, values) in enumerate(zip(episodes, measured, strict=True))
        ]
        columns = ", ".join(rows[0])
        values = ", ".join(f":{column}" for column in rows[0])
        try:
            with self._database:
                self._database.executemany(f"INSERT INTO episodes ({columns}) VALUES ({values})", rows)
        except sqlite3.Error as error:
            shards.discard(frame)
            raise BadInput(f"cannot write to the run {self.path}: {error}") from error

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Record values measured at a step; a name logged again at the same step replaces the earlier value.

        run.log_metrics(3, {"reward/mean": 0.25, "loss/policy": 0.01})
        """
        self._writer()
        rows = [(name, step, None if math.isnan(value) else float(value)) for name, value in values.items()]
        try:
            with self._database:
                self._database.executemany("INSERT OR REPLACE INTO metrics (name, step, value) VALUES (?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise BadInput(f"cannot write to the run {self.path}: {error}") from error

    # ----------------------------------------------------------------------------------------------------- read

    def index(
        self, *, end: EndReason | None = None, answered: bool | None = None, protocol: str | None = None
    ) -> list[EpisodeRow]:
        """The episodes in the order they were added, without reading them; each filter narrows the list."""
        return [_row(row) for row in self._select(end=end, answered=answered, protocol=protocol)]

    def episodes(
        self, *, end: EndReason | None = None, answered: bool | None = None, protocol: str | None = None
    ) -> Iterator[Episode]:
        """The episodes themselves, in the order they were added; one frame is in memory at a time."""
        rows = self._select(end=end, answered=answered, protocol=protocol)
        for frame, members in groupby(rows, key=_frame):
            lines = read_frame(self.path / _EPISODES, frame)
            for row in members:
                yield self._decode(lines, row)

    def episode(self, id: str) -> Episode:
        """One episode by its id, read without looking at the others."""
        rows = self._query("SELECT * FROM episodes WHERE id = ?", (id,))
        if not rows:
            known = [known for (known,) in self._query("SELECT id FROM episodes")]
            hint = nearest_hint(id, known, f"quaere runs show {self.info.id}")
            raise BadInput(f"run {self.info.id} has no episode {id}", hint=hint)
        return self._decode(read_frame(self.path / _EPISODES, _frame(rows[0])), rows[0])

    def metrics(self, name: str) -> list[Metric]:
        """Every value of one metric, by step."""
        rows = self._query("SELECT step, value FROM metrics WHERE name = ? ORDER BY step", (name,))
        return [Metric(step=step, value=math.nan if value is None else value) for step, value in rows]

    def metric_names(self) -> list[str]:
        """Which metrics were logged, in alphabetical order."""
        return [name for (name,) in self._query("SELECT DISTINCT name FROM metrics ORDER BY name")]

    def count_episodes(self) -> tuple[int, int]:
        """How many episodes there are, and how many of them ended with an answer."""
        ((num_episodes, num_answered),) = self._query("SELECT COUNT(*), COALESCE(SUM(answered), 0) FROM episodes")
        return num_episodes, num_answered

    # -------------------------------------------------------------------------------------------------- details

    def _query(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[sqlite3.Row]:
        try:
            return self._database.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise BadInput(f"{self.path / _DATABASE} cannot be read: {error}", hint="quaere runs list") from error

    def _read_info(self) -> RunInfo:
        ((id, kind, created, version, settings),) = self._query("SELECT id, kind, created, version, settings FROM runs")
        return RunInfo(id=id, kind=kind, created=created, version=version, settings=msgspec.json.decode(settings))

    def _shard_ends(self) -> dict[int, int]:
        rows = self._query("SELECT shard, MAX(offset + length) AS indexed FROM episodes GROUP BY shard")
        return {row["shard"]: row["indexed"] for row in rows}

    def _writer(self) -> ShardWriter:
        if self._shards is None:
            raise BadInput(f"run {self.info.id} is open for reading only", hint="Run.open(path, write=True)")
        return self._shards

    def _refuse_duplicates(self, episodes: Sequence[Episode]) -> None:
        seen: set[str] = set()
        for episode in episodes:
            known = self._query("SELECT 1 FROM episodes WHERE id = ?", (episode.id,))
            if known or episode.id in seen:
                raise BadInput(f"run {self.info.id} already holds an episode {episode.id}")
            seen.add(episode.id)

    def _select(self, **filters: str | bool | None) -> list[sqlite3.Row]:
        wanted = {column: value for column, value in filters.items() if value is not None}
        where = "".join(f" AND {column} = :{column}" for column in wanted)
        return self._query(f"SELECT * FROM episodes WHERE TRUE{where} ORDER BY number", wanted)

    def _decode(self, lines: list[bytes], row: sqlite3.Row) -> Episode:
        try:
            return msgspec.json.decode(lines[row["line"]], type=Episode)
        except (msgspec.DecodeError, IndexError) as error:
            raise BadInput(f"episode {row['id']} of run {self.info.id} is damaged: {error}") from error


def _describe(id: str, kind: str, settings: Mapping[str, Any]) -> RunInfo:
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return RunInfo(id=id, kind=kind, created=created, version=quaere.__version__, settings=dict(settings))


def _write_info(path: Path, info: RunInfo) -> None:
    create_database(path)
    database = connect(path, write=True)
    try:
        with database:
            values = (info.id, info.kind, info.created, info.version, msgspec.json.encode(info.settings).decode())
            database.execute("INSERT INTO runs (id, kind, created, version, settings) VALUES (?, ?, ?, ?, ?)", values)
    finally:
        database.close()


def _take_lock(path: Path, database: sqlite3.Connection) -> FileLock:
    """Become the writer. The system lets go of the lock when its holder dies, however it dies."""
    lock = FileLock(path / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        (pid,) = database.execute("SELECT writer_pid FROM runs").fetchone()
        who = f"process {pid}" if pid else "another process"
        raise BadInput(f"run {path.name} is being written by {who}", hint="wait for it, or start a new run") from error
    with database:
        database.execute("UPDATE runs SET writer_pid = ?", (os.getpid(),))
    return lock


def _encode(episode: Episode) -> bytes:
    """One line of JSON that is known to decode to the same episode; NaN, for one, would not."""
    try:
        line = msgspec.json.encode(episode)
        same = msgspec.json.decode(line, type=Episode) == episode
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise BadInput(f"episode {episode.id} cannot be stored: {error}") from error
    if not same:
        raise BadInput(f"episode {episode.id} cannot be stored: it would not be read back the same")
    return line


def _encode_metrics(values: Mapping[str, float]) -> str:
    return msgspec.json.encode({name: float(value) for name, value in values.items()}).decode()


def _index_row(episode: Episode) -> dict[str, str | int | None]:
    task = episode.task
    return {
        "id": episode.id,
        "task_id": task.id,
        "question": _subject(task),
        "answer": _answer_text(episode.outcome),
        "protocol": episode.protocol,
        "model": episode.model,
        "end": episode.end,
        "answered": int(episode.end == "answered"),
        "num_turns": len(episode.turns),
        "num_searches": episode.num_searches,
        "num_tokens": sum(len(segment.token_ids) for segment in episode.segments),
    }


def _subject(task: Task) -> str:
    """What an episode is about, in a few words: its question, or the title of its document."""
    if isinstance(task, SolveTask):
        return task.question.text
    return task.document.title if task.document else ""


def _answer_text(outcome: Answer | Proposal | None) -> str | None:
    if isinstance(outcome, Proposal):
        return f"{outcome.question} -> {outcome.answer}"
    return None if outcome is None else outcome.text


def _frame(row: sqlite3.Row) -> Frame:
    return Frame(shard=row["shard"], offset=row["offset"], length=row["length"])


def _row(row: sqlite3.Row) -> EpisodeRow:
    values: dict[str, float | None] = msgspec.json.decode(row["metrics"])
    metrics = {name: math.nan if value is None else value for name, value in values.items()}
    return msgspec.convert({**dict(row), "metrics": metrics}, EpisodeRow)
