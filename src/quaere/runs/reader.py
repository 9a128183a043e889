"""Read access to a run at any time, also while it is being written.

RunReader(path, connect(path / "run.db", write=False)).episode("ask-0")

A reader sees only what the index in `run.db` has, so never half an episode. `Run` is the subclass that also writes;
`run.py` describes how readers and the writer work at the same time.
"""

import fnmatch
import heapq
import json
import math
import shlex
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Unpack

import msgspec

from quaere.disk import read_regular
from quaere.errors import BadInput, nearest_hint
from quaere.records import Candidate, Episode
from quaere.records.episodes import TokenTrace
from quaere.records.foreign_json import decode_json
from quaere.rewards.abstention import ABSTENTION, HIDDEN_SUFFIX, UNANSWERABLE
from quaere.runs.directory import CONFIG, DATABASE, EPISODES, is_locked, list_command, read_frame, refuse_special
from quaere.runs.review import EVERY_ITERATION, Added, Verdict, is_learned
from quaere.runs.rows import (
    INFO_COLUMNS,
    IS_ABSTAINED,
    IS_ANSWERED,
    OWN_PHASES,
    PHASES,
    TRACE_COLUMNS,
    EpisodeConditions,
    EpisodeFilter,
    EpisodeGroup,
    EpisodeRow,
    Event,
    Frame,
    Metric,
    Outcome,
    RunInfo,
    RunState,
    read_candidate,
    read_candidates,
    read_info,
    read_trace,
)

