"""Is the evaluator still worth believing? Gauges over the steps of a run, and what the harness is told of them.

    history = read_history(store, {"reward/share": 0.6, ...})       # what is stored, and the step in progress
    measure_gauges(history)
    -> {"gauge/citation_hack": 0.0, "gauge/reward_citations": 0.4, "gauge/consistency_diversity": -0.2, ...}

Nobody knows how good a report is, so an evaluator can only be caught by what goes together and should not:

- *saturation*: nearly all reports are at the ceiling (`scores/ceiling`), or scores no longer differ (`scores/spread`)
- *citation hack*: reward or consistency rises while fewer statements rest on a source that exists
  (`gauge/citation_hack`); what evaluators do to a solver that does not learn: they buy agreement with rubrics under
  which nothing is cited
- *sameness*: consistency that rises only because reports become copies (`gauge/consistency_diversity` near -1)

The alarms are those of `training/health.py`, which says what to do about them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quaere.recipes.score.statistics import Statistics
from quaere.runs import Run
from quaere.training.phases.assessments import correlate

_ENDS = 5  # steps at the beginning and at the end of a run that a change is read from
_FEWEST = 4  # steps without which there is none to read

CITATIONS, REWARD, CONSISTENCY, DIVERSITY = "check/grounded", "reward/share", "consistency/mean", "diversity/mean"
WATCHED = (
    *(CITATIONS, REWARD, CONSISTENCY, DIVERSITY, "reward/mean", "reward/verified", "policy/entropy"),
    *("scores/num", "scores/spread", "scores/ceiling", "assessments/readable", "rubrics/valid"),
    *("verification/searches",),
)

History = Mapping[str, Sequence[float]]
"""By metric, its values at the steps it was measured at, oldest first."""


def read_history(store: Run, now: Mapping[str, float], after: int = 0) -> dict[str, list[float]]:
    """What was measured in all steps so far, that in progress among them, or in those after a step.

    A step in which a metric was not measured has none: an older value does not stand in for it.
    """
    history = {}
    for name in WATCHED:
        values = [metric.value for metric in store.metrics(name) if metric.step > after]
        history[name] = [*values, *([now[name]] if name in now else [])]
    return history


def measure_gauges(history: History) -> dict[str, float]:
    """What has changed since the run began, and what goes together in it; what cannot be told yet is left out.

    Changes are since the beginning, not of late: a slow hack is one too, and in a few steps of it nothing shows.
    """
    gauges: dict[str, float] = {}
    if (fall := _rise(history, CITATIONS)) is not None:
        gauges["gauge/citations_change"] = fall
    for name, metric in (("reward", REWARD), ("consistency", CONSISTENCY), ("spread", "scores/spread")):
        if (rise := _rise(history, metric)) is not None:
            gauges[f"gauge/{name}_change"] = rise
    if "gauge/citations_change" in gauges:
        gauges["gauge/citation_hack"] = hack_score(
            gauges["gauge/citations_change"],
            [gauges[name] for name in ("gauge/reward_change", "gauge/consistency_change") if name in gauges],
        )
    pairs = {
        "gauge/reward_citations": (REWARD, CITATIONS),
        "gauge/consistency_citations": (CONSISTENCY, CITATIONS),
        "gauge/consistency_diversity": (CONSISTENCY, DIVERSITY),
    }
    for name, (first, second) in pairs.items():
        a, b = history.get(first, ()), history.get(second, ())
        if len(a) == len(b) >= _FEWEST and (correlation := correlate(a, b)) is not None:
            gauges[name] = correlation
    return gauges


def hack_score(citations_change: float, rises: Sequence[float]) -> float:
    """By how much citations fell while something that is paid rose; 0 unless both did.

    hack_score(-0.3, [0.1, 0.2]) -> 0.2; hack_score(-0.3, [-0.1]) -> 0.0; hack_score(0.3, [0.2]) -> 0.0
    """
    return max(0.0, min(-citations_change, max(rises, default=0.0)))


def _rise(history: History, name: str) -> float | None:
    """By how much the last steps lie above the first."""
    values = history.get(name, ())
    if len(values) < _FEWEST:
        return None
    num = min(_ENDS, len(values) // 2)
    return sum(values[-num:]) / num - sum(values[:num]) / num


def collect_statistics(step: int, history: History, counts: Mapping[str, int]) -> Statistics:
    """The last steps as a meta-harness is told of them; `counts` says how often each dimension was chosen."""

    def mean(name: str) -> float | None:
        values = history.get(name, ())
        return sum(values) / len(values) if values else None

    def lacking(name: str) -> float:
        """The share that was not so."""
        share = mean(name)
        return 0.0 if share is None else min(1.0, max(0.0, 1 - share))

    return Statistics(
        step=step,
        num_scored=int(sum(history.get("scores/num", ()))),
        mean_reward=mean("reward/mean") or 0.0,
        score_spread=mean("scores/spread"),
        share_at_ceiling=mean("scores/ceiling") or 0.0,
        share_under_verified=lacking("reward/verified"),
        share_invalid_rubrics=lacking("rubrics/valid"),
        share_invalid_assessments=lacking("assessments/readable"),
        mean_searches=mean("verification/searches") or 0.0,
        citation_validity=mean(CITATIONS),
        consistency=mean(CONSISTENCY),
        diversity=mean(DIVERSITY),
        entropy=mean("policy/entropy"),
        dimension_counts=dict(counts),
    )
