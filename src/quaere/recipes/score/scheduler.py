"""What was chosen so far, and what that advises: dimensions to take, to leave, and to try.

    scheduler.record(step=3, rubric=rubric, consistencies=[0.4, 0.6])     # every question's C_i under that rubric
    scheduler.hints(harness) -> Hints(required=("coverage",), avoided=("insight",), explore=("balance",))

The rule, over the last `window` steps. A dimension's *tries* are the rubrics that chose it, its *mean* that of all
consistencies under those rubrics; the overall mean is that of all consistencies. The primary dimension is in every
rubric and is never advised.

- explore: the least tried, if tried fewer than `min_tries` times; at most `num_explore`.
- avoided: tried at least `min_tries` times, with a mean more than `margin` below the overall one; the worst first, at
  most `num_avoided`, and never so many that fewer than k - 1 others are left.
- required: tried at least `min_tries` times, with a mean not below the overall one, and chosen by a share of at most
  `max_share` of all rubrics, so that no dimension is advised for ever; the best first, at most `num_required`.

Of equals, the one that stands first in the pool comes first. Those required and those to explore fit into
one rubric together: the latter are cut. Hints are advice; a rubric that does otherwise is valid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from quaere.errors import BadInput
from quaere.records import Harness, Hints, Rubric
from quaere.setting_types import Fraction, NonNegativeFloat, NonNegativeInt, PositiveInt, check_settings

STATE_FILE = "scheduler.json"


class SchedulerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The numbers of the dimension scheduler's rule, which the paper leaves open.

        SchedulerSettings(window=20, min_tries=3, margin=0.02, max_share=0.7)

    Attributes:
        window: Steps that are remembered. [Quaere]
        min_tries: Rubrics that must have chosen a dimension before it is required or avoided. [Quaere]
        margin: How far below the overall mean a dimension's consistency must lie for it to be avoided. [Quaere]
        max_share: A dimension in a greater share of the rubrics is not required any more. [Quaere]
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
        """Refuse values out of bounds."""
        check_settings(self, "scheduler")
        if math.isinf(self.margin):
            raise BadInput("scheduler.margin must be finite")


class Chosen(Struct, frozen=True):
    """A rubric that was chosen in a step, and how consistent the reports on each question came out under it.

    Chosen(step=3, dimensions=("factuality", "coverage"), consistencies=(0.4, 0.6))
    """

    step: int
    dimensions: tuple[str, ...]
    consistencies: tuple[float, ...]


class SchedulerState(Struct, frozen=True, forbid_unknown_fields=True):
    """All that a scheduler remembers, oldest first.

    SchedulerState(chosen=(Chosen(...),))
    """

    chosen: tuple[Chosen, ...] = ()


class Tally(Struct, frozen=True):
    """How one dimension fared: how many rubrics chose it, and the mean consistency under them.

    Tally(tries=2, mean=0.45)
    """

    tries: int
    mean: float


class Scheduler:
    """Remembers choices and gives hints. It is part of every checkpoint of its run."""

    def __init__(self, settings: SchedulerSettings = SchedulerSettings()) -> None:  # noqa: B008 (it is frozen)
        settings.check()
        self.settings = settings
        self.state = SchedulerState()

    def record(self, step: int, rubric: Rubric, consistencies: Sequence[float | None]) -> None:
        """Remember a rubric that the evaluator chose, and forget what lies before the window.

        Questions whose consistency is not known (None) are passed over, and so is a rubric under which none is. What
        a default stood in for was not chosen, and is not to be recorded.
        """
        known = tuple(float(value) for value in consistencies if value is not None and math.isfinite(value))
        kept = [one for one in self.state.chosen if one.step > step - self.settings.window]
        added = [Chosen(step, rubric.dimensions, known)] if known else []
        self.state = SchedulerState((*kept, *added))

    def tally(self, names: Sequence[str]) -> dict[str, Tally]:
        """How each of these dimensions fared; the mean of one never tried is 0.

        scheduler.tally(["coverage"]) -> {"coverage": Tally(tries=2, mean=0.45)}
        """
        found: dict[str, Tally] = {}
        for name in names:
            under = [one for one in self.state.chosen if name in one.dimensions]
            found[name] = Tally(len(under), _mean(under))
        return found

    def hints(self, harness: Harness) -> Hints:
        """What to advise within this harness."""
        rules, settings = harness.dimensions, self.settings
        tallies = self.tally([item.name for item in harness.pool if item.name != rules.must_include])
        overall, num_rubrics, places = _mean(self.state.chosen), len(self.state.chosen), rules.k - 1
        # Sorting is stable: of equals, the one that stands first in the pool comes first.
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
        """Write what it remembers to a file in `folder`."""
        (folder / STATE_FILE).write_bytes(msgspec.json.encode(self.state))

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote."""
        file = folder / STATE_FILE
        try:
            self.state = msgspec.json.decode(file.read_bytes(), type=SchedulerState)
        except (OSError, msgspec.DecodeError, UnicodeError) as error:
            raise BadInput(f"{file} is missing or holds no scheduler's state") from error


def _mean(chosen: Sequence[Chosen]) -> float:
    values = [value for one in chosen for value in one.consistencies]
    return math.fsum(values) / len(values) if values else 0.0
