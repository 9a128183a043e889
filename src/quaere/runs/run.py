"""One run: its directory is the truth about it.

    runs/ask-20250301-101500/
        run.db                       what it was run with, metrics, candidates, events, where each episode lies, and
                                     what people said of the candidates and added to them
        episodes/00000.jsonl.zst     the episodes
        config.yaml                  of a training run: all its settings
        questions.jsonl              of one that was given its questions: a copy of them
        run.lock                     held by the one process that writes

An episode is written in two steps: its frame is appended to a shard and synced, then its row is committed to the
index. A process killed between the two leaves bytes that no row points at; the next writer cuts them off. So whatever
the index knows can be read, at any moment, and by any number of readers beside the writer.

A training run that goes on from a checkpoint first drops what lies beyond it (`truncate_after`). Rows go first here,
then bytes, so that a process killed between the two leaves the same as above.

Only verdicts and added questions are written beside the writer, by anybody and at any time: see `verdicts.py` and
`added.py`.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from filelock import FileLock

import quaere
from quaere.errors import BadInput
from quaere.records import Candidate, Episode
from quaere.runs.database import connect, drop_after, insert
from quaere.runs.directory import BEGUN, DATABASE, EPISODES, make_directory, refuse_links, take_lock, write_config
from quaere.runs.reader import RunReader
from quaere.runs.rows import RunInfo, RunState, candidate_row, check_candidate, encode_episode, encode_values, index_row
from quaere.runs.shards import ShardWriter


class Run(RunReader):
    """A run directory, open for reading (see `reader.py`), or for reading and writing by this process alone."""

    def __init__(self, path: Path, database: sqlite3.Connection, lock: FileLock | None) -> None:
        super().__init__(path, database)
        self._lock = lock
        self._shards = ShardWriter(path / EPISODES, self._shard_ends()) if lock else None

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
        """Make a run directory at `path` and open it for writing; it appears complete, in one rename.

        `files` are what the run depends on and keeps a copy of, by name.

        Run.create("runs/first", "evolve", {"model": "smollm2-135m"}, config="model: smollm2-135m\\n...")
        """
        path = Path(path)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        info = RunInfo(path.name, kind, created, quaere.__version__, dict(settings or {}))
        make_directory(path, info, config, files)
        return cls.open(path, write=True)

    @classmethod
    def start(
        cls,
        root: str | Path,
        kind: str,
        settings: Mapping[str, Any] | None = None,
        *,
        config: str | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> Self:
        """Create a run under `root`, named after its kind and the time: `ask-20250301-101500`, then `...-2`."""
        stem = f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        for number in count(1):
            path = Path(root) / (stem if number == 1 else f"{stem}-{number}")
            try:
                return cls.create(path, kind, settings, config=config, files=files)
            except BadInput:
                if not path.exists():  # not a name taken by somebody else
                    raise
        raise AssertionError("count() never ends")

    @classmethod
    def open(cls, path: str | Path, *, write: bool = False) -> Self:
        """Open a run: read-only beside a writer, or as its only writer."""
        path = Path(path)
        if write:
            refuse_links(path)
        database = connect(path / DATABASE, write=write)
        lock: FileLock | None = None
        try:
            if write:
                lock = take_lock(path, database)
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
        with suppress(BadInput):  # a store that cannot be written: what went wrong before is what is told
            if self._lock and self._ended() == BEGUN:
                self.note_end(_read_end(error))
        self.close()

    # ---------------------------------------------------------------------------------------------------- write

    def add_episode(
        self, episode: Episode, metrics: Mapping[str, float] | None = None, *, step: int = 0, phase: str = ""
    ) -> None:
        """Append one episode with what was measured on it; when this returns, it is on disk."""
        self.add_episodes([episode], [metrics or {}], step=step, phase=phase)

    def add_episodes(
        self,
        episodes: Sequence[Episode],
        metrics: Sequence[Mapping[str, float]] | None = None,
        *,
        step: int = 0,
        phase: str = "",
    ) -> None:
        """Append several episodes of one step at once: all of them are stored, or none.

        Steps never go back, so that cutting the shards somewhere always means cutting the run at a step.
        """
        if not episodes:
            return
        shards = self._writer()
        self._refuse_earlier(step)
        self._refuse_duplicates(episodes)
        measured = metrics if metrics is not None else [{}] * len(episodes)
        place = {"step": step, "phase": phase}
        rows = [
            {**index_row(episode), **place, "line": line, "metrics": encode_values(values)}
            for line, (episode, values) in enumerate(zip(episodes, measured, strict=True))
        ]
        lines = [_encode(episode) for episode in episodes]
        with self._writing():
            frame = shards.append(lines)
            try:
                insert(self._database, "episodes", [{**row, **msgspec.structs.asdict(frame)} for row in rows])
            except Exception:
                shards.discard(frame)
                raise

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Record values measured at a step; a name logged again at the same step replaces the earlier value.

        run.log_metrics(3, {"reward/mean": 0.25, "loss/policy": 0.01})
        """
        measured = {name: None if math.isnan(value) else float(value) for name, value in values.items()}
        rows = [{"name": name, "step": step, "value": value} for name, value in measured.items()]
        with self._writing():
            insert(self._database, "metrics", rows, replace=True)

    def add_candidates(
        self, candidates: Sequence[Candidate], *, read_document: Callable[[str], str] | None = None
    ) -> None:
        """Keep what a proposer wrote, and why it was kept or dropped: all of them are stored, or none.

        With `read_document`, which gives a document's text by its id, evidence that is not `document[start:end]` is
        refused. Without it, evidence is still refused if its text is not as long as its offsets say.

            run.add_candidates([candidate], read_document=index.document)
        """
        for candidate in candidates:
            check_candidate(candidate, read_document)
        with self._writing():
            insert(self._database, "candidates", [candidate_row(candidate) for candidate in candidates])

    def add_event(self, step: int, kind: str, message: str) -> None:
        """Record that something happened.

        run.add_event(12, "alarm", "the entropy is below 0.02 for 3 steps")
        """
        with self._writing():
            insert(self._database, "events", [{"step": step, "kind": kind, "message": message}])

    def replace_config(self, text: str) -> None:
        """Write another `config.yaml`: the settings were changed before the run went on."""
        with self._writing():
            write_config(self.path, text)

    def change_settings(self, changes: Mapping[str, Any]) -> None:
        """Remember other values for some of the settings that the run began with.

        run.change_settings({"writers": ["trackio"]})
        """
        settings = {**self.info.settings, **changes}
        with self._writing(), self._database:
            self._database.execute("UPDATE runs SET settings = ?", (msgspec.json.encode(settings).decode(),))
        self.info = msgspec.structs.replace(self.info, settings=settings)

    def note_end(self, ended: RunState | None) -> None:
        """Remember how the run ended; None as it goes on. Leaving `with run:` notes it where nobody has."""
        said = f"{ended.name}: {ended.why}" if ended else BEGUN
        with self._writing(), self._database:
            self._database.execute("UPDATE runs SET ended = ?", (said,))

    def truncate_after(self, step: int) -> None:
        """Forget every episode, metric, candidate and event of a later step, as if the run had never gone there."""
        shards = self._writer()
        kept = self._query("SELECT shard, offset FROM episodes WHERE step <= ? ORDER BY number DESC LIMIT 1", (step,))
        dropped = self._query("SELECT shard, offset FROM episodes WHERE step > ? ORDER BY number LIMIT 1", (step,))
        # One frame is one step and steps never go back, so nothing that stays can lie behind something that goes.
        assert not kept or not dropped or tuple(kept[0]) < tuple(dropped[0]), "a frame spans steps"
        with self._writing():
            drop_after(self._database, step)
            shards.cut(self._shard_ends())

    # -------------------------------------------------------------------------------------------------- details

    def _shard_ends(self) -> dict[int, int]:
        rows = self._query("SELECT shard, MAX(offset + length) AS indexed FROM episodes GROUP BY shard")
        return {row["shard"]: row["indexed"] for row in rows}

    def _writer(self) -> ShardWriter:
        if self._shards is None:
            raise BadInput(f"run {self.info.id} is open for reading only", hint="Run.open(path, write=True)")
        return self._shards

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Around everything that writes: only the writer may, and what goes wrong is said in one line."""
        self._writer()
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise BadInput(f"cannot write to the run {self.path}: {reason}") from error

    def _refuse_earlier(self, step: int) -> None:
        ((last,),) = self._query("SELECT MAX(step) FROM episodes")
        if last is not None and step < last:
            raise BadInput(f"run {self.info.id} holds episodes of step {last}: none can be added to step {step}")

    def _refuse_duplicates(self, episodes: Sequence[Episode]) -> None:
        seen: set[str] = set()
        for episode in episodes:
            known = self._query("SELECT 1 FROM episodes WHERE id = ?", (episode.id,))
            if known or episode.id in seen:
                raise BadInput(f"run {self.info.id} already holds an episode {episode.id}")
            seen.add(episode.id)


def _read_end(error: BaseException | None) -> RunState:
    """How a run ended that was left with this error, or without one."""
    if error is None:
        return RunState("done")
    if isinstance(error, Exception):
        return RunState("failed", " ".join(str(error).split()) or type(error).__name__)
    return RunState("stopped")  # Ctrl-C, or a task that was cancelled for it


def _encode(episode: Episode) -> bytes:
    try:
        return encode_episode(episode)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInput(f"episode {episode.id} cannot be stored: {error}") from error
