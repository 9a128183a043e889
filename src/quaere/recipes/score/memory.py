"""What a run of SCORE must remember beside its weights: the evaluator's baseline, the scheduler, the harness.

memory.baseline, memory.harness, memory.scheduler.hints(memory.harness)
memory.save(checkpoint); memory.load(checkpoint)      # goes on as if never stopped
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from quaere.errors import BadInput
from quaere.recipes.score.scheduler import Scheduler, SchedulerSettings
from quaere.recipes.score.statistics import Statistics
from quaere.recipes.score.versions import HarnessVersion, Versions
from quaere.records import Harness

STATE_FILE = "score.json"


class _State(Struct, frozen=True, forbid_unknown_fields=True):
    step: int
    baseline: float
    harness: Harness
    statistics: Statistics | None


class ScoreMemory:
    """The state of a run, as of the last step that was done."""

    def __init__(self, first: Harness, scheduler: SchedulerSettings, versions: Versions) -> None:
        self.default = first
        self.harness = first
        self.scheduler = Scheduler(scheduler)
        self.versions = versions
        self.step = 0
        self.baseline = 0.0
        self.statistics: Statistics | None = None  # those the harness was last looked at with
        if not versions.read():
            versions.append(HarnessVersion(0, first, why="default"))

    def change_harness(self, version: HarnessVersion) -> None:
        """From now on this one holds; it is written down with what led to it."""
        self.harness, self.statistics = version.harness, version.statistics
        self.versions.append(version)

    def save(self, folder: Path) -> None:
        """Write it to files in this folder."""
        state = _State(self.step, self.baseline, self.harness, self.statistics)
        (folder / STATE_FILE).write_bytes(msgspec.json.encode(state))
        self.scheduler.save(folder)

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote; versions of the harness from steps that are undone by this are dropped."""
        file = folder / STATE_FILE
        try:
            state = msgspec.json.decode(file.read_bytes(), type=_State)
        except (OSError, msgspec.DecodeError, UnicodeError, ValueError) as error:
            raise BadInput(f"{file} is missing or holds no state of a run") from error
        self.step, self.baseline = state.step, state.baseline
        self.harness, self.statistics = state.harness, state.statistics
        self.scheduler.load(folder)
        self.versions.truncate_after(self.step)
