"""`quaere.Run`: a run directory, to read from and to go on with; and the documents that the run was about.

Run.open("runs/notes").metrics("reward/mean") -> [Metric(step=1, value=0.21), ...]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import yaml
from msgspec import Struct

from quaere.api.background import Closing
from quaere.api.search_function import SearchFunction
from quaere.errors import BadInput, IndexMissing
from quaere.runs.config_yaml import parse_yaml
from quaere.runs.directory import DATABASE, connect, runs_root
from quaere.runs.reader import RunReader
from quaere.runs.summaries import find_run
from quaere.search.index import Index, open_index
from quaere.training.progress import StepReport


class Run(Closing, RunReader):
    """A run, open for reading: its metrics, episodes, curriculum, events and settings.

    It may be read while it is written. Each call reads the files again, so repeat it to follow a run that is still
    training.
    """

    @classmethod
    def open(cls, run: str | Path, *, runs: str | Path | None = None) -> Self:
        """Open a run by its directory, or by its name in the folder of runs ($QUAERE_RUNS, else ./runs)."""
        path = find_run(runs_root(runs), str(run))
        return cls(path, connect(path / DATABASE, write=False))

    @property
    def config(self) -> dict[str, Any]:
        """Every setting of a training run, by section: `run.config["solver"]["batch"]`."""
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
        """Resume a training run that was stopped, train it to its end, and return it.

        Settings that differ from those it began with are refused without `force`. If the run was started with a search
        function, pass the same function as `search`.
        """
        from quaere.api.evolution import resume

        return resume(self.path, settings=settings, search=search, force=force, on_step=on_step, on_note=on_note)

    def close(self) -> None:
        """Close the database; otherwise it is closed when the object is deleted."""
        self._database.close()

    def __repr__(self) -> str:
        return f"<Run {self.path}: {self.info.kind}>"


# ------------------------------------------------------------------------------------------------------------ documents


class RunDocuments(Struct, frozen=True):
    """The index of a run, if it is still there; `said` is one line about it where it is not, or has changed."""

    index: Index | None
    said: str = ""

    def read(self, doc_id: str) -> str:
        """The text of a document; "" if it cannot be read."""
        try:
            return self.index.document(doc_id) if self.index is not None else ""
        except BadInput:
            return ""


def open_documents(run: RunReader, place: str | None = None) -> RunDocuments:
    """The index that the run names; none if it is not on this machine. One at another `place` must be there."""
    path = place or name_index(run)
    if not path:
        return RunDocuments(None, "the documents are not here: the run names no index")
    try:
        index = open_index(Path(path), check_sources=False)
    except (IndexMissing, BadInput, OSError) as error:
        if place:
            raise
        return RunDocuments(None, f"the documents are not here: {error}")
    if index.fingerprint != run.info.settings.get("index_fingerprint", index.fingerprint):
        return RunDocuments(index, f"{path} holds other documents than when the run began")
    return RunDocuments(index)


def name_index(run: RunReader) -> str:
    """The run's index: from its config, which a resumed run may have changed, else from its settings."""
    try:
        config = yaml.safe_load(run.config_text())
    except (BadInput, yaml.YAMLError):
        config = None
    given = config.get("index") if isinstance(config, dict) else None
    return str(given or run.info.settings.get("index", ""))
