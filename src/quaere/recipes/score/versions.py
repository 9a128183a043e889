"""Harness versions of a run with the statistics that led to each: one line of JSON each, in the run's directory.

    versions = Versions(run.path)
    versions.append(HarnessVersion(step=5, harness=harness, statistics=statistics, why="saturated"))
    versions.truncate_after(checkpoint_step)             # on resume, so that the file is that of a run never stopped
    versions.read()[-1].harness                          # the one in force

A line is synced before `append` returns. An incomplete last line, from a process that died while writing, is skipped in
reading and removed by the next change.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct, structs

from quaere.atomic import write_file
from quaere.errors import BadInput
from quaere.recipes.score.statistics import Statistics
from quaere.records import Harness
from quaere.regular_files import read_regular

FILE = "harness.jsonl"


class HarnessVersion(Struct, frozen=True, forbid_unknown_fields=True):
    """The harness in force after a step. With a `fault`, the proposal was unusable and this is the previous one.

    HarnessVersion(step=0, harness=Harness(version=0, ...), why="default")
    """

    step: int
    harness: Harness
    statistics: Statistics | None = None
    why: str = ""
    fault: str = ""


def describe_change(before: Harness, after: Harness) -> str:
    """The differences in a few words; "" if there are none. Changed notes are mentioned, not repeated.

    describe_change(old, new) -> "k 4 → 5, min_tool_calls 1 → 2, pool + chronology, notes"
    """
    said = []
    for old, new in ((before.dimensions, after.dimensions), (before.process, after.process)):
        for name, value in structs.asdict(new).items():
            if (was := getattr(old, name)) != value:
                said.append(f"{name} {_say(was)} → {_say(value)}")
    names_before, names_after = ({item.name for item in harness.pool} for harness in (before, after))
    said += [f"pool + {item.name}" for item in after.pool if item.name not in names_before]
    said += [f"pool - {item.name}" for item in before.pool if item.name not in names_after]
    said += [f"reworded {item.name}" for item in after.pool if item.name in names_before and item not in before.pool]
    return ", ".join([*said, "notes"] if before.notes != after.notes else said)


def _say(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else f"{value:g}"


class Versions:
    """The file of harness versions in a run's directory."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE

    def read(self) -> list[HarnessVersion]:
        """All versions, oldest first; none if there is no file yet."""
        try:
            content = read_regular(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInput(f"cannot read {self.path}: {error.strerror or error}") from error
        whole = content[: content.rfind(b"\n") + 1]
        try:
            return [msgspec.json.decode(line, type=HarnessVersion) for line in whole.splitlines()]
        except (msgspec.DecodeError, UnicodeError, ValueError) as error:
            raise BadInput(f"{self.path} has a line that is not a harness version: {error}") from error

    def append(self, version: HarnessVersion) -> None:
        """Add a version. Entries of the same or later steps belong to undone steps and are removed."""
        versions = [one for one in self.read() if one.step < version.step]
        self._write([*versions, version])

    def truncate_after(self, step: int) -> None:
        """Remove the versions of steps after this one."""
        versions = self.read()
        if self.path.exists():
            self._write([one for one in versions if one.step <= step])

    def _write(self, versions: list[HarnessVersion]) -> None:
        """Rewrite the whole file: it is small, and a rename is atomic."""
        write_file(self.path, b"".join(msgspec.json.encode(version) + b"\n" for version in versions))
