"""Read access to a run at any time, also while it is being written.

RunReader(path, connect(path / "run.db", write=False)).episode("ask-0")

A reader sees only what the index in `run.db` has, so never half an episode. `Run` is the subclass that also writes;
`run.py` describes how readers and the writer work side by side.
"""

from __future__ import annotations

import heapq
import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from quaere.disk import read_regular
from quaere.errors import BadInput
from quaere.records import Candidate, DropReason, EndReason, Episode
from quaere.records.foreign_json import decode_json
from quaere.records.token_trace import TokenTrace
from quaere.runs.added import EVERY_ITERATION, Added, read_added
from quaere.runs.directory import CONFIG, DATABASE, EPISODES, is_locked, refuse_special
from quaere.runs.groups import EpisodeFilter, EpisodeGroup
from quaere.runs.nearest import nearest_hint
from quaere.runs.rows import (
    INFO_COLUMNS,
    EpisodeRow,
    Event,
    Metric,
    RunInfo,
    RunState,
    read_candidates,
    read_index_row,
    read_info,
    read_place,
)
from quaere.runs.shards import read_frame
from quaere.runs.trace_rows import TRACE_COLUMNS, read_trace
from quaere.runs.verdicts import Verdict, is_learned, read_verdicts

_LARGEST = 2**63 - 1  # integer of SQLite


