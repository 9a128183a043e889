"""The page that compares runs: settings that differ, and curves of the same metric over one another.

compare_runs(folder, CompareQuery(run=["a", "b"])).settings ->
[SettingRow("solver.learner.learning_rate", ["1e-06", "2e-06"])]
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from quaere.api.run import Run
from quaere.errors import BadInput
from quaere.runs.list import describe_state
from quaere.viewer.metric_groups import bound_groups, group_metrics
from quaere.viewer.plot import Series
from quaere.viewer.run_folder import RunFolder
from quaere.viewer.run_overview import ChartData, ChartSection

MAX_RUNS = 10
_ABSENT = "–"


class CompareQuery(Struct, frozen=True):
    """The names of the runs to compare.

    CompareQuery(run=["first", "second"])
    """

    run: list[str] = []


class SettingRow(Struct, frozen=True):
    """A setting and its value in each run; "–" where a run has none.

    SettingRow("solver.batch", ["64", "32"])
    """

    name: str
    values: list[str]


class Compared(Struct, frozen=True):
    """A run of a comparison.

    Compared(name="first", said="done after step 50", created="2025-03-01T10:15:00+00:00", last_step=50)
    """

    name: str
    said: str
    created: str
    first_step: int
    last_step: int


class ComparePage(Struct, frozen=True):
    """Several runs: what was set differently, and a chart per metric with a line per run."""

    runs: list[Compared]
    settings: list[SettingRow]
    sections: list[ChartSection]
    first_step: int
    last_step: int
    num_left_out: int = 0  # metrics beyond those of `sections`


def compare_runs(folder: RunFolder, query: CompareQuery) -> ComparePage:
    """The comparison of two to ten runs."""
    names = list(dict.fromkeys(query.run))
    if not 2 <= len(names) <= MAX_RUNS:
        raise BadInput(
            f"{len(names)} runs to compare: 2 to {MAX_RUNS} are possible", hint="mark them in the list of runs"
        )
    runs, settings, metrics = [], [], []
    for name in names:
        with folder.open(name) as run:
            found = {
                each: Series(name, [metric.step for metric in values], [metric.value for metric in values])
                for each, values in run.all_metrics().items()
            }
            steps = [step for series in found.values() for step in (series.steps[0], series.steps[-1])]
            said = describe_state(run.state(), max(steps, default=0))
            runs.append(Compared(name, said, run.info.created, min(steps, default=0), max(steps, default=0)))
            settings.append(flatten(_read_settings(run)))
            metrics.append(found)
    sections, num_left_out = _sections(names, metrics)
    return ComparePage(
        runs=runs,
        settings=differing(settings),
        sections=sections,
        num_left_out=num_left_out,
        first_step=min((run.first_step for run in runs if run.last_step), default=0),
        last_step=max(run.last_step for run in runs),
    )


def flatten(value: object, name: str = "") -> dict[str, str]:
    """Nested settings by their dotted names.

    flatten({"solver": {"batch": 64}, "seed": 0}) == {"solver.batch": "64", "seed": "0"}
    """
    if isinstance(value, dict) and value:
        return {
            key: text
            for part, inner in value.items()
            for key, text in flatten(inner, f"{name}.{part}" if name else str(part)).items()
        }
    return {name: str(value)}


def differing(settings: list[dict[str, str]]) -> list[SettingRow]:
    """The settings that are not the same in all runs, in the order in which they occur first."""
    names = dict.fromkeys(name for each in settings for name in each)
    rows = [SettingRow(name, [each.get(name, _ABSENT) for each in settings]) for name in names]
    return [row for row in rows if len(set(row.values)) > 1]


def _read_settings(run: Run) -> dict[str, Any]:
    try:
        return {"recipe": run.info.settings.get("recipe", _ABSENT), **run.config}
    except BadInput:  # a run that was not trained has no config
        return dict(run.info.settings)


def _sections(runs: list[str], metrics: list[dict[str, Series]]) -> tuple[list[ChartSection], int]:
    """A chart per metric that at least one run has, and how many metrics are left out.

    A run without a metric has an empty line, so that colours stay.
    """
    names = sorted({name for each in metrics for name in each})
    groups, num_left_out = bound_groups(group_metrics(names))
    sections = [
        ChartSection(
            group.title,
            [
                ChartData(name, [each.get(name, Series(run, [], [])) for run, each in zip(runs, metrics, strict=True)])
                for chart in group.charts
                for name in chart.names
            ],
        )
        for group in groups
    ]
    return sections, num_left_out
