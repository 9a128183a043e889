"""The folder of runs: a summary of each run, and finding a run by name or path.

list_runs(runs_root()) == [RunSummary(id="ask-20250301-101500", kind="ask", num_episodes=1, num_answered=1, ...)]
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from msgspec import Struct

from quaere.errors import BadInput
from quaere.runs.deletion import measure_size
from quaere.runs.nearest import nearest_hint
from quaere.runs.reader import RunReader
from quaere.runs.rows import RunState
from quaere.runs.run import Run


class RunSummary(Struct, frozen=True):
    """Summary of a run for a list; `problem` is the error message if the run cannot be read, `next` what to type next.

    RunSummary(id="ask-20250301-101500", path="runs/ask-20250301-101500", kind="ask",
               created="2025-03-01T10:15:00+00:00", num_episodes=3, num_answered=2, num_bytes=18_432,
               state=RunState("done"))
    """

    id: str
    path: str
    kind: str = ""
    created: str = ""
    num_episodes: int = 0
    num_answered: int = 0
    num_bytes: int = 0
    problem: str = ""
    state: RunState = RunState("unknown")
    step: int = 0
    next: str = ""


def runs_root(given: str | Path | None = None) -> Path:
    """The folder of runs: the one given, else `$QUAERE_RUNS`, else `./runs`."""
    return Path(given or os.environ.get("QUAERE_RUNS") or "runs")


def list_runs(root: Path) -> list[RunSummary]:
    """All runs under `root`, oldest first; [] if the folder does not exist."""
    summaries = [_summarise(path) for path in _run_paths(root)]
    return sorted(summaries, key=lambda summary: (summary.created, summary.id))


def find_run(root: Path, name: str) -> Path:
    """Directory of a run given by its name under `root` or by its path."""
    for path in (root / name, Path(name)):
        if name and (path / "run.db").is_file():
            return path
    hint = nearest_hint(name, [path.name for path in _run_paths(root)], "quaere runs list")
    raise BadInput(f"no run {name} in {root}", hint=hint)


def _run_paths(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return [path for path in root.iterdir() if not path.name.startswith(".") and (path / "run.db").is_file()]


def _summarise(path: Path) -> RunSummary:
    num_bytes = measure_size([path])
    try:
        with Run.open(path) as run:
            num_episodes, num_answered = run.count_episodes()
            state, step = run.state(), run.last_step()
    except BadInput as error:
        return RunSummary(id=path.name, path=str(path), num_bytes=num_bytes, problem=str(error))
    return RunSummary(
        id=path.name,
        path=str(path),
        kind=run.info.kind,
        created=run.info.created,
        num_episodes=num_episodes,
        num_answered=num_answered,
        num_bytes=num_bytes,
        state=state,
        step=step,
        next=next_command(run, state),
    )


def next_command(run: RunReader, state: RunState) -> str:
    """The command that resumes a training run or uses its result; "" if it is running, too old or no training run."""
    if run.info.kind != "evolve" or state.name == "running" or run.is_too_old:
        return ""
    path = shlex.quote(str(run.path))
    return f"quaere export {path} --merge --out DIR" if state.name == "done" else f"quaere evolve --resume {path}"


def describe_state(state: RunState, step: int = 0) -> str:
    """A state in words.

    describe_state(RunState("failed", "the gradient is not finite"), 12) ->
    "failed after step 12: the gradient is not finite"
    """
    after = f" after step {step}" if step else ""
    return f"{state.name}{after}" + (f": {state.why}" if state.why else "")
