"""Summaries of runs: a list of those in a folder, deletion of them, and the phases and candidates of one.

list_runs(Path("runs")) == [RunSummary(id="ask-20250301-101500", kind="ask", num_episodes=1, num_answered=1, ...)]
summarise_phases(run)[0].metrics["reward/mean"] == Change(first=0.1, last=0.4)
count_candidates(run) == [CandidateCount(iteration=0, num_kept=10, dropped={"never solved": 6})]
"""

import math
import os
import shlex
import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from msgspec import Struct, structs

from quaere.disk import discard_folder, explain_errors
from quaere.errors import BadInput, nearest_hint
from quaere.runs.directory import DATABASE, connect, list_command
from quaere.runs.reader import RunReader
from quaere.runs.rows import INFO_COLUMNS, Metric, RunInfo, RunState, read_info
from quaere.runs.run import Run

Listed = TypeVar("Listed", bound="ListedRun")


class ListedRun(Struct, frozen=True, kw_only=True):
    """A run in a list; `problem` is the error message if the run cannot be read, `next` what to type next.

    ListedRun(kind="ask", created="2025-03-01T10:15:00+00:00", state=RunState("done"), num_episodes=3, num_answered=2)
    """

    kind: str = ""
    created: str = ""
    num_episodes: int = 0
    num_answered: int = 0
    problem: str = ""
    state: RunState = RunState("unknown")
    step: int = 0
    next: str = ""


class RunSummary(ListedRun, frozen=True):
    """A run in the list of `quaere runs list`.

    RunSummary(id="ask-20250301-101500", path="runs/ask-20250301-101500", num_bytes=18_432, kind="ask", num_episodes=3)
    """

    id: str
    path: str
    num_bytes: int = 0


def list_runs(root: Path) -> list[RunSummary]:
    """All runs under `root`, oldest first; [] if the folder does not exist."""
    summaries = [_summarise(path) for path in _run_paths(root)]
    return sorted(summaries, key=lambda summary: (summary.created, summary.id))


def find_run(root: Path, name: str) -> Path:
    """Directory of a run given by its name under `root` or by its path; raises BadInput if there is no such run."""
    for path in (root / name, Path(name)):
        if name and (path / DATABASE).is_file():
            return path
        if name and (path / "run" / DATABASE).is_file():
            raise BadInput(f"{name} is no run, but contains one", hint=f"name {path / 'run'}")
    hint = nearest_hint(name, [path.name for path in _run_paths(root)], list_command(root))
    raise BadInput(f"no run {name}" + ("" if "/" in name else f" in {root}"), hint=hint)


def _run_paths(root: Path) -> list[Path]:
    paths = root.iterdir() if root.is_dir() else ()
    return [path for path in paths if not path.name.startswith(".") and (path / DATABASE).is_file()]


def _summarise(path: Path) -> RunSummary:
    found = RunSummary(path.name, str(path), measure_size([path]))
    try:
        with Run.open(path) as run:
            return read_progress(run, structs.replace(found, kind=run.info.kind, created=run.info.created))
    except BadInput as error:
        return structs.replace(found, problem=str(error))


def read_progress(run: RunReader, listed: Listed) -> Listed:
    """The same record with the run's state, last step, counts of episodes and next command."""
    state, (num_episodes, num_answered) = run.state(), run.count_episodes()
    return structs.replace(
        listed,
        state=state,
        step=run.last_step(),
        num_episodes=num_episodes,
        num_answered=num_answered,
        next=next_command(run, state),
    )


def next_command(run: RunReader, state: RunState) -> str:
    """The command that resumes a training run or uses its result; "" if it is running, too old or no training run."""
    if run.info.kind != "evolve" or state.name == "running" or run.is_too_old:
        return ""
    path = shlex.quote(str(run.path))
    return f"quaere export {path} --merge --out DIR" if state.name == "done" else f"quaere evolve --resume {path}"


def describe_state(state: RunState, step: int = 0) -> str:
    """The state of a run in words, with its last step and the reason of a failure.

    describe_state(RunState("failed", "the gradient is not finite"), 12) ->
    "failed after step 12: the gradient is not finite"
    """
    after = f" after step {step}" if step else ""
    return f"{state.name}{after}" + (f": {state.why}" if state.why else "")


# ----------------------------------------------------------------------------------------------------------- deletion


def check_deletable(path: Path) -> Path:
    """The absolute path of a run; raises BadInput for a link, and for a folder that is no run or contains others."""
    path = Path(os.path.abspath(path))  # not `resolve`: a link must be seen as one
    for link in (path, path / DATABASE):
        if link.is_symlink():
            raise BadInput(f"{link} is a link; nothing is deleted through links", hint="name the run's own directory")
    connect(path / DATABASE, write=False).close()  # refuses what is no run
    if others := [other.parent.name for other in path.glob(f"*/{DATABASE}")]:
        said = f"{path} holds other runs ({', '.join(sorted(others)[:3])}); it is left as it is"
        raise BadInput(said, hint="delete them first")
    return path


