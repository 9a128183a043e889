"""The state of a SCORE run besides its weights: the evaluator's baseline, the scheduler, the harness.

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
from quaere.regular_files import read_regular

STATE_FILE = "score.json"


class _State(Struct, frozen=True, forbid_unknown_fields=True):
    step: int
    baseline: float
    harness: Harness
    statistics: Statistics | None


class ScoreMemory:
    """The state of a run after its last finished step."""

    def __init__(self, first: Harness, scheduler: SchedulerSettings, versions: Versions) -> None:
        self.default = first
        self.harness = first
        self.scheduler = Scheduler(scheduler)
        self.versions = versions
        self.step = 0
        self.baseline = 0.0
        self.statistics: Statistics | None = None  # of the last revision of the harness
        if not versions.read():
            versions.append(HarnessVersion(0, first, why="default"))

    def change_harness(self, version: HarnessVersion) -> None:
        """Put this harness into force, and append it to the file of versions."""
        self.harness, self.statistics = version.harness, version.statistics
        self.versions.append(version)

    def save(self, folder: Path) -> None:
        """Write the state to files in this folder."""
        state = _State(self.step, self.baseline, self.harness, self.statistics)
        (folder / STATE_FILE).write_bytes(msgspec.json.encode(state))
        self.scheduler.save(folder)

    def load(self, folder: Path) -> None:
        """Restore the state that `save` wrote; harness versions of later steps are dropped."""
        file = folder / STATE_FILE
        try:
            state = msgspec.json.decode(read_regular(file), type=_State)
        except (OSError, msgspec.DecodeError, UnicodeError, ValueError) as error:
            raise BadInput(f"{file} is missing or is not the state of a SCORE run") from error
        self.step, self.baseline = state.step, state.baseline
        self.harness, self.statistics = state.harness, state.statistics
        self.scheduler.load(folder)
        self.versions.truncate_after(self.step)
