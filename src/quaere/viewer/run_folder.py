"""The runs that a viewer shows: those of a folder, or a single one.

folder = open_folder("runs/notes")
with folder.open("notes") as run: ...

A run is looked up by its name among the directories that are there. No path is ever made of what a request says, so a
name such as `../secrets` is a name that no run has.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from quaere.api.run import Run
from quaere.errors import BadInput, nearest_hint
from quaere.runs.directory import CONFIG, DATABASE, is_locked, refuse_links
from quaere.runs.list import runs_root

Signature: TypeAlias = tuple[object, ...]
_WRITTEN = (DATABASE, f"{DATABASE}-wal", CONFIG, "harness.jsonl")


class NotShown(BadInput):
    """A run, step, episode or page that does not exist."""


class RunFolder:
    """The directories of runs by name. They are looked for on every request: runs come and go while a viewer runs."""

    def __init__(self, root: Path, only: str = "") -> None:
        self.root = root
        self.only = only  # the name of the one run that is shown; "" for all of the folder

    def paths(self) -> dict[str, Path]:
        """The run directories by name, in alphabetical order; unprintable names are left out."""
        if self.only:
            return {self.only: self.root / self.only}
        try:
            names = sorted(name for name in os.listdir(self.root) if name.isprintable() and not name.startswith("."))
        except OSError:
            return {}
        root = str(self.root)  # joining paths as text: a folder may have thousands of runs
        return {name: self.root / name for name in names if os.path.isfile(f"{root}/{name}/{DATABASE}")}

    def find(self, name: str) -> Path:
        """Directory of the run with this name."""
        paths = self.paths()
        if name not in paths:
            raise NotShown(f"no run {name} in {self.root}", hint=nearest_hint(name, list(paths), "quaere runs list"))
        return paths[name]

    def open(self, name: str) -> Run:
        """The run with this name, open for reading."""
        return open_run(self.find(name))


def open_run(path: Path) -> Run:
    """A run directory, open for reading. One whose files are links is refused: they could lead to any file."""
    refuse_links(path)
    return Run.open(path.absolute())


def open_folder(given: str | None, runs: str | None = None) -> RunFolder:
    """The folder that a user named: a run directory, the name of a run, or a folder of runs; else the folder of runs.

    open_folder("runs/notes").only == "notes"; open_folder("runs").only == ""
    """
    root = runs_root(runs)
    if given is None:
        if not root.is_dir():
            raise BadInput(f"there is no folder of runs {root}", hint="quaere view RUN, or quaere view FOLDER")
        return RunFolder(root)
    for path in (root / given, Path(given)):
        if (path / DATABASE).is_file():
            resolved = path.absolute()
            return RunFolder(resolved.parent, only=resolved.name)
    if Path(given).is_dir():
        return RunFolder(Path(given))
    names = list(RunFolder(root).paths())
    raise BadInput(f"{given} is neither a run nor a folder", hint=nearest_hint(given, names, "quaere runs list"))


def read_signature(path: Path) -> Signature:
    """A value that changes when the run is written to, begins or ends. Only file attributes are read.

    An empty write-ahead log counts as none: readers create and remove it.
    """
    written: list[object] = [is_locked(path)]
    folder = str(path)
    for name in _WRITTEN:
        try:
            status = os.stat(f"{folder}/{name}")
        except OSError:
            written.append(None)
        else:
            written.append((status.st_size, status.st_mtime_ns) if status.st_size else None)
    return tuple(written)