class RunReader:
    """A run directory with its open database, for reading."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        refuse_special(path)
        self.path = path
        self._database = database
        self.info = self._read_info()

    def config_text(self) -> str:
        """Content of `config.yaml`; raises BadInput if the run has none."""
        try:
            return read_regular(self.path / CONFIG).decode()  # bytes, so that line endings are not converted
        except FileNotFoundError as error:
            said = f"run {self.info.id} has no {CONFIG}: it is of kind {self.info.kind}"
            raise BadInput(said, hint=f"quaere runs show {self.info.id}") from error
        except OSError as error:
            raise BadInput(f"{self.path / CONFIG} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{self.path / CONFIG} is not text in UTF-8: {error}") from error

    @property
    def is_too_old(self) -> bool:
        """True for a run of version 0.1.0, whose settings had other names."""
        return self.info.version == "0.1.0"

    def trained_config(self) -> str:
        """`config_text`, to resume a run or to load what it trained; raises BadInput for a run of version 0.1.0."""
        if self.is_too_old:
            said = f"run {self.info.id} was written by version 0.1.0: it can be shown, but neither resumed nor loaded"
            raise BadInput(said, hint=f"quaere evolve {self.info.settings.get('recipe', '--help')}")
        return self.config_text()

    def index(
        self,
        *,
        end: EndReason | None = None,
        answered: bool | None = None,
        protocol: str | None = None,
        step: int | None = None,
        phase: str | None = None,
    ) -> list[EpisodeRow]:
        """Index rows of the episodes in the order they were added, without reading the episodes.

        Filters are combined.
        """
        rows = self._select("episodes", end=end, answered=answered, protocol=protocol, step=step, phase=phase)
        return [read_index_row(row) for row in rows]

    def rows(self, wanted: EpisodeFilter) -> list[EpisodeRow]:
        """Index rows of the episodes that a filter selects, in the order they were added."""
        where, values = wanted.where()
        found = self._query(f"SELECT * FROM episodes WHERE {where} ORDER BY number", values)
        return [read_index_row(row) for row in found]

    def best_paid(self, name: str, count: int) -> list[str]:
        """Ids of the episodes with the highest values of one of their metrics, the highest first.

        run.best_paid("reward/total", 100) == ["i0-s3-q1-r0", ...]
        """
        rows = self._query("SELECT id, metrics FROM episodes WHERE INSTR(metrics, :name)", {"name": f'"{name}"'})
        paid = ((id, json.loads(metrics).get(name, math.nan)) for id, metrics in rows)
        known = [(id, value) for id, value in paid if not math.isnan(value)]
        return [id for id, _ in heapq.nlargest(count, known, key=lambda pair: pair[1])]

    def phases_of_episodes(self) -> list[str]:
        """Names of the phases that episodes belong to, in the order of their first one."""
        rows = self._query("SELECT phase FROM episodes GROUP BY phase ORDER BY MIN(number)")
        return [phase for (phase,) in rows if phase]

    def first_protocols(self, num_episodes: int = 1000) -> set[str]:
        """Protocols of the first episodes, which are enough to know what a run does.

        run.first_protocols() == {"drzero-proposer", "drzero-solver"}
        """
        rows = self._query(
            "SELECT DISTINCT protocol FROM (SELECT protocol FROM episodes ORDER BY number LIMIT ?)", (num_episodes,)
        )
        return {protocol for (protocol,) in rows}

    def groups(self, wanted: EpisodeFilter) -> list[EpisodeGroup]:
        """The attempts that a filter selects, by question, step and protocol, in the order of their first one."""
        where, values = wanted.where()
        found = self._query(
            "SELECT task_id, MIN(question), step, phase, protocol, COUNT(*), SUM(answered), AVG(num_searches) "
            f"FROM episodes WHERE {where} GROUP BY task_id, step, phase, protocol ORDER BY MIN(number)",
            values,
        )
        return [EpisodeGroup(*row) for row in found]

    def episodes(
        self,
        *,
        end: EndReason | None = None,
        answered: bool | None = None,
        protocol: str | None = None,
        step: int | None = None,
        phase: str | None = None,
    ) -> Iterator[Episode]:
        """The episodes in the order they were added, read lazily: one frame is in memory at a time."""
        rows = self._select("episodes", end=end, answered=answered, protocol=protocol, step=step, phase=phase)
        for frame, members in groupby(rows, key=read_place):
            lines = read_frame(self.path / EPISODES, frame)
            for row in members:
                yield self._decode(lines, row)

    def episode(self, id: str) -> Episode:
        """The episode with this id; only its own frame is read."""
        rows = self._query("SELECT * FROM episodes WHERE id = ?", (id,))
        if not rows:
            known = [known for (known,) in self._query("SELECT id FROM episodes")]
            hint = nearest_hint(id, known, f"quaere runs show {self.info.id}")
            raise BadInput(f"run {self.info.id} has no episode {id}", hint=hint)
        return self._decode(read_frame(self.path / EPISODES, read_place(rows[0])), rows[0])

    def episode_row(self, id: str) -> EpisodeRow | None:
        """Index row of the episode with this id, without reading the episode; None if there is none."""
        rows = self._query("SELECT * FROM episodes WHERE id = ?", (id,))
        return read_index_row(rows[0]) if rows else None

    def episode_metrics(self, id: str) -> dict[str, float]:
        """Metrics of one episode, including the components of its reward; {} if there are none.

        run.episode_metrics("i0-s3-q1-r0") == {"reward/mean": 0.8, "advantage": 0.4}
        """
        return {
            name: value
            for row in self._query("SELECT * FROM episodes WHERE id = ?", (id,))
            for name, value in read_index_row(row).metrics.items()
        }

    def token_trace(self, id: str) -> TokenTrace | None:
        """Per-token values of the update that trained on an episode; None if they were not stored."""
        if not self._query("SELECT 1 FROM sqlite_master WHERE name = 'token_traces'"):
            return None  # a run of an earlier version
        rows = self._query(f"SELECT {TRACE_COLUMNS} FROM token_traces WHERE episode_id = ?", (id,))
        return read_trace(rows[0]) if rows else None

    def metrics(self, name: str) -> list[Metric]:
        """All values of one metric, ordered by step."""
        rows = self._query("SELECT step, value FROM metrics WHERE name = ? ORDER BY step", (name,))
        return [Metric(step=step, value=math.nan if value is None else value) for step, value in rows]

    def metrics_at(self, step: int) -> dict[str, float]:
        """All metrics of one step, by name.

        run.metrics_at(3) == {"loss/policy": 0.01, "reward/mean": 0.25}
        """
        rows = self._query("SELECT name, value FROM metrics WHERE step = ? ORDER BY name", (step,))
        return {name: math.nan if value is None else value for name, value in rows}

    def all_metrics(self) -> dict[str, list[Metric]]:
        """All values of every metric, ordered by step; names in alphabetical order."""
        rows = self._query("SELECT name, step, value FROM metrics ORDER BY name, step")
        return {
            name: [Metric(step=step, value=math.nan if value is None else value) for _, step, value in members]
            for name, members in groupby(rows, key=lambda row: str(row["name"]))
        }

    def last_step(self) -> int:
        """The last step that has metrics; 0 if there is none."""
        ((last,),) = self._query("SELECT MAX(step) FROM metrics")
        return int(last or 0)

    def metric_names(self) -> list[str]:
        """Names of all logged metrics in alphabetical order."""
        return [name for (name,) in self._query("SELECT DISTINCT name FROM metrics ORDER BY name")]

    def candidates(
        self, *, iteration: int | None = None, kept: bool | None = None, reason: DropReason | None = None
    ) -> list[Candidate]:
        """The candidates in the order they were added; filters are combined."""
        where, values = _where(iteration=iteration, reason=reason)
        with self._reading():
            cursor = self._database.cursor()
            cursor.row_factory = None  # plain tuples: there may be tens of thousands
            rows = cursor.execute(f"SELECT * FROM candidates WHERE {where} ORDER BY number", _bound(values)).fetchall()
        found = read_candidates([name for name, *_ in cursor.description], rows)
        return [candidate for candidate in found if kept is None or candidate.kept == kept]

    def count_candidates(self) -> dict[int, dict[str, int]]:
        """Number of candidates by iteration and reason, the most frequent first; reason "" counts those that were kept.

        run.count_candidates() == {0: {"": 10, "never solved": 6}}
        """
        rows = self._query(
            "SELECT iteration, reason, COUNT(*) FROM candidates GROUP BY iteration, reason "
            "ORDER BY iteration, COUNT(*) DESC, MIN(number)"
        )
        counts: dict[int, dict[str, int]] = {}
        for iteration, reason, count in rows:
            counts.setdefault(iteration, {})[reason] = count
        return counts

    def candidates_mark(self) -> tuple[object, ...]:
        """A value that changes when candidates are added, dropped or written anew; verdicts do not change it."""
        (row,) = self._query(
            "SELECT COUNT(*), MAX(number), MAX(step), SUM(LENGTH(question) + LENGTH(answer) + LENGTH(span)) "
            "FROM candidates"
        )
        return (*row, len(self.added()))

    def verdicts(self) -> dict[str, Verdict]:
        """People's verdicts by candidate id; a verdict's candidate may no longer exist."""
        with self._reading():
            return read_verdicts(self._database)

    def added(self, iteration: int | None = None) -> list[Added]:
        """Added questions; with `iteration`, those for that iteration and those for every iteration."""
        with self._reading():
            found = read_added(self._database)
        return [item for item in found if iteration is None or item.candidate.iteration in (iteration, EVERY_ITERATION)]

    def curriculum(self, iteration: int | None = None) -> list[Candidate]:
        """The candidates the solver trains on: kept or added and not rejected, or dropped and then accepted."""
        verdicts = self.verdicts()
        found = [*self.candidates(iteration=iteration), *(item.candidate for item in self.added(iteration))]
        return [candidate for candidate in found if is_learned(candidate, verdicts.get(candidate.id))]

    def events(self) -> list[Event]:
        """Events in the order they happened."""
        return [Event(*row) for row in self._query("SELECT step, kind, message FROM events ORDER BY number")]

    def count_episodes(self, *, step: int | None = None) -> tuple[int, int]:
        """Number of episodes, and number of episodes that ended with an answer; of the run, or of one step."""
        ((num_episodes, num_answered),) = self._query(
            "SELECT COUNT(*), COALESCE(SUM(answered), 0) FROM episodes"
            + (" WHERE step = ?" if step is not None else ""),
            () if step is None else (step,),
        )
        return num_episodes, num_answered

    # -------------------------------------------------------------------------------------------------- details

    def _query(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[sqlite3.Row]:
        with self._reading():
            return self._database.execute(sql, _bound(values)).fetchall()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise BadInput(f"{self.path / DATABASE} cannot be read: {error}", hint="quaere runs list") from error

    def state(self) -> RunState:
        """Current state of the run; a run that recorded no end was killed and counts as `stopped`."""
        if is_locked(self.path):
            return RunState("running")
        name, _, why = self._ended().partition(": ")
        if name == "failed":
            return RunState("failed", why)
        if not name and self.info.kind != "evolve":
            return RunState("unknown")
        return RunState("done" if name == "done" else "stopped")

    def _ended(self) -> str:
        """What is noted of the run's end: `begun` while there is none, and nothing in runs of earlier versions."""
        (row,) = self._query("SELECT * FROM runs")
        return str(row["ended"]) if "ended" in row.keys() else ""  # noqa: SIM118 (a row is no mapping)

    def _read_info(self) -> RunInfo:
        rows = self._query(f"SELECT {INFO_COLUMNS} FROM runs")
        try:
            (row,) = rows
            return read_info(row)
        except (ValueError, TypeError) as error:  # msgspec's own error is a `ValueError`
            said = f"{self.path / DATABASE} is damaged: its table `runs` has no valid row"
            raise BadInput(said, hint="restore the file from a backup") from error

    def _select(self, table: str, **filters: str | int | None) -> list[sqlite3.Row]:
        where, values = _where(**filters)
        return self._query(f"SELECT * FROM {table} WHERE {where} ORDER BY number", values)

    def _decode(self, lines: list[bytes], row: sqlite3.Row) -> Episode:
        try:
            return decode_json(lines[row["line"]], Episode)
        except (msgspec.DecodeError, IndexError) as error:
            raise BadInput(f"episode {row['id']} of run {self.info.id} is damaged: {error}") from error


def _bound(values: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any] | Mapping[str, Any]:
    """The values with every integer in SQLite's range: a larger one is in no row, and compares the same."""
    if isinstance(values, Mapping):
        return dict(zip(values, _bound(list(values.values())), strict=True))
    return [min(max(value, -_LARGEST - 1), _LARGEST) if isinstance(value, int) else value for value in values]


def _where(**filters: str | int | None) -> tuple[str, dict[str, str | int]]:
    """The SQL condition that columns have these values, and the values; None admits all."""
    wanted = {column: value for column, value in filters.items() if value is not None}
    return " AND ".join(["TRUE", *(f"{column} = :{column}" for column in wanted)]), wanted
