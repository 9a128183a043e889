"""Charts: metrics of a run grouped into them, and their geometry: series of values in, coordinates out, as SVG.

plot([Series("reward/mean", [1, 2], [0.2, 0.4])], first_step=1, last_step=2).lines[0].path == "M44 130L412 8"

The page's content security policy forbids style attributes, so everything is an attribute of SVG or a class.

group_metrics(["passes/1", "passes/0", "reward/mean"]) ->
{"Reward": [("Mean reward", ["reward/mean"])], "Difficulty of the questions": [...]}

The charts have the order in which the papers discuss their metrics. The lines of one chart share an axis, so a chart
holds metrics of one unit only. A metric that no pattern names gets a chart of its own at the end: nothing that was
logged is hidden.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

from msgspec import Struct

from quaere.api.run import Run
from quaere.runs.phases import PhaseSummary
from quaere.runs.rows import Event, Metric

WIDTH, HEIGHT = 420, 150
LEFT, RIGHT, TOP, BOTTOM = 48, 8, 8, 20  # margins: labels of the vertical axis on the left, steps below
MAX_POINTS = 400  # of a line; more cannot be seen
_NUM_TICKS = 4
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


class Series(Struct, frozen=True):
    """The values of a metric by step; NaN where a step has none that is finite.

    Series("reward/mean", steps=[1, 2], values=[0.2, 0.4])
    """

    name: str
    steps: list[int]
    values: list[float]


class Tick(Struct, frozen=True):
    """A labelled mark on an axis; `at` is its SVG coordinate along the axis.

    Tick(at=98.0, label="0.2")
    """

    at: float
    label: str


class Line(Struct, frozen=True):
    """A series as the `d` of an SVG path. `points` are its steps and values for the script: "1:0.2 2:0.4"."""

    name: str
    path: str
    points: str
    last: float
    dots: list[tuple[float, float]] = []


class Band(Struct, frozen=True):
    """A coloured rectangle behind the curves for a phase of the run, in SVG coordinates.

    Band(x=44.0, width=120.0, label="iteration 0: proposer, steps 1 to 50")
    """

    x: float
    width: float
    label: str


class Plot(Struct, frozen=True):
    """A chart in SVG coordinates, as the template writes it; `marks` are alarms, `label` is the text alternative."""

    lines: list[Line]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    bands: list[Band]
    marks: list[Tick]
    label: str


def plot(
    series: Sequence[Series],
    *,
    first_step: int,
    last_step: int,
    phases: Sequence[PhaseSummary] = (),
    alarms: Sequence[Event] = (),
) -> Plot:
    """Lay out the chart of some series. All charts of a page get the same range of steps, so that they share a cursor.

    Lines are interrupted between phases: the rewards of a proposer and of a solver are not comparable.
    """
    shown = [thin(one) for one in series]
    finite = [value for one in shown for value in one.values if is_drawn(value)]
    ticks = nice_ticks(min(finite, default=0.0), max(finite, default=1.0))
    low, high = min([*finite, ticks[0]]), max([*finite, ticks[-1]])

    def y_of(value: float) -> float:
        return round(HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - BOTTOM - TOP), 1)

    lines, starts = [], [phase.first_step for phase in phases]
    for one in shown:
        places: list[tuple[float, float] | None] = []
        numbers = [bisect_right(starts, step) for step in one.steps]
        for at, (step, value) in enumerate(zip(one.steps, one.values, strict=True)):
            if at and numbers[at] != numbers[at - 1]:
                places.append(None)
            places.append((x_of(step, first_step, last_step), y_of(value)) if is_drawn(value) else None)
        points = " ".join(f"{step}:{short(value)}" for step, value in zip(one.steps, one.values, strict=True))
        last = next((value for value in reversed(one.values) if is_drawn(value)), math.nan)
        lines.append(Line(one.name, _path(places), points, last, _lone(places)))
    return Plot(
        lines=lines,
        x_ticks=[Tick(x_of(step, first_step, last_step), str(step)) for step in step_ticks(first_step, last_step)],
        y_ticks=[Tick(y_of(value), short(value)) for value in ticks],
        bands=[place_band(phase, first_step, last_step) for phase in phases],
        marks=_place_marks(alarms, first_step, last_step),
        label="; ".join(_describe(one) for one in series),
    )


def sparkline(series: Series, width: int = 120, height: int = 28) -> str:
    """A series as the `d` of a small path without axes; "" for fewer than two values."""
    kept = _drawn(series)
    if len(kept) < 2:
        return ""
    thinned = thin(Series("", [step for step, _ in kept], [value for _, value in kept]), width)
    low, first, last = min(thinned.values), thinned.steps[0], thinned.steps[-1]
    range_ = (max(thinned.values) - low) or 1.0
    xs = [round(1 + (step - first) / (last - first) * (width - 2), 1) for step in thinned.steps]
    ys = [round(height - 2 - (value - low) / range_ * (height - 4), 1) for value in thinned.values]
    return _path([*zip(xs, ys, strict=True)])


def x_of(step: int, first_step: int, last_step: int) -> float:
    """The x coordinate of a step; the middle of the chart if there is only one step."""
    if first_step == last_step:
        return round((LEFT + WIDTH - RIGHT) / 2, 1)
    return round(LEFT + (step - first_step) / (last_step - first_step) * (WIDTH - LEFT - RIGHT), 1)


def place_band(phase: PhaseSummary, first_step: int, last_step: int) -> Band:
    """The rectangle of a phase, widened by half a step on either side and clipped to the axes."""
    begin, end = float(LEFT), float(WIDTH - RIGHT)
    if first_step < last_step:
        half = (WIDTH - LEFT - RIGHT) / (last_step - first_step) / 2
        begin = max(begin, x_of(phase.first_step, first_step, last_step) - half)
        end = min(end, x_of(phase.last_step, first_step, last_step) + half)
    is_single = phase.first_step == phase.last_step
    steps = f"step {phase.first_step}" if is_single else f"steps {phase.first_step} to {phase.last_step}"
    where = f"iteration {phase.iteration}: " if phase.iteration is not None else ""
    return Band(round(begin, 1), round(end - begin, 1), f"{where}{phase.phase or 'training'}, {steps}")


def is_drawn(value: float) -> bool:
    """False for NaN, the infinities, and numbers so large that their differences are infinite."""
    return abs(value) < 1e300


def thin(series: Series, most: int = MAX_POINTS) -> Series:
    """Downsample a series to about `most` values: the minimum and maximum of each section, so that no peak is lost."""
    count = len(series.values)
    if count <= most:
        return series
    kept: list[int] = []
    for begin, end in pairwise(count * part // (most // 2) for part in range(most // 2 + 1)):
        stretch = [at for at in range(begin, end) if is_drawn(series.values[at])] or [begin]
        kept += sorted({min(stretch, key=series.values.__getitem__), max(stretch, key=series.values.__getitem__)})
    return Series(series.name, [series.steps[at] for at in kept], [series.values[at] for at in kept])


def nice_ticks(low: float, high: float) -> list[float]:
    """Evenly spaced round numbers that enclose a range, for the labels of an axis.

    nice_ticks(0.12, 0.43) == [0.1, 0.2, 0.3, 0.4, 0.5]
    """
    if not high > low:
        pad = abs(low) / 2 or 0.5
        low, high = low - pad, high + pad
    raw = (high - low) / _NUM_TICKS
    if raw < 1e-300:  # values that differ by less than a float can divide
        return [low, high]
    power = 10.0 ** math.floor(math.log10(raw))
    size = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / size + 1e-9), math.ceil(high / size - 1e-9)
    return [number * size for number in range(first, last + 1)]


def step_ticks(first_step: int, last_step: int) -> list[int]:
    """The first step of a range and some round numbers after it, for the labels of the horizontal axis.

    step_ticks(1, 48) == [1, 20, 40]
    """
    ticks = {round(value) for value in nice_ticks(first_step, last_step)} if last_step > first_step else ()
    return [first_step, *sorted(step for step in ticks if first_step < step <= last_step)]


def short(value: float) -> str:
    """A number in at most seven characters or so: "0.25", "1.2e-06", "12,000"."""
    if not math.isfinite(value):
        return "none"
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.4g}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.2g}"


# ------------------------------------------------------------------------------------------------------------- details


def _place_marks(alarms: Sequence[Event], first_step: int, last_step: int) -> list[Tick]:
    """One tick for each step with alarms, labelled with their kinds; steps outside the range are left out."""
    kinds: dict[int, dict[str, None]] = {}
    for event in alarms:
        kinds.setdefault(event.step, {})[event.kind] = None
    shown = {step: ", ".join(of) for step, of in kinds.items() if first_step <= step <= last_step}
    return [Tick(x_of(step, first_step, last_step), f"step {step}: {said}") for step, said in shown.items()]


def _path(places: Sequence[tuple[float, float] | None]) -> str:
    """The `d` attribute of an SVG path through the points; None is a gap in the line."""
    return "".join(
        f"{'L' if before else 'M'}{place[0]:g} {place[1]:g}"
        for before, place in pairwise([None, *places])
        if place is not None
    )


def _lone(places: Sequence[tuple[float, float] | None]) -> list[tuple[float, float]]:
    """Points with a gap on both sides, which a path does not show: they are drawn as dots."""
    framed = [None, *places, None]
    return [
        place
        for before, place, after in zip(framed, framed[1:], framed[2:], strict=False)
        if place is not None and before is None and after is None
    ]


def _drawn(series: Series) -> list[tuple[int, float]]:
    return [pair for pair in zip(series.steps, series.values, strict=True) if is_drawn(pair[1])]


def _describe(series: Series) -> str:
    known = [f"{short(value)} at step {step}" for step, value in _drawn(series)]
    return f"{series.name}: {', '.join(dict.fromkeys((known[0], known[-1]))) if known else 'no value'}"


# ------------------------------------------------------------------------------------------------- metrics by chart


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


def group_metrics(names: Sequence[str]) -> dict[str, list[tuple[str, list[str]]]]:
    """The charts for these metrics by heading, each a title with its metrics; no chart or heading is empty."""
    left = sorted((name for name in names if name not in PLACES), key=_natural)
    groups: dict[str, list[tuple[str, list[str]]]] = {}
    for heading, title, patterns in _CHARTS:
        held = [name for name in left if any(fnmatchcase(name, pattern) for pattern in patterns.split())]
        if held:
            taken = set(held)
            left = [name for name in left if name not in taken]
            charts = [(title, held[at : at + MAX_LINES]) for at in range(0, len(held), MAX_LINES)]
            groups.setdefault(heading, []).extend(charts)
    if left:
        groups["Other"] = [(name, [name]) for name in left]
    return groups


def draw_sections(
    names: Sequence[str], draw: Callable[[str, list[str]], list[ChartData]], most: int = MAX_METRICS
) -> tuple[list[ChartSection], int]:
    """Group the metrics into charts and call `draw` on each; at most `most` metrics are drawn.

    Returns the drawn charts by section, and the number of metrics left out.
    """
    sections, num_left_out = [], 0
    for heading, members in group_metrics(names).items():
        charts = []
        for title, held in members:
            shown = held[:most]
            most -= len(shown)
            num_left_out += len(held) - len(shown)
            charts += draw(title, shown) if shown else []
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
