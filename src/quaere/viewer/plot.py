"""The geometry of charts: series of values in, coordinates out, as SVG.

plot([Series("reward/mean", [1, 2], [0.2, 0.4])], first_step=1, last_step=2).lines[0].path == "M44 130L412 8"

The page's content security policy forbids style attributes, so everything is an attribute of SVG or a class.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from quaere.runs.rows import Event
from quaere.runs.summaries import PhaseSummary

WIDTH, HEIGHT = 330, 126
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 8, 20  # margins: labels of the vertical axis on the left, steps below
MAX_POINTS = 400  # points of a line; more could not be seen
_NUM_TICKS = 4
_FEW = 12  # values of a share that are drawn as dots


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
    is_share: bool = False,
) -> Plot:
    """Lay out the chart of some series. All charts of a page get the same range of steps, so that they share a cursor.

    The axis of shares begins at 0, so that a small change looks small; few values are drawn as dots, too.

    Lines are interrupted between phases: the rewards of a proposer and of a solver are not comparable.
    """
    shown = [thin(one) for one in series]
    finite = [value for one in shown for value in one.values if is_drawn(value)]
    ticks = nice_ticks(min([*finite, 0.0] if is_share else finite, default=0.0), max(finite, default=1.0))
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
        dots = [place for place in places if place] if is_share and len(places) <= _FEW else _lone(places)
        lines.append(Line(one.name, _path(places), points, last, dots))
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
        pad = abs(low) / 2
        low, high = (low - pad, high + pad) if pad else (0.0, 1.0)  # a share of 0 has no room below
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
    known = _drawn(series)
    ends = dict.fromkeys(f"{short(value)} at step {step}" for step, value in (known[:1] + known[-1:]))
    return f"{series.name}: {', '.join(ends) or 'no value'}"
