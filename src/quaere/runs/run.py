"""A run directory, open for writing: episodes, metrics, candidates and events.

    runs/ask-20250301-101500/
        run.db                       settings, metrics, candidates, events, the index of the episodes, and people's
                                     verdicts and added questions
        episodes/00000.jsonl.zst     the episodes
        config.yaml                  of a training run: all its settings
        questions.jsonl              of a run with given questions: a copy of them; others are kept in the same way
        run.lock                     held by the one process that writes

An episode is written in two steps: its frame is appended to a shard and synced, then its row is committed to the
index. A process killed between the two leaves bytes that no row points at; the next writer truncates them. Everything
in the index can therefore be read at any time, by any number of readers, while the writer writes.

A training run that resumes from a checkpoint first deletes everything after it (`truncate_after`): rows first, then
bytes, so that a process killed in between leaves the same state as above.

Only verdicts and added questions may be written by other processes, at any time: see `review.py`.
"""

import math
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec
import zstandard
from filelock import FileLock

import quaere
from quaere.disk import sync, write_file
from quaere.errors import BadInput, NotFound
from quaere.records import Answer, Candidate, Episode
from quaere.records.episodes import TokenTrace
from quaere.rewards.abstention import ABSTAINED, is_abstention
from quaere.runs import directory
from quaere.runs.reader import RunReader
from quaere.runs.rows import (
    OWN_PHASES,
    PHASES,
    Frame,
    RunInfo,
    RunState,
    candidate_row,
    check_candidate,
    encode_episode,
    encode_values,
    index_row,
    insert,
    trace_row,
)

# -------------------------------------------------------------------------------------------------- shards of episodes

_SHARD = re.compile(r"(\d+)\.jsonl\.zst")
_LEVEL = 3
_SHARD_BYTES = 64 << 20  # a new shard starts once the current one has this size


class ShardWriter:
    """Appends frames to shards. `ends` is the indexed length of each shard; bytes beyond it are truncated first.

    writer = ShardWriter(Path("runs/ask-1/episodes"), ends={0: 5120})
    writer.append([b'{"id":"ask-3",...}', b'{"id":"ask-4",...}']) == Frame(shard=0, offset=5120, length=874)
    """

    def __init__(self, folder: Path, ends: Mapping[int, int], *, shard_bytes: int = _SHARD_BYTES) -> None:
        self._folder, self._shard_bytes = folder, shard_bytes
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True)
        folder.mkdir(exist_ok=True)
        self._shard, self._end, self._file = self._open_at(ends)

    def append(self, lines: Sequence[bytes]) -> Frame:
        """Write the lines as one frame and sync it to disk; a failed write is undone."""
        if self._end >= self._shard_bytes:
            file = directory.shard_path(self._folder, self._shard + 1).open("ab")
            self._file.close()
            self._shard, self._end, self._file = self._shard + 1, 0, file
        compressed = self._compressor.compress(b"".join(line + b"\n" for line in lines))
        try:
            self._file.write(compressed)
            self._file.flush()
            os.fsync(self._file.fileno())
            if self._end == 0:
                sync(self._folder)  # without this, a power cut could lose the new file's directory entry
        except BaseException:  # also Ctrl-C: the next frame would not be where the index says
            self.discard()
            raise
        frame = Frame(shard=self._shard, offset=self._end, length=len(compressed))
        self._end += len(compressed)
        return frame

    def discard(self, frame: Frame | None = None) -> None:
        """Remove the frame just appended, or the rest of a failed write, because it is not indexed."""
        if frame is not None:
            self._end = frame.offset
        path = directory.shard_path(self._folder, self._shard)
        with suppress(OSError):  # close() may flush the bytes that did not fit and fail again
            self._file.close()
        os.truncate(path, self._end)
        self._file = path.open("ab")

    def cut(self, ends: Mapping[int, int]) -> None:
        """Truncate each shard to its length in `ends`, after rows of the index were deleted."""
        self._file.close()
        self._shard, self._end, self._file = self._open_at(ends)

    def close(self) -> None:
        """Close the current shard file."""
        self._file.close()

    def _open_at(self, ends: Mapping[int, int]) -> tuple[int, int, BinaryIO]:
        """Delete bytes and shards beyond `ends`, and open the last shard for appending: (number, size, file).

        Raises BadInput, before changing anything, if a shard is shorter than its entry in `ends`.
        """
        last = max(ends, default=0)
        # Check all shards before truncating any: a store that has lost data stays unchanged for recovery.
        for shard, end in ends.items():
            path = directory.shard_path(self._folder, shard)
            size = path.stat().st_size if path.is_file() else 0
            if size < end:
                said = f"{path} has {size} bytes, but the index expects {end}: episodes are lost"
                raise BadInput(said, hint="restore the file from a backup")
        found = {path: int(named[1]) for path in self._folder.iterdir() if (named := _SHARD.fullmatch(path.name))}
        for path, shard in found.items():
            if shard > last:
                path.unlink()
            elif path.stat().st_size > ends.get(shard, 0):
                os.truncate(path, ends.get(shard, 0))
        return last, ends.get(last, 0), directory.shard_path(self._folder, last).open("ab")


