"""`quaere.Run`: a run directory, to read from and to go on with.

Run.open("runs/notes").metrics("reward/mean") -> [Metric(step=1, value=0.21), ...]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from quaere.runs.database import connect
from quaere.runs.directory import DATABASE
from quaere.runs.list import find_run, runs_root
from quaere.runs.reader import RunReader

if TYPE_CHECKING:
    from quaere.api.search_function import SearchFunction
    from quaere.training.progress import StepReport


class Run(RunReader):
    """A run, open for reading: its metrics, episodes, curriculum, events and settings.

    It may be read while it is written. Everything is read when it is asked for, so a run that goes on is followed by
    asking again.
    """

    @classmethod
    def open(cls, run: str | Path, *, runs: str | Path | None = None) -> Self:
        """Open a run by its directory, or by its name in the folder of runs ($QUAERE_RUNS, else ./runs)."""
        path = find_run(runs_root(runs), str(run))
        return cls(path, connect(path / DATABASE, write=False))

    @property
    def config(self) -> dict[str, Any]:
        """Every setting of a training run, by section: `run.config["solver"]["batch"]`."""
        from quaere.runs.config_yaml import parse_yaml

        config = parse_yaml(self.config_text(), str(self.path))
        assert isinstance(config, dict)
        return config

    def resume(
        self,
        *,
        settings: Mapping[str, object] | None = None,
        search: SearchFunction | None = None,
        force: bool = False,
        on_step: Callable[[StepReport], None] = lambda report: None,
        on_note: Callable[[str], None] = lambda line: None,
    ) -> Run:
        """Go on with a training run that was stopped, until its end; returns it.

        Settings that differ from those it began with are refused without `force`. `search` is the function that a run
        began with, if it did.
        """
        from quaere.api.evolution import resume

        return resume(self.path, settings=settings, search=search, force=force, on_step=on_step, on_note=on_note)

    def close(self) -> None:
        """Close the database; otherwise it is closed when the object is deleted."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Run {self.path}: {self.info.kind}>"