_LARGEST = 2**63 - 1  # integer of SQLite
_OUTCOMES = {
    "scored": '"answer/exact_match"',
    "right": '"answer/exact_match": 1.0',
    "unanswerable": f'"{UNANSWERABLE}": 1.0',
    "hidden": f"%{HIDDEN_SUFFIX}",
}
_IS_UNANSWERABLE = "(INSTR(metrics, :unanswerable) > 0 OR task_id LIKE :hidden)"  # older runs store the id alone


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
            raise BadInput(said, hint=self.show_command) from error
        except OSError as error:
            raise BadInput(f"{self.path / CONFIG} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{self.path / CONFIG} is not text in UTF-8: {error}") from error

    @property
    def is_too_old(self) -> bool:
        """True for a run of version 0.1.0, whose settings had other names."""
        return self.info.version == "0.1.0"

    def trained_config(self) -> str:
        """`config_text` for resuming a run or loading its model; raises BadInput for a run of version 0.1.0."""
        if self.is_too_old:
            said = f"run {self.info.id} was written by version 0.1.0: it can be shown, but neither resumed nor loaded"
            raise BadInput(said, hint=f"quaere evolve {self.info.settings.get('recipe', '--help')}")
        return self.config_text()

    @property
    def min_confidence(self) -> float:
        """The confidence below which an answer of this run counts as an abstention; 0 without such a setting.

        run.episode("q1").abstains(run.min_confidence) -> True
        """
        least = self.info.settings.get("min_confidence")
        return least if isinstance(least, int | float) else 0.0

    def index(self, **wanted: Unpack[EpisodeConditions]) -> list[EpisodeRow]:
        """Index rows of the episodes in the order they were added, without reading the episodes.

        run.index(phase="solver", answered=True)
        """
        return self.rows(EpisodeFilter(**wanted))

    def rows(self, wanted: EpisodeFilter) -> list[EpisodeRow]:
        """Index rows of the episodes that a filter selects, in the order they were added."""
        return _read_rows(self._select(wanted))

    def best_paid(self, name: str, count: int, phase: str = "") -> list[str]:
        """Ids of the `count` episodes with the highest values of the metric `name`, highest first; `phase` "": of all.

        run.best_paid("reward/total", 100) == ["i0-s3-q1-r0", ...]
        """
        where = "INSTR(metrics, :name) AND :phase IN ('', phase)"
        rows = self._query(f"SELECT id, metrics FROM episodes WHERE {where}", {"name": f'"{name}"', "phase": phase})
        paid = ((id, json.loads(metrics).get(name, math.nan)) for id, metrics in rows)
        known = [(id, value) for id, value in paid if not math.isnan(value)]
        return [id for id, _ in heapq.nlargest(count, known, key=lambda pair: pair[1])]

    def phases_of_episodes(self) -> list[str]:
        """Names of the phases that have episodes, in the order of their first episodes."""
        rows = self._query("SELECT phase FROM episodes GROUP BY phase ORDER BY MIN(number)")
        return [phase for (phase,) in rows if phase]

    def name_phase(self, number: float | None) -> str:
        """The phase with this number in the metric `run/phase`: `run.name_phase(2.0) == "solver"`; "" for None."""
        if number is None:
            return ""
        names = (*PHASES, *self.info.settings.get(OWN_PHASES, ()))
        return names[int(number)] if number in range(len(names)) else f"phase {number:g}"

    def first_protocols(self) -> set[str]:
        """Protocols of the first thousand episodes, which are enough to know what a run does.

        run.first_protocols() == {"drzero-proposer", "drzero-solver"}
        """
        rows = self._query("SELECT DISTINCT protocol FROM (SELECT protocol FROM episodes ORDER BY number LIMIT 1000)")
        return {protocol for (protocol,) in rows}

    def groups(self, wanted: EpisodeFilter) -> list[EpisodeGroup]:
        """The episodes that a filter selects, grouped by task, step, phase and protocol, in order of first episodes."""
        where, values = wanted.where()
        found = self._query(
            "SELECT task_id, MIN(question), step, phase, protocol, COUNT(*), "
            f"SUM({IS_ANSWERED}), AVG(num_searches) "
            f"FROM episodes WHERE {where} GROUP BY task_id, step, phase, protocol ORDER BY MIN(number)",
            values,
        )
        return [EpisodeGroup(*row) for row in found]

    def outcomes(self, *, steps: Iterable[int] | None = None, task_ids: Iterable[str] | None = None) -> list[Outcome]:
        """How the scored attempts at questions ended, in the order they were added: of these steps, or at these tasks.

        Without either, of the whole run.
        """
        given = {"step": steps, "task_id": task_ids}
        wanted = {name: json.dumps(list(values)) for name, values in given.items() if values is not None}
        among = [f"{name} IN (SELECT value FROM json_each(:{name}))" for name in wanted]
        rows = self._query_plain(
            f"SELECT id, task_id, question, CASE WHEN {IS_ABSTAINED} THEN '{ABSTENTION}' ELSE answer END, step, phase, "
            f"CASE WHEN {_IS_UNANSWERABLE} THEN {IS_ABSTAINED} ELSE INSTR(metrics, :right) > 0 END, "
            f"{IS_ABSTAINED} FROM episodes "
            f"WHERE {' AND '.join([*among, 'INSTR(metrics, :scored)'])} ORDER BY number",
            _OUTCOMES | wanted,
        )[1]
        return [*map(Outcome._make, rows)]

    def episodes(self, **wanted: Unpack[EpisodeConditions]) -> Iterator[Episode]:
        """The episodes in the order they were added, read lazily: one frame is in memory at a time."""
        for place, members in groupby(self._select(EpisodeFilter(**wanted)), key=_place):
            lines = read_frame(self.path / EPISODES, Frame(*place))
            for row in members:
                yield self._decode(lines, row)

    @property
    def show_command(self) -> str:
        """The command that shows the run; by its path, as its folder may have another name than its id."""
        return f"quaere runs show {shlex.quote(str(self.path))}"

    def episode(self, id: str) -> Episode:
        """The episode with this id, reading only the frame that holds it; raises BadInput if there is none."""
        for row in self._select(EpisodeFilter(id=id)):
            return self._decode(read_frame(self.path / EPISODES, Frame(*_place(row))), row)
        known = [known for (known,) in self._query("SELECT id FROM episodes")]
        hint = nearest_hint(id, known, self.show_command)
        raise BadInput(f"run {self.info.id} has no episode {id}", hint=hint)

    def episode_row(self, id: str) -> EpisodeRow | None:
        """Index row of the episode with this id, without reading the episode; None if there is none."""
        return next(iter(self.rows(EpisodeFilter(id=id))), None)

    def episode_metrics(self, id: str) -> dict[str, float]:
        """Metrics of one episode, including the components of its reward; {} if there are none.

        run.episode_metrics("i0-s3-q1-r0") == {"reward/mean": 0.8, "advantage": 0.4}
        """
        row = self.episode_row(id)
        return row.metrics if row else {}

    def token_trace(self, id: str) -> TokenTrace | None:
        """Per-token values of the update that trained on an episode; None if they were not stored."""
        rows = self._query_newer(
            "token_traces", f"SELECT {TRACE_COLUMNS} FROM token_traces WHERE episode_id = ?", (id,)
        )
        return read_trace(rows[0]) if rows else None

    def metrics(self, name: str) -> list[Metric]:
        """All values of one metric, ordered by step."""
        rows = self._query("SELECT step, value FROM metrics WHERE name = ? ORDER BY step", (name,))
        return [_metric(*row) for row in rows]

    def find_metrics(self, patterns: Sequence[str]) -> dict[str, list[Metric]]:
        """The metrics whose names match one of the shell-style patterns; `BadInput` if a pattern matches none.

        run.find_metrics(["reward/*"]) == {"reward/format": [Metric(step=1, value=0.5)], "reward/mean": [...]}
        """
        names = self.metric_names()
        if not names:
            raise BadInput(f"run {self.info.id} has no metrics", hint=self.show_command)
        found: dict[str, list[Metric]] = {}
        for pattern in patterns:
            matching = fnmatch.filter(names, pattern)
            if not matching:
                hint = nearest_hint(pattern, names, f"{self.show_command} --metrics '*'")
                raise BadInput(f"run {self.info.id} has no metric {pattern}", hint=hint)
            found |= {name: self.metrics(name) for name in matching if name not in found}
        return found

    def metrics_at(self, step: int) -> dict[str, float]:
        """All metrics of one step, by name.

        run.metrics_at(3) == {"loss/policy": 0.01, "reward/mean": 0.25}
        """
        rows = self._query("SELECT name, value FROM metrics WHERE step = ? ORDER BY name", (step,))
        return {name: _metric(step, value).value for name, value in rows}

    def all_metrics(self) -> dict[str, list[Metric]]:
        """All values of every metric, ordered by step; names in alphabetical order."""
        rows = self._query_plain("SELECT name, step, value FROM metrics ORDER BY name, step", {})[1]
        grouped = groupby(rows, itemgetter(0))
        return {name: [_metric(step, value) for _, step, value in members] for name, members in grouped}

    def last_step(self) -> int:
        """The last step that has metrics; 0 if there is none."""
        ((last,),) = self._query("SELECT MAX(step) FROM metrics")
        return int(last or 0)

    def metric_names(self) -> list[str]:
        """Names of all logged metrics in alphabetical order."""
        return [name for (name,) in self._query("SELECT DISTINCT name FROM metrics ORDER BY name")]

    def candidates(self, *, iteration: int | None = None, kept: bool | None = None) -> list[Candidate]:
        """The candidates in the order they were added; filters are combined."""
        sql = "SELECT * FROM candidates WHERE :iteration IS NULL OR iteration = :iteration ORDER BY number"
        columns, rows = self._query_plain(sql, {"iteration": iteration})
        found = read_candidates(columns, rows)
        return [candidate for candidate in found if kept is None or candidate.kept == kept]

    def find_candidates(self, ids: Iterable[str]) -> list[Candidate]:
        """The candidates with these ids, in the order they were added."""
        sql = "SELECT * FROM candidates WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY number"
        rows = self._query(sql, {"ids": json.dumps(sorted(ids))})
        return [read_candidate(row) for row in rows]

    def first_candidates(self, num: int) -> list[Candidate]:
        """The first `num` candidates that were kept; those with evidence come first."""
        rows = self._query(
            "SELECT * FROM candidates WHERE reason = '' ORDER BY evidence IS NULL, number LIMIT :num", {"num": num}
        )
        return [read_candidate(row) for row in rows]

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
        rows = self._query_newer("verdicts", "SELECT * FROM verdicts ORDER BY time, candidate_id")
        return {row["candidate_id"]: msgspec.convert(dict(row), Verdict) for row in rows}

    def added(self, iteration: int | None = None) -> list[Added]:
        """Added questions; with `iteration`, those for that iteration and those for every iteration."""
        rows = map(dict, self._query_newer("added", "SELECT * FROM added ORDER BY number"))
        return [
            Added(read_candidate({**row, "step": 0, "episode_id": ""}), row["origin"], row["time"])
            for row in rows
            if iteration is None or row["iteration"] in (iteration, EVERY_ITERATION)
        ]

    def curriculum(self, iteration: int | None = None) -> list[Candidate]:
        """The candidates the solver trains on: kept or added and not rejected, or dropped and then accepted."""
        verdicts = self.verdicts()
        found = [*self.candidates(iteration=iteration), *(item.candidate for item in self.added(iteration))]
        return [candidate for candidate in found if is_learned(candidate, verdicts.get(candidate.id))]

    def events(self) -> list[Event]:
        """Events in the order they happened."""
        return [Event(*row) for row in self._query("SELECT step, kind, message FROM events ORDER BY number")]

    def count_episodes(self, *, step: int | None = None) -> tuple[int, int]:
        """Numbers of episodes and of those that answered and did not abstain; of the run, or of one step."""
        num, num_answered, _ = self.count_all(step=step)
        return num, num_answered

    def count_all(self, *, step: int | None = None) -> tuple[int, int, int]:
        """Numbers of episodes, of those that answered and did not abstain, and of searches; as `count_episodes`."""
        where, values = EpisodeFilter(step=step).where()
        sums = f"COALESCE(SUM({IS_ANSWERED}), 0), COALESCE(SUM(num_searches), 0)"
        ((num, num_answered, num_searches),) = self._query(
            f"SELECT COUNT(*), {sums} FROM episodes WHERE {where}", values
        )
        return num, num_answered, num_searches

    # -------------------------------------------------------------------------------------------------- details

    def _query(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[sqlite3.Row]:
        with self._reading():
            return self._database.execute(sql, _bound(values)).fetchall()

    def _query_plain(self, sql: str, values: Mapping[str, Any]) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names of the columns, and rows as plain tuples, which are quicker: there may be a hundred thousand."""
        with self._reading():
            cursor = self._database.cursor()
            cursor.row_factory = None
            rows = cursor.execute(sql, _bound(values)).fetchall()
        return [name for name, *_ in cursor.description], rows

    def _query_newer(self, table: str, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Rows of a table that older schemas lack; [] if the database does not have it."""
        known = self._query("SELECT 1 FROM sqlite_master WHERE name = ?", (table,))
        return self._query(sql, values) if known else []

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            others = list_command(self.path.parent)
            raise BadInput(f"{self.path / DATABASE} cannot be read: {error}", hint=others) from error

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
        """The recorded end of the run: "begun" if it has not ended, else its state; "" in runs of earlier versions."""
        (row,) = self._query("SELECT * FROM runs")
        return str(row["ended"]) if "ended" in row.keys() else ""  # noqa: SIM118 (a row is no mapping)

    def _read_info(self) -> RunInfo:
        rows = self._query(f"SELECT {INFO_COLUMNS} FROM runs")
        try:
            return read_info(*rows)
        except (ValueError, TypeError) as error:  # msgspec's own error is a `ValueError`
            said = f"{self.path / DATABASE} is damaged: its table `runs` has no valid row"
            raise BadInput(said, hint="restore the file from a backup") from error

    def _select(self, wanted: EpisodeFilter) -> list[sqlite3.Row]:
        where, values = wanted.where()
        return self._query(f"SELECT * FROM episodes WHERE {where} ORDER BY number", values)

    def _decode(self, lines: list[bytes], row: sqlite3.Row) -> Episode:
        try:
            return decode_json(lines[row["line"]], Episode)
        except (msgspec.DecodeError, IndexError) as error:
            raise BadInput(f"episode {row['id']} of run {self.info.id} is damaged: {error}") from error


def _bound(values: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any] | Mapping[str, Any]:
    """The values with integers clipped to SQLite's range, beyond which binding fails; no row has such a number."""
    if isinstance(values, Mapping):
        return dict(zip(values, _bound(list(values.values())), strict=True))
    return [min(max(value, -_LARGEST - 1), _LARGEST) if isinstance(value, int) else value for value in values]


def _read_rows(rows: Sequence[sqlite3.Row]) -> list[EpisodeRow]:
    decoded = ({**dict(row), "metrics": json.loads(row["metrics"])} for row in rows)
    return [msgspec.convert(row, EpisodeRow) for row in decoded]


def _place(row: sqlite3.Row) -> tuple[int, int, int]:
    return row["shard"], row["offset"], row["length"]


def _metric(step: int, value: float | None) -> Metric:
    """A metric value read from the database, where NaN is stored as NULL."""
    return Metric(step, math.nan if value is None else value)