# ------------------------------------------------------------------------------------------------------------- the run


class Run(RunReader):
    """A run directory, open for reading (see `reader.py`), or for reading and writing by this process alone."""

    def __init__(self, path: Path, database: sqlite3.Connection, lock: FileLock | None) -> None:
        super().__init__(path, database)
        self._lock = lock
        self._shards = ShardWriter(path / directory.EPISODES, self._shard_ends()) if lock else None

    # ------------------------------------------------------------------------------------------ open and close

    @classmethod
    def create(
        cls,
        path: str | Path,
        kind: str,
        settings: Mapping[str, Any] | None = None,
        *,
        config: str | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> Self:
        """Create a run directory at `path` with one atomic rename, and open it for writing.

        `files` are copies of the input files the run depends on, by name.

        Run.create("runs/first", "evolve", {"model": "smollm2-135m"}, config="model: smollm2-135m\\n...")
        """
        path = Path(path)
        # Not by the second: runs are listed in the order in which they were created.
        created = datetime.now(UTC).isoformat(timespec="milliseconds")
        info = RunInfo(path.name, kind, created, quaere.__version__, dict(settings or {}))
        directory.make_directory(path, info, config, files)
        return cls.open(path, write=True)

    @classmethod
    def start(cls, root: str | Path, kind: str, settings: Mapping[str, Any] | None = None) -> Self:
        """Create a run under `root`, named by kind and time: `ask-20250301-101500`, then `...-2` if that exists."""
        stem = f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        for number in count(1):
            path = Path(root) / (stem if number == 1 else f"{stem}-{number}")
            try:
                return cls.create(path, kind, settings)
            except BadInput:
                if not path.exists():  # the failure has another cause than a name that is taken
                    raise
        raise AssertionError("count() never ends")

    @classmethod
    def open(cls, path: str | Path, *, write: bool = False) -> Self:
        """Open a run for reading, also while another process writes it, or with `write` as its only writer.

        Raises BadInput if `path` is no run, or if another process has it open for writing.
        """
        path = Path(path)
        if write:
            directory.refuse_links(path)
        database = directory.connect(path / directory.DATABASE, write=write)
        lock: FileLock | None = None
        try:
            if write:
                lock = directory.take_lock(path, database)
            return cls(path, database, lock)
        except BaseException:
            database.close()
            if lock:
                lock.release()
            raise

    def close(self) -> None:
        """Close the files and release the writer's lock."""
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
        with suppress(BadInput):  # the run cannot be written: the error that ended the block is raised instead
            if self._lock and self._ended() == directory.BEGUN:
                self.note_end(_read_end(error))
        self.close()

    # ---------------------------------------------------------------------------------------------------- write

    def add_episode(
        self, episode: Episode, metrics: Mapping[str, float] | None = None, *, step: int = 0, phase: str = ""
    ) -> None:
        """Append one episode with its metrics; it is on disk when this returns."""
        self.add_episodes([episode], [metrics or {}], step=step, phase=phase)

    def add_episodes(
        self,
        episodes: Sequence[Episode],
        metrics: Sequence[Mapping[str, float]] | None = None,
        *,
        step: int = 0,
        phase: str = "",
    ) -> None:
        """Append several episodes of one step: all of them are stored, or none.

        Steps must not decrease, so that truncating the shards at a byte is the same as truncating the run at a step.
        """
        if not episodes:
            return
        shards = self._writer()
        self._refuse_earlier(step)
        self._refuse_duplicates(episodes)
        given = metrics if metrics is not None else [{}] * len(episodes)
        measured = [self._note_abstention(*pair) for pair in zip(episodes, given, strict=True)]
        rows = [
            {**index_row(episode), "step": step, "phase": phase, "line": line, "metrics": encode_values(values)}
            for line, (episode, values) in enumerate(zip(episodes, measured, strict=True))
        ]
        lines = [encode_episode(episode) for episode in episodes]
        with self._writing():
            frame = shards.append(lines)
            try:
                insert(self._database, "episodes", [{**row, **msgspec.structs.asdict(frame)} for row in rows])
            except Exception:
                # Otherwise the shard would keep an episode that the index does not know.
                shards.discard(frame)
                raise

    def drop_episodes(self, ids: Collection[str]) -> None:
        """Take episodes out of the index, so that others with their ids can be added; their frames stay in the shards.

        run.drop_episodes(["q1"])
        """
        with self._writing(), self._database:
            self._database.executemany("DELETE FROM episodes WHERE id = ?", [(id,) for id in ids])

    def add_traces(self, step: int, traces: Mapping[str, TokenTrace]) -> None:
        """Store per-token values of some episodes of a step, by episode id."""
        self._insert("token_traces", [trace_row(id, step, trace) for id, trace in traces.items()])

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Record metrics of a step; logging a name again at the same step replaces its value.

        run.log_metrics(3, {"reward/mean": 0.25, "loss/policy": 0.01})
        """
        # SQLite stores NaN as NULL anyway; readers turn NULL back into NaN.
        measured = {name: None if math.isnan(value) else float(value) for name, value in values.items()}
        rows = [{"name": name, "step": step, "value": value} for name, value in measured.items()]
        self._insert("metrics", rows, replace=True)

    def add_candidates(
        self, candidates: Sequence[Candidate], *, read_document: Callable[[str], str] | None = None
    ) -> None:
        """Store the proposer's candidates, kept and dropped, with the reasons: all of them are stored, or none.

        `read_document` returns a document's text by its id; with it, evidence that is not `document[start:end]` is
        refused. Without it, evidence is refused if its length does not match its offsets.

            run.add_candidates([candidate], read_document=index.document)
        """
        for candidate in candidates:
            check_candidate(candidate, read_document)
        self._insert("candidates", [candidate_row(candidate) for candidate in candidates])

    def add_event(self, step: int, kind: str, message: str) -> None:
        """Store an event of a step, such as an alarm.

        run.add_event(12, "alarm", "the entropy is below 0.02 for 3 steps")
        """
        self._insert("events", [{"step": step, "kind": kind, "message": message}])

    def replace_config(self, text: str) -> None:
        """Replace `config.yaml`, after settings were changed on resuming."""
        with self._writing():
            write_file(self.path / directory.CONFIG, text)

    def change_settings(self, changes: Mapping[str, Any]) -> None:
        """Store new values for some of the run's settings; the others stay.

        run.change_settings({"writers": ["trackio"]})
        """
        settings = {**self.info.settings, **changes}
        with self._writing(), self._database:
            self._database.execute("UPDATE runs SET settings = ?", (msgspec.json.encode(settings).decode(),))
        self.info = msgspec.structs.replace(self.info, settings=settings)

    def number_phase(self, phase: str) -> float:
        """The number of a phase in the metric `run/phase`; an unknown name is added to the run's own phases."""
        own = self.info.settings.get(OWN_PHASES, [])
        if phase not in (*PHASES, *own):
            own = [*own, phase]
            self.change_settings({OWN_PHASES: own})
        return float((*PHASES, *own).index(phase))

    def note_end(self, ended: RunState | None) -> None:
        """Record how the run ended; None when it resumes. Leaving `with run:` records it if nothing has."""
        said = f"{ended.name}: {ended.why}" if ended else directory.BEGUN
        with self._writing(), self._database:
            self._database.execute("UPDATE runs SET ended = ?", (said,))

    def truncate_after(self, step: int) -> None:
        """Delete every episode, metric, candidate and event after `step`."""
        shards = self._writer()
        kept = self._query("SELECT shard, offset FROM episodes WHERE step <= ? ORDER BY number DESC LIMIT 1", (step,))
        dropped = self._query("SELECT shard, offset FROM episodes WHERE step > ? ORDER BY number LIMIT 1", (step,))
        # A frame holds one step and steps do not decrease, so no kept episode can lie after a dropped one.
        assert not kept or not dropped or tuple(kept[0]) < tuple(dropped[0]), "a frame spans steps"
        with self._writing():
            directory.drop_after(self._database, step)
            shards.cut(self._shard_ends())

    # -------------------------------------------------------------------------------------------------- details

    def _shard_ends(self) -> dict[int, int]:
        rows = self._query("SELECT shard, MAX(offset + length) AS indexed FROM episodes GROUP BY shard")
        return {row["shard"]: row["indexed"] for row in rows}

    def _note_abstention(self, episode: Episode, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """The metrics, with `ABSTAINED` where the index could not tell: it has the answer's words but no confidence."""
        abstained, answer = episode.abstains(self.min_confidence), episode.outcome
        is_told = abstained or (isinstance(answer, Answer) and is_abstention(answer.text))
        return {ABSTAINED: float(abstained), **metrics} if is_told else metrics

    def _writer(self) -> ShardWriter:
        if self._shards is None:
            raise BadInput(
                f"run {self.info.id} is open for reading only", hint="open it with Run.open(path, write=True)"
            )
        return self._shards

    def _insert(self, table: str, rows: Sequence[Mapping[str, Any]], *, replace: bool = False) -> None:
        with self._writing():
            insert(self._database, table, rows, replace=replace)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Context of every write: raises BadInput if the run is read-only or the write fails."""
        self._writer()
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise BadInput(f"cannot write to the run {self.path}: {reason}") from error

    def _refuse_earlier(self, step: int) -> None:
        ((last,),) = self._query("SELECT MAX(step) FROM episodes")
        if last is not None and step < last:
            raise BadInput(
                f"run {self.info.id} has episodes of step {last}: step {step} is earlier and cannot be added"
            )

    def _refuse_duplicates(self, episodes: Sequence[Episode]) -> None:
        for id, num in Counter(episode.id for episode in episodes).items():
            if num > 1 or self._query("SELECT 1 FROM episodes WHERE id = ?", (id,)):
                raise BadInput(f"run {self.info.id} already has an episode with the id {id}")


def _read_end(error: BaseException | None) -> RunState:
    if error is None or isinstance(error, NotFound):  # a question that was asked, and has no answer here
        return RunState("done")
    if isinstance(error, Exception):
        return RunState("failed", " ".join(str(error).split()) or type(error).__name__)
    return RunState("stopped")  # Ctrl-C, or a task that was cancelled for it
