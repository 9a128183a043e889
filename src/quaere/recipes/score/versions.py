"""Every harness a run has had, with the statistics that led to it: one line of JSON each, in the run's directory.

    versions = Versions(run.path)
    versions.append(HarnessVersion(step=5, harness=harness, statistics=statistics, why="saturated"))
    versions.truncate_after(checkpoint_step)             # on resume, so that the file is that of a run never stopped
    versions.read()[-1].harness                          # the one in force

A line is synced before `append` returns. One that was cut off by the death of its process is no line: it is passed over
in reading and gone with the next change.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct, structs

from quaere.atomic import write_file
from quaere.errors import BadInput
from quaere.recipes.score.statistics import Statistics
from quaere.records import Harness

FILE = "harness.jsonl"


class HarnessVersion(Struct, frozen=True, forbid_unknown_fields=True):
    """The harness in force after a step. With a `fault`, nothing usable was proposed and it is the one before.

    HarnessVersion(step=0, harness=Harness(version=0, ...), why="default")
    """

    step: int
    harness: Harness
    statistics: Statistics | None = None
    why: str = ""
    fault: str = ""


def describe_change(before: Harness, after: Harness) -> str:
    """What is different, in a few words; "" where nothing is. Notes are said to have changed and not repeated.

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
        """All of them, oldest first; none where there is no file yet."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInput(f"cannot read {self.path}: {error.strerror or error}") from error
        whole = content[: content.rfind(b"\n") + 1]
        try:
            return [msgspec.json.decode(line, type=HarnessVersion) for line in whole.splitlines()]
        except (msgspec.DecodeError, UnicodeError, ValueError) as error:
            raise BadInput(f"{self.path} holds a line that is no version of a harness: {error}") from error

    def append(self, version: HarnessVersion) -> None:
        """Add one. What the file says of this step or later ones comes from a step taken before and undone: it goes."""
        versions = [one for one in self.read() if one.step < version.step]
        self._write([*versions, version])

    def truncate_after(self, step: int) -> None:
        """Drop what came after this step."""
        versions = self.read()
        if self.path.exists():
            self._write([one for one in versions if one.step <= step])

    def _write(self, versions: list[HarnessVersion]) -> None:
        """All of it anew: there are few, and a rename is whole or nothing."""
        write_file(self.path, b"".join(msgspec.json.encode(version) + b"\n" for version in versions))