def delete_folders(paths: Sequence[Path]) -> int:
    """Delete folders without following links; returns the number of bytes freed.

    Each is renamed before it is deleted, so that no half-deleted folder keeps its name. Raises BadInput, with the
    place of the rest, if something cannot be deleted.
    """
    num_bytes = measure_size(paths)
    for path in paths:
        with explain_errors(path):
            left = discard_folder(path)
        if left.exists():
            raise BadInput(f"not everything in {path} could be deleted: the rest lies in {left}")
    return num_bytes


def measure_size(paths: Iterable[Path]) -> int:
    """Number of bytes that deleting these folders would free; files with hard links elsewhere do not count."""
    found: dict[tuple[int, int], list[os.stat_result]] = {}
    for root, _, names in chain.from_iterable(map(os.walk, paths)):
        for name in names:
            with suppress(FileNotFoundError):  # a run that goes on deletes checkpoints
                status = os.lstat(os.path.join(root, name))
                found.setdefault((status.st_dev, status.st_ino), []).append(status)
    return sum(links[0].st_size for links in found.values() if len(links) >= links[0].st_nlink)


# ------------------------------------------------------------------------------------------------- description of a run


def read_brief(path: str) -> RunInfo | None:
    """A fast way to read a run's description, for lists of thousands of runs; None if `Run.open` must be used instead.

    Opening a database in WAL mode creates two files and removes them again, which takes longer than reading. If the
    write-ahead log is empty, the database file is complete and is read alone. If a writer copies its log into the file
    at this moment, the file's attributes change, by which a caller that caches the result knows to read it again.
    """
    file = f"{path}/{DATABASE}"
    try:
        if os.path.islink(file) or (os.path.exists(f"{file}-wal") and os.path.getsize(f"{file}-wal")):
            return None
        with closing(sqlite3.connect(f"file:{quote(file)}?immutable=1", uri=True)) as database:
            (row,) = database.execute(f"SELECT {INFO_COLUMNS} FROM runs").fetchall()
        return read_info(row)
    # Damaged, or of another version: opening it says what is wrong.
    except (sqlite3.Error, OSError, ValueError, TypeError):
        return None


# -------------------------------------------------------------------------------------------- phases of a training run


class Change(Struct, frozen=True):
    """The first and the last value of a metric within a phase.

    Change(first=0.1, last=0.4)
    """

    first: float
    last: float


class PhaseSummary(Struct, frozen=True):
    """Consecutive steps of one phase. A run that recorded no phases is one phase without a name.

    PhaseSummary(iteration=0, phase="proposer", first_step=1, last_step=50, metrics={"reward/mean": Change(0.1, 0.4)})
    """

    iteration: int | None
    phase: str
    first_step: int
    last_step: int
    metrics: dict[str, Change]


class CandidateCount(Struct, frozen=True):
    """Number of questions of an iteration that were kept, and that were dropped by reason.

    CandidateCount(iteration=0, num_kept=10, dropped={"never solved": 6, "always solved": 4})
    """

    iteration: int
    num_kept: int
    dropped: dict[str, int]


def summarise_phases(run: RunReader, known: Mapping[str, list[Metric]] | None = None) -> list[PhaseSummary]:
    """The phases of a run in order; [] if the run has no metrics. `known` are its metrics, if already read."""
    values = dict(run.all_metrics() if known is None else known)
    grouping = ("run/iteration", "run/phase")
    places = {name: {metric.step: metric.value for metric in values.pop(name, [])} for name in grouping}
    steps = {metric.step for metrics in values.values() for metric in metrics}.union(*places.values())
    summaries = []
    for (iteration, phase), members in groupby(sorted(steps), lambda step: [at.get(step) for at in places.values()]):
        within = list(members)
        ends = within[0], within[-1]
        number = int(iteration) if iteration is not None and math.isfinite(iteration) else None
        summaries.append(PhaseSummary(number, run.name_phase(phase), *ends, _changes(values, *ends)))
    return summaries


def count_candidates(run: RunReader) -> list[CandidateCount]:
    """Counts of candidates per iteration; the most frequent drop reason comes first."""
    return [CandidateCount(number, by.pop("", 0), by) for number, by in run.count_candidates().items()]


def _changes(values: dict[str, list[Metric]], first_step: int, last_step: int) -> dict[str, Change]:
    step = attrgetter("step")
    within = {
        name: metrics[bisect_left(metrics, first_step, key=step) : bisect_right(metrics, last_step, key=step)]
        for name, metrics in values.items()
    }
    return {name: Change(part[0].value, part[-1].value) for name, part in within.items() if part}
