"""Summary of a training run: metrics per phase, and counts of kept and dropped questions.

summarise_phases(run)[0].metrics["reward/mean"] == Change(first=0.1, last=0.4)
count_candidates(run) == [CandidateCount(iteration=0, num_kept=10, dropped={"never solved": 6})]
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import groupby
from operator import attrgetter

from msgspec import Struct

from quaere.runs.reader import RunReader
from quaere.runs.rows import Metric
from quaere.runs.run import Run

PHASES = ("proposer", "generation", "solver", "reports")  # known names; the metric "run/phase" is an index into these,
_OWN = "phases"  # ... followed by a run's own, in this setting
_ITERATION, _PHASE = "run/iteration", "run/phase"


class Change(Struct, frozen=True):
    """The first and the last value of a metric within a phase.

    Change(first=0.1, last=0.4)
    """

    first: float
    last: float


class PhaseSummary(Struct, frozen=True):
    """Consecutive steps of one phase. A run that recorded no phases is one phase without a name.

    PhaseSummary(iteration=0, phase="proposer", first_step=1, last_step=50, metrics={"reward/mean": Change(0.1, 0.4)})
    """

    iteration: int | None
    phase: str
    first_step: int
    last_step: int
    metrics: dict[str, Change]


class CandidateCount(Struct, frozen=True):
    """Number of questions of an iteration that were kept, and that were dropped by reason.

    CandidateCount(iteration=0, num_kept=10, dropped={"never solved": 6, "always solved": 4})
    """

    iteration: int
    num_kept: int
    dropped: dict[str, int]


def summarise_phases(run: RunReader, known: Mapping[str, list[Metric]] | None = None) -> list[PhaseSummary]:
    """The phases of a run in order; [] if the run has no metrics. `known` are its metrics, if already read."""
    values = dict(run.all_metrics() if known is None else known)
    places = {name: {metric.step: metric.value for metric in values.pop(name, [])} for name in (_ITERATION, _PHASE)}
    steps = {metric.step for metrics in values.values() for metric in metrics}.union(*places.values())
    summaries = []
    for (iteration, phase), members in groupby(sorted(steps), lambda step: [at.get(step) for at in places.values()]):
        within = list(members)
        ends = within[0], within[-1]
        number = int(iteration) if iteration is not None and math.isfinite(iteration) else None
        summaries.append(PhaseSummary(number, name_phase(phase, run), *ends, _changes(values, *ends)))
    return summaries


def count_candidates(run: RunReader) -> list[CandidateCount]:
    """Counts of candidates per iteration; the most frequent drop reason comes first."""
    return [CandidateCount(number, by.pop("", 0), by) for number, by in run.count_candidates().items()]


def name_phase(number: float | None, run: RunReader) -> str:
    """The name of a phase by its number in the metric `run/phase`: `name_phase(2.0, run) == "solver"`; "" for None."""
    if number is None:
        return ""
    names = (*PHASES, *run.info.settings.get(_OWN, ()))
    return names[int(number)] if number in range(len(names)) else f"phase {number:g}"


def number_phase(phase: str, run: Run) -> float:
    """The number of a phase in the metric `run/phase`; an unknown name is added to the run's setting `phases`."""
    own = run.info.settings.get(_OWN, [])
    if phase not in (*PHASES, *own):
        own = [*own, phase]
        run.change_settings({_OWN: own})
    return float((*PHASES, *own).index(phase))


def _changes(values: dict[str, list[Metric]], first_step: int, last_step: int) -> dict[str, Change]:
    step = attrgetter("step")
    within = {
        name: metrics[bisect_left(metrics, first_step, key=step) : bisect_right(metrics, last_step, key=step)]
        for name, metrics in values.items()
    }
    return {name: Change(part[0].value, part[-1].value) for name, part in within.items() if part}
