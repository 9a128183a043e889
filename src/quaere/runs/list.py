"""The folder of runs: a summary of each run, and finding a run by name or path.

list_runs(runs_root()) == [RunSummary(id="ask-20250301-101500", kind="ask", num_episodes=1, num_answered=1, ...)]
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from quaere.errors import BadInput
from quaere.runs.nearest import nearest_hint
from quaere.runs.run import Run


class RunSummary(Struct, frozen=True):
    """Summary of a run for a list; `problem` is the error message if the run cannot be read.

    RunSummary(id="ask-20250301-101500", path="runs/ask-20250301-101500", kind="ask",
               created="2025-03-01T10:15:00+00:00", num_episodes=3, num_answered=2, num_bytes=18_432)
    """

    id: str
    path: str
    kind: str = ""
    created: str = ""
    num_episodes: int = 0
    num_answered: int = 0
    num_bytes: int = 0
    problem: str = ""


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
    num_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    try:
        with Run.open(path) as run:
            num_episodes, num_answered = run.count_episodes()
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
    )
