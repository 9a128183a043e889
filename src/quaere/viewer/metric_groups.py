"""Metrics of a run grouped into charts, in the order in which the papers discuss them.

group_metrics(["passes/1", "passes/0", "reward/mean"]) ->
[ChartGroup("Reward", [Chart("Mean reward", ["reward/mean"])]), ChartGroup("Difficulty of the questions", [...])]

The lines of one chart share an axis, so a chart holds metrics of one unit only. A metric that no pattern names gets a
chart of its own at the end: nothing that was logged is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

MAX_METRICS = 300  # metrics of one page: a run of somebody else's may have any number
MAX_LINES = 8  # lines of one chart that can still be told apart
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
"""Metrics that stand for a run in a list, the most telling first."""


class Chart(Struct, frozen=True):
    """A chart's title and the names of its metrics.

    Chart("Loss", ["loss/kl", "loss/policy"])
    """

    title: str
    names: list[str]


class ChartGroup(Struct, frozen=True):
    """Charts under one heading.

    ChartGroup("Difficulty", [Chart("Mean pass rate", ["passes/mean"])])
    """

    title: str
    charts: list[Chart]


# Heading, then chart title and patterns. The first pattern that fits has the metric.
_GROUPS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Reward",
        (
            ("Mean reward", "reward/mean reward/share"),
            ("Mean reward by searches needed", "reward/mean_n*"),
            ("Reward components", "reward/*"),
        ),
    ),
    (
        "Answers",
        (
            ("Exact match", "answer/exact_match validation/exact_match"),
            ("Exact match by searches needed", "answer/exact_match_n* validation/exact_match_n*"),
            ("Other scores of answers", "answer/* validation/f1 validation/unanswered"),
        ),
    ),
    (
        "Difficulty of the questions",
        (("Mean pass rate", "passes/mean"), ("Questions by number of right attempts", "passes/*")),
    ),
    (
        "Format",
        (
            ("Format reward and its parts", "format/*"),
            ("Readable turns and valid questions", "*/call_validity */valid */readable report/finished"),
            ("Answered, unanswered, cut off", "*/answered */unanswered */truncated"),
        ),
    ),
    (
        "Searches",
        (
            ("Searches per episode", "*/searches"),
            ("Searches by need", "*/searches_n[0-9]* */searches_h[0-9]*"),
            ("Searches needed", "*/searches_needed */search_gap"),
            ("Searches kept since the phase began", "*/searches_kept"),
            ("Turns per episode", "*/turns"),
            ("Failed searches", "*/search_failures */spoiled"),
        ),
    ),
    (
        "Evidence",
        (
            ("Probability of the answer with and without evidence", "evidence/chance_* evidence/value"),
            ("Evidence of questions and answers", "evidence/present evidence/verbatim evidence/refused"),
            ("Tokens of evidence", "evidence/tokens"),
        ),
    ),
    (
        "Self-evaluation",
        (("Scores of searches", "evaluate/mean_score evaluate/score"), ("Other measures of scores", "evaluate/*")),
    ),
    (
        "Reports",
        (
            ("Consistency and diversity", "consistency/* diversity/*"),
            ("Citations", "check/*"),
            ("Scores", "scores/mean scores/spread scores/ceiling score/*"),
            ("Gauges of reward hacking", "gauge/*"),
            ("Rubrics", "rubrics/* rubric/*"),
        ),
    ),
    (
        "Policy",
        (
            ("Entropy, nats per token", "policy/entropy"),
            ("Loss", "loss/*"),
            ("Gradient norm", "gradient/norm"),
            ("Learning rate", "learner/rate"),
            ("Preference pairs", "dpo/*"),
        ),
    ),
    (
        "Advantages",
        (
            ("Spread and size of advantages", "advantage/std advantage/max_abs"),
            ("Shares of samples", "advantage/* groups/informative_share"),
            ("Informative groups", "groups/informative groups/per_minute"),
        ),
    ),
    (
        "Sampler and learner",
        (("Difference of log-probs, nats", "mismatch/*"), ("Share of the update that is sampled", "sampler/*")),
    ),
    (
        "Curriculum",
        (("Candidates by outcome", "curriculum/*"), ("Questions in use", "questions/*"), ("Selector", "selector/*")),
    ),
    (
        "Lengths",
        (
            ("Model tokens per episode", "*/model_tokens"),
            ("Tokens per episode", "*/tokens"),
            ("Duplicates", "*/duplicates"),
        ),
    ),
    (
        "Cost",
        (
            ("Seconds per step", "step/seconds"),
            ("Tokens per second", "*/tokens_per_s"),
            ("Seconds of search", "*/search_s"),
            ("Memory, GiB", "memory/*"),
            ("Episodes", "*/episodes cost/*"),
        ),
    ),
)


def group_metrics(names: Sequence[str]) -> list[ChartGroup]:
    """The charts for these metrics; groups and charts without a metric are left out."""
    left = sorted((name for name in names if name not in PLACES), key=_natural)
    groups = []
    for heading, rows in _GROUPS:
        charts: list[Chart] = []
        for title, patterns in rows:
            held = [name for name in left if any(fnmatchcase(name, pattern) for pattern in patterns.split())]
            taken = set(held)
            left = [name for name in left if name not in taken]
            charts += [Chart(title, held[at : at + MAX_LINES]) for at in range(0, len(held), MAX_LINES)]
        if charts:
            groups.append(ChartGroup(heading, charts))
    return [*groups, ChartGroup("Other", [Chart(name, [name]) for name in left])] if left else groups


def bound_groups(groups: Sequence[ChartGroup], most: int = MAX_METRICS) -> tuple[list[ChartGroup], int]:
    """The groups up to this many metrics, and the number of metrics that are left out.

    bound_groups([ChartGroup("Other", [Chart("a", ["a"]), Chart("b", ["b"])])], 1) ->
    ([ChartGroup("Other", [Chart("a", ["a"])])], 1)
    """
    kept, num_left_out = [], 0
    for group in groups:
        charts = []
        for chart in group.charts:
            names = chart.names[:most]
            most -= len(names)
            num_left_out += len(chart.names) - len(names)
            charts += [Chart(chart.title, names)] if names else []
        kept += [ChartGroup(group.title, charts)] if charts else []
    return kept, num_left_out


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts `passes/2` before `passes/10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,9})", name)]
