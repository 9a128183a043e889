"""Metrics of a run grouped into charts, in the order in which the papers discuss them.

group_metrics(["passes/1", "passes/0", "reward/mean"]) ->
{"Reward": [Chart("Mean reward", ["reward/mean"])], "Difficulty of the questions": [...]}

The lines of one chart share an axis, so a chart holds metrics of one unit only. A metric that no pattern names gets a
chart of its own at the end: nothing that was logged is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from quaere.api.run import Run
from quaere.runs.rows import Metric
from quaere.viewer.plot import Series

MAX_METRICS = 300  # metrics of one page: a run of somebody else's may have any number
MAX_LINES = 8  # lines of one chart that can still be distinguished
PLACES = ("run/iteration", "run/phase")  # where a step is in the run: drawn as bands, not as curves
MAIN = (
    "validation/exact_match",
    "answer/exact_match",
    "reward/mean",
    "passes/mean",
    "report/finished",
    "consistency/mean",
    "policy/entropy",
)
"""Metrics that summarise a run in a list, the most informative first."""


class Chart(Struct, frozen=True):
    """A chart's title and the names of its metrics.

    Chart("Loss", ["loss/kl", "loss/policy"])
    """

    title: str
    names: list[str]


class ChartData(Struct, frozen=True):
    """A chart with its values.

    ChartData("Mean reward", [Series("reward/mean", [1, 2], [0.2, 0.4])])
    """

    title: str
    series: list[Series]


class ChartSection(Struct, frozen=True):
    """Charts under one heading."""

    title: str
    charts: list[ChartData]


# Heading, chart title and patterns. The first pattern that fits has the metric.
_CHARTS = (
    ("Reward", "Mean reward", "reward/mean reward/share"),
    ("Reward", "Mean reward by searches needed", "reward/mean_n*"),
    ("Reward", "Reward components", "reward/*"),
    ("Answers", "Exact match", "answer/exact_match validation/exact_match"),
    ("Answers", "Exact match by searches needed", "answer/exact_match_n* validation/exact_match_n*"),
    ("Answers", "Other scores of answers", "answer/* validation/f1 validation/unanswered"),
    ("Difficulty of the questions", "Mean pass rate", "passes/mean"),
    ("Difficulty of the questions", "Questions by number of right attempts", "passes/*"),
    ("Format", "Format reward and its parts", "format/*"),
    ("Format", "Readable turns and valid questions", "*/call_validity */valid */readable report/finished"),
    ("Format", "Answered, unanswered, cut off", "*/answered */unanswered */truncated"),
    ("Searches", "Searches per episode", "*/searches"),
    ("Searches", "Searches by need", "*/searches_n[0-9]* */searches_h[0-9]*"),
    ("Searches", "Searches needed", "*/searches_needed */search_gap"),
    ("Searches", "Searches kept since the phase began", "*/searches_kept"),
    ("Searches", "Turns per episode", "*/turns"),
    ("Searches", "Failed searches", "*/search_failures */spoiled"),
    ("Evidence", "Probability of the answer with and without evidence", "evidence/chance_* evidence/value"),
    ("Evidence", "Evidence of questions and answers", "evidence/present evidence/verbatim evidence/refused"),
    ("Evidence", "Tokens of evidence", "evidence/tokens"),
    ("Self-evaluation", "Scores of searches", "evaluate/mean_score evaluate/score"),
    ("Self-evaluation", "Other measures of scores", "evaluate/*"),
    ("Reports", "Consistency and diversity", "consistency/* diversity/*"),
    ("Reports", "Citations", "check/*"),
    ("Reports", "Scores", "scores/mean scores/spread scores/ceiling score/*"),
    ("Reports", "Gauges of reward hacking", "gauge/*"),
    ("Reports", "Rubrics", "rubrics/* rubric/*"),
    ("Policy", "Entropy, nats per token", "policy/entropy"),
    ("Policy", "Loss", "loss/*"),
    ("Policy", "Gradient norm", "gradient/norm"),
    ("Policy", "Learning rate", "learner/rate"),
    ("Policy", "Preference pairs", "dpo/*"),
    ("Advantages", "Spread and size of advantages", "advantage/std advantage/max_abs"),
    ("Advantages", "Shares of samples", "advantage/* groups/informative_share"),
    ("Advantages", "Informative groups", "groups/informative groups/per_minute"),
    ("Sampler and learner", "Difference of log-probs, nats", "mismatch/*"),
    ("Sampler and learner", "Share of the update that is sampled", "sampler/*"),
    ("Curriculum", "Candidates by outcome", "curriculum/*"),
    ("Curriculum", "Questions in use", "questions/*"),
    ("Curriculum", "Selector", "selector/*"),
    ("Lengths", "Model tokens per episode", "*/model_tokens"),
    ("Lengths", "Tokens per episode", "*/tokens"),
    ("Lengths", "Duplicates", "*/duplicates"),
    ("Cost", "Seconds per step", "step/seconds"),
    ("Cost", "Tokens per second", "*/tokens_per_s"),
    ("Cost", "Seconds of search", "*/search_s"),
    ("Cost", "Memory, GiB", "memory/*"),
    ("Cost", "Episodes", "*/episodes cost/*"),
)


def group_metrics(names: Sequence[str]) -> dict[str, list[Chart]]:
    """The charts for these metrics by heading; charts and headings without a metric are left out."""
    left = sorted((name for name in names if name not in PLACES), key=_natural)
    groups: dict[str, list[Chart]] = {}
    for heading, title, patterns in _CHARTS:
        held = [name for name in left if any(fnmatchcase(name, pattern) for pattern in patterns.split())]
        if held:
            taken = set(held)
            left = [name for name in left if name not in taken]
            charts = [Chart(title, held[at : at + MAX_LINES]) for at in range(0, len(held), MAX_LINES)]
            groups.setdefault(heading, []).extend(charts)
    if left:
        groups["Other"] = [Chart(name, [name]) for name in left]
    return groups


def draw_sections(
    names: Sequence[str], draw: Callable[[Chart], list[ChartData]], most: int = MAX_METRICS
) -> tuple[list[ChartSection], int]:
    """Group the metrics into charts and call `draw` on each; at most `most` metrics are drawn.

    Returns the drawn charts by section, and the number of metrics left out.
    """
    sections, num_left_out = [], 0
    for heading, members in group_metrics(names).items():
        charts = []
        for chart in members:
            shown = chart.names[:most]
            most -= len(shown)
            num_left_out += len(chart.names) - len(shown)
            charts += draw(Chart(chart.title, shown)) if shown else []
        sections += [ChartSection(heading, charts)] if charts else []
    return sections, num_left_out


def read_lines(run: Run, name: str = "") -> dict[str, Series]:
    """Every metric of a run as a line, by metric; the line's label is `name`, or the metric if `name` is ""."""
    return {metric: make_line(name or metric, values) for metric, values in run.all_metrics().items()}


def make_line(name: str, values: Sequence[Metric]) -> Series:
    """The logged values of a metric as a `Series` with this name."""
    return Series(name, [one.step for one in values], [one.value for one in values])


def find_steps(lines: Iterable[Series]) -> tuple[int, int]:
    """The first and the last step of some lines; 0 and 0 for none."""
    ends = [step for line in lines for step in (line.steps[0], line.steps[-1])]
    return min(ends, default=0), max(ends, default=0)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts `passes/2` before `passes/10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,9})", name)]
