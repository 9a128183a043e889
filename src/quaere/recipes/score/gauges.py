"""Gauges of evaluator failure over the steps of a run, and the statistics that the harness is revised by.

    history = read_history(store, {"reward/share": 0.6, ...})       # what is stored, and the step in progress
    measure_gauges(history)
    -> {"gauge/citation_hack": 0.0, "gauge/reward_citations": 0.4, "gauge/consistency_diversity": -0.2, ...}

There are no true scores of reports, so a failing evaluator can only be recognised by metrics that should not move
together:

- *saturation*: nearly all reports are at the ceiling (`scores/ceiling`), or scores no longer differ (`scores/spread`)
- *citation hack*: reward or consistency rises while fewer statements cite a source that exists
  (`gauge/citation_hack`); with a frozen solver, evaluators learn to gain consistency by rubrics under which reports
  cite nothing
- *sameness*: consistency that rises only because reports become copies (`gauge/consistency_diversity` near -1)

The alarms are in `training/health.py`, with the action for each.
"""

from collections.abc import Mapping, Sequence

from quaere.recipes.score.harness import Statistics
from quaere.runs import Run
from quaere.training.assessments import correlate

_ENDS = 5  # steps at each end of a run whose means are compared
_FEWEST = 4  # steps needed to compute a change or a correlation

CITATIONS, REWARD, CONSISTENCY, DIVERSITY = "check/grounded", "reward/share", "consistency/mean", "diversity/mean"
WATCHED = (
    *(CITATIONS, REWARD, CONSISTENCY, DIVERSITY, "reward/verified", "policy/entropy"),
    *("scores/num", "scores/spread", "scores/ceiling", "assessments/readable", "rubrics/valid"),
    *("verification/searches",),
)

History = Mapping[str, Mapping[int, float]]
"""By metric, its values by the steps it was measured at, oldest first."""


def read_history(store: Run, step: int, now: Mapping[str, float], after: int = 0) -> dict[str, dict[int, float]]:
    """The values of the watched metrics at all steps after `after`, with those of the current step (`now`).

    A step in which a metric was not measured contributes no value; older values are not carried forward.
    """
    stored = {name: {one.step: one.value for one in store.metrics(name) if one.step > after} for name in WATCHED}
    return {name: values | {step: now[name]} if name in now else values for name, values in stored.items()}


def measure_gauges(history: History) -> dict[str, float]:
    """Changes since the start of the run, and correlations between metrics; left out where there are too few values.

    Changes are taken since the start of the run, not over the last steps: a slow hack would not show in a few steps.
    """
    watched = {"citations": CITATIONS, "reward": REWARD, "consistency": CONSISTENCY, "spread": "scores/spread"}
    changes = {name: _rise(history, metric) for name, metric in watched.items()}
    gauges = {f"gauge/{name}_change": change for name, change in changes.items()}
    if changes["citations"] is not None:
        rises = [change for name in ("reward", "consistency") if (change := changes[name]) is not None]
        gauges["gauge/citation_hack"] = hack_score(changes["citations"], rises)
    pairs = {
        "gauge/reward_citations": (REWARD, CITATIONS),
        "gauge/consistency_citations": (CONSISTENCY, CITATIONS),
        "gauge/consistency_diversity": (CONSISTENCY, DIVERSITY),
    }
    for name, (first, second) in pairs.items():
        a, b = history.get(first, {}), history.get(second, {})
        both = [step for step in a if step in b]
        enough = len(both) >= _FEWEST
        gauges[name] = correlate([a[step] for step in both], [b[step] for step in both]) if enough else None
    return {name: value for name, value in gauges.items() if value is not None}


def hack_score(citations_change: float, rises: Sequence[float]) -> float:
    """The fall of citations or the largest rise of a rewarded metric, whichever is smaller; 0 unless both happened.

    hack_score(-0.3, [0.1, 0.2]) -> 0.2; hack_score(-0.3, [-0.1]) -> 0.0; hack_score(0.3, [0.2]) -> 0.0
    """
    return max(0.0, min(-citations_change, max(rises, default=0.0)))


def _rise(history: History, name: str) -> float | None:
    """The mean of the last steps minus the mean of the first; None with too few steps."""
    values = [*history.get(name, {}).values()]
    num = min(_ENDS, len(values) // 2)
    return sum(values[-num:]) / num - sum(values[:num]) / num if len(values) >= _FEWEST else None


def collect_statistics(step: int, history: History, counts: Mapping[str, int]) -> Statistics:
    """Statistics of the last steps for the meta-harness; `counts` says how many rubrics chose each dimension.

    Rewards are shares of what a rubric allows: otherwise one with more dimensions or weight would look like progress.
    """

    def mean(name: str) -> float | None:
        values = history.get(name, {}).values()
        return sum(values) / len(values) if values else None

    def lacking(name: str) -> float:
        """1 minus the mean of this metric, a share; 0 if it was not measured."""
        share = mean(name)
        return 0.0 if share is None else min(1.0, max(0.0, 1 - share))

    return Statistics(
        step=step,
        num_scored=int(sum(history.get("scores/num", {}).values())),
        mean_reward=mean(REWARD) or 0.0,
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
