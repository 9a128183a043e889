"""The state of a SCORE run besides its weights: the evaluator's baseline, the harness, and the dimension scheduler.

    memory.baseline, memory.harness, memory.scheduler.hints(memory.harness)
    memory.save(checkpoint); memory.load(checkpoint)      # goes on as if never stopped

The scheduler hints which dimensions to require, avoid and explore, from the rubrics of the last `window` steps. A
dimension's *tries* are the rubrics that chose it, its *mean* that of all consistencies under those rubrics; the overall
mean is that of all consistencies. Dimensions that the harness requires are in every rubric and are never advised.

- explore: the least tried, if tried fewer than `min_tries` times; at most `num_explore`.
- avoided: tried at least `min_tries` times, with a mean more than `margin` below the overall one; the worst first, at
  most `num_avoided`, and never so many that fewer others are left than a rubric takes.
- required: tried at least `min_tries` times, with a mean not below the overall one, and chosen by a share of at most
  `max_share` of all rubrics, so that no dimension is required for ever; the best first, at most `num_required`.

Of equals, the one that is first in the pool comes first. Required and explored dimensions together fit into one rubric:
the explored ones are cut. Hints are advice: a rubric that ignores them is valid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from quaere.disk import read_regular
from quaere.errors import BadInput
from quaere.recipes.score.harness import HarnessVersion, Statistics, Versions
from quaere.records import Harness, Hints, Rubric
from quaere.setting_types import Fraction, NonNegativeFloat, NonNegativeInt, PositiveInt, check_settings
from quaere.training.learner import Learner

STATE_FILE = "score.json"
EVALUATOR_FILE = "evaluator-optimizer.safetensors"


class _State(Struct, frozen=True, forbid_unknown_fields=True):
    step: int
    baseline: float
    harness: Harness
    statistics: Statistics | None


class ScoreMemory:
    """The state of a SCORE run after its last finished step, saved with every checkpoint."""

    def __init__(self, first: Harness, scheduler: SchedulerSettings, versions: Versions) -> None:
        self.default, self.harness = first, first
        self.scheduler, self.versions = Scheduler(scheduler), versions
        self.step, self.baseline = 0, 0.0
        self.statistics: Statistics | None = None  # of the last revision of the harness
        self.evaluator: Learner | None = None  # where the evaluator has weights of its own
        self._evaluator_file: Path | None = None  # its optimizer in the checkpoint that was loaded last
        if not versions.read():
            versions.append(HarnessVersion(0, first, why="default"))

    def change_harness(self, version: HarnessVersion) -> None:
        """Put this harness into force, and append it to the file of versions."""
        self.harness, self.statistics = version.harness, version.statistics
        self.versions.append(version)

    def open_evaluator(self, learner: Learner) -> None:
        """Take the learner of the evaluator's own weights, whose optimizer goes on where the checkpoint has it."""
        if self._evaluator_file is not None:
            learner.load_optimizer(self._evaluator_file)
        self.evaluator = learner

    def save(self, folder: Path) -> None:
        """Write the state to files in this folder."""
        if self.evaluator is not None:
            self.evaluator.save_optimizer(folder / EVALUATOR_FILE)
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
        saved = folder / EVALUATOR_FILE
        self._evaluator_file = saved if saved.exists() else None
        self.step, self.baseline = state.step, state.baseline
        self.harness, self.statistics = state.harness, state.statistics
        self.scheduler.load(folder)
        self.versions.truncate_after(self.step)


# -------------------------------------------------------------------------------------------------------- the scheduler

SCHEDULER_FILE = "scheduler.json"


class SchedulerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the dimension scheduler, whose numbers the paper leaves open.

        SchedulerSettings(window=20, min_tries=3, margin=0.02, max_share=0.7)

    Attributes:
        window: Steps that are remembered. [Quaere]
        min_tries: Rubrics that must have chosen a dimension before it is required or avoided. [Quaere]
        margin: How far below the overall mean a dimension's consistency must lie for it to be avoided. [Quaere]
        max_share: A dimension that more than this share of the rubrics chose is no longer required. [Quaere]
        num_required: Most dimensions to require. [Quaere]
        num_avoided: Most dimensions to avoid. [Quaere]
        num_explore: Most dimensions to explore. [Quaere]
    """

    window: PositiveInt = 20
    min_tries: PositiveInt = 3
    margin: NonNegativeFloat = 0.02
    max_share: Fraction = 0.7
    num_required: NonNegativeInt = 1
    num_avoided: NonNegativeInt = 2
    num_explore: NonNegativeInt = 2

    def check(self) -> None:
        """Raise `BadInput` for values out of bounds."""
        check_settings(self, "scheduler")
        if math.isinf(self.margin):
            raise BadInput("scheduler.margin must be a finite number, not infinity")


class Chosen(Struct, frozen=True):
    """A rubric that was chosen in a step, and the consistency of the reports on each question under it.

    Chosen(step=3, dimensions=("factuality", "coverage"), consistencies=(0.4, 0.6))
    """

    step: int
    dimensions: tuple[str, ...]
    consistencies: tuple[float, ...]


class _SchedulerState(Struct, frozen=True, forbid_unknown_fields=True):
    chosen: tuple[Chosen, ...] = ()  # oldest first


class Tally(Struct, frozen=True):
    """The record of one dimension: the number of rubrics that chose it, and the mean consistency under them.

    Tally(tries=2, mean=0.45)
    """

    tries: int
    mean: float


class Scheduler:
    """Records chosen rubrics and gives hints. It is part of every checkpoint of its run."""

    def __init__(self, settings: SchedulerSettings = SchedulerSettings()) -> None:  # noqa: B008 (it is frozen)
        settings.check()
        self.settings = settings
        self.state = _SchedulerState()

    def record(self, step: int, rubric: Rubric, consistencies: Sequence[float | None]) -> None:
        """Record a rubric that the evaluator chose; forget rubrics older than the window.

        Questions with unknown consistency (None) are skipped, and so is a rubric under which all are unknown. A default
        rubric was not chosen by the evaluator and must not be recorded.
        """
        known = tuple(float(value) for value in consistencies if value is not None and math.isfinite(value))
        kept = [one for one in self.state.chosen if one.step > step - self.settings.window]
        self.state = _SchedulerState((*kept, *([Chosen(step, rubric.dimensions, known)] if known else [])))

    def tally(self, names: Sequence[str]) -> dict[str, Tally]:
        """The record of each of these dimensions; the mean of one never chosen is 0.

        scheduler.tally(["coverage"]) -> {"coverage": Tally(tries=2, mean=0.45)}
        """
        under = {name: [one for one in self.state.chosen if name in one.dimensions] for name in names}
        return {name: Tally(len(chosen), _mean(chosen)) for name, chosen in under.items()}

    def hints(self, harness: Harness) -> Hints:
        """The hints within this harness."""
        rules, settings = harness.dimensions, self.settings
        tallies = self.tally([item.name for item in harness.pool if item.name not in rules.required])
        overall, num_rubrics = _mean(self.state.chosen), len(self.state.chosen)
        places = rules.k - len(rules.required)
        # Sorting is stable, so of equals the one that is first in the pool comes first.
        tried = sorted(
            (name for name, one in tallies.items() if one.tries >= settings.min_tries),
            key=lambda name: tallies[name].mean,
        )
        untried = sorted(
            (name for name, one in tallies.items() if one.tries < settings.min_tries),
            key=lambda name: tallies[name].tries,
        )
        poor = [name for name in tried if tallies[name].mean < overall - settings.margin]
        good = [
            name
            for name in sorted(tried, key=lambda name: -tallies[name].mean)
            if tallies[name].mean >= overall and tallies[name].tries <= settings.max_share * num_rubrics
        ]
        required = tuple(good[: min(settings.num_required, places)])
        return Hints(
            required=required,
            avoided=tuple(poor[: max(0, min(settings.num_avoided, len(tallies) - places))]),
            explore=tuple(untried[: max(0, min(settings.num_explore, places - len(required)))]),
        )

    def save(self, folder: Path) -> None:
        """Write the state to a file in `folder`."""
        (folder / SCHEDULER_FILE).write_bytes(msgspec.json.encode(self.state))

    def load(self, folder: Path) -> None:
        """Restore the state that `save` wrote."""
        file = folder / SCHEDULER_FILE
        try:
            self.state = msgspec.json.decode(read_regular(file), type=_SchedulerState)
        except (OSError, msgspec.DecodeError, UnicodeError) as error:
            raise BadInput(f"{file} is missing or is not the state of a scheduler") from error


def _mean(chosen: Sequence[Chosen]) -> float:
    values = [value for one in chosen for value in one.consistencies]
    return math.fsum(values) / len(values) if values else 0.0
