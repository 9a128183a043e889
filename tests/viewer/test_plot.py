"""Coordinates of charts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.recipes.hardening import GATES
from quaere.runs import Event
from quaere.runs.summaries import PhaseSummary
from quaere.viewer.metric_charts import MAX_LINES, ChartData, group_metrics
from quaere.viewer.plot import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MAX_POINTS,
    RIGHT,
    TOP,
    WIDTH,
    Series,
    nice_ticks,
    plot,
    short,
    sparkline,
    step_ticks,
    thin,
)

VALUES = st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=30)


def points(path):
    """The coordinates of a path of lines."""
    return [tuple(map(float, part.split())) for part in path.replace("L", "M").split("M") if part]


def test_the_ends_of_a_line_are_the_corners_of_the_axes():
    (line,) = plot([Series("r", [1, 2, 3], [0.0, 0.5, 1.0])], first_step=1, last_step=3).lines
    assert points(line.path) == [
        (LEFT, HEIGHT - BOTTOM),
        ((LEFT + WIDTH - RIGHT) / 2, (HEIGHT - BOTTOM + TOP) / 2),
        (WIDTH - RIGHT, TOP),
    ]
    assert line.points == "1:0 2:0.5 3:1" and line.last == 1.0


def test_a_line_has_a_gap_where_there_is_no_value_and_a_dot_for_a_lone_one():
    series = Series("r", [1, 2, 3, 4, 5], [0.0, 1.0, math.nan, 1.0, math.nan])
    (line,) = plot([series], first_step=1, last_step=5).lines
    assert line.path.count("M") == 2 and line.path.count("L") == 1
    assert len(line.dots) == 1


def test_a_chart_is_described_by_its_first_and_last_value():
    lines = {
        "rising": [math.nan, 0.25, 1.0, math.inf],
        "one": [math.nan, 3.0, math.nan, math.nan],
        "none": [math.nan] * 4,
    }
    series = [Series(name, [1, 2, 3, 4], values) for name, values in lines.items()]
    said = "rising: 0.25 at step 2, 1 at step 3; one: 3 at step 2; none: no value"
    assert plot(series, first_step=1, last_step=4).label == said


def test_a_line_ends_with_its_phase():
    phases = [PhaseSummary(None, "proposer", 1, 2, {}), PhaseSummary(None, "solver", 3, 4, {})]
    drawn = plot([Series("r", [1, 2, 3, 4], [1.0, 1.0, 0.0, 0.0])], first_step=1, last_step=4, phases=phases)
    assert drawn.lines[0].path.count("M") == 2
    first, second = drawn.bands
    assert first.x == LEFT and first.x + first.width == pytest.approx(second.x, abs=0.2)
    assert second.x + second.width == pytest.approx(WIDTH - RIGHT, abs=0.2)


def test_alarms_are_marked_within_the_steps():
    alarms = [Event(1, "entropy", ""), Event(9, "later", "")]
    drawn = plot([Series("r", [1, 2], [0.0, 1.0])], first_step=1, last_step=2, alarms=alarms)
    assert [(mark.at, mark.label) for mark in drawn.marks] == [(LEFT, "step 1: entropy")]


@given(values=VALUES)
def test_everything_is_drawn_within_the_axes(values):
    steps = list(range(3, 3 + len(values)))
    drawn = plot([Series("r", steps, values)], first_step=steps[0], last_step=steps[-1])
    for x, y in [*points(drawn.lines[0].path), *drawn.lines[0].dots]:
        assert LEFT <= x <= WIDTH - RIGHT and TOP <= y <= HEIGHT - BOTTOM
    assert all(TOP <= tick.at <= HEIGHT - BOTTOM for tick in drawn.y_ticks)
    assert all(LEFT <= tick.at <= WIDTH - RIGHT for tick in drawn.x_ticks)


@given(values=VALUES)
def test_a_sparkline_stays_in_its_box(values):
    path = sparkline(Series("r", list(range(len(values))), values))
    assert all(0 <= x <= 120 and 0 <= y <= 28 for x, y in points(path))


def test_the_ends_of_a_sparkline_are_the_corners_of_its_box():
    assert points(sparkline(Series("r", [3, 5, 7], [0.0, 4.0, 2.0]), width=100, height=20)) == [
        (1, 18),
        (50, 2),
        (99, 10),
    ]
    assert points(sparkline(Series("r", [3, 7], [2.0, 2.0]), width=100, height=20)) == [(1, 18), (99, 18)]


def test_thinning_keeps_the_peaks():
    values = [0.0] * 5000
    values[1234], values[4321] = 9.0, -9.0
    thinned = thin(Series("r", list(range(5000)), values))
    assert len(thinned.values) <= MAX_POINTS
    assert (1234, 9.0) in zip(thinned.steps, thinned.values, strict=True)
    assert (4321, -9.0) in zip(thinned.steps, thinned.values, strict=True)
    assert thinned.steps == sorted(thinned.steps)
    level = Series("r", list(range(MAX_POINTS)), [1.0] * MAX_POINTS)
    assert thin(level) == level  # as many as there may be


def test_ticks_are_round_and_enclose():
    assert nice_ticks(0.12, 0.43) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert nice_ticks(5.0, 5.0) == [2, 4, 6, 8]  # half as much on either side: 2.5 to 7.5
    assert nice_ticks(0.0, 0.0) == [0, 0.25, 0.5, 0.75, 1]
    assert step_ticks(1, 48) == [1, 20, 40] and step_ticks(7, 7) == [7]


@pytest.mark.parametrize(
    ("value", "text"), [(0.25, "0.25"), (1.23e-6, "1.2e-06"), (12000.0, "12,000"), (0.0, "0"), (math.nan, "none")]
)
def test_numbers_are_short(value, text):
    assert short(value) == text


# ------------------------------------------------------------------------------------------------------ groups of them


def test_metrics_are_grouped_as_the_papers_do():
    names = ["passes/10", "passes/2", "reward/mean", "odd/thing", "run/phase", "policy/entropy"]
    groups = group_metrics(names)
    assert list(groups) == ["Reward", "Difficulty of the questions", "Policy", "Other"]
    assert groups["Difficulty of the questions"] == [
        ("Questions by number of right attempts", ["passes/2", "passes/10"])
    ]
    assert groups["Other"] == [("odd/thing", ["odd/thing"])]


def test_gates_are_one_chart_in_their_order():
    names = [f"gate/{name}" for name in (*GATES, "yield")]
    groups = group_metrics([*sorted(names), "facts/sometimes", "guard/new", "guard/verbatim"])
    assert groups == {
        "Difficulty of the questions": [("Gate", names), ("Facts answered sometimes", ["facts/sometimes"])],
        "Evidence": [("Refused by each guard", ["guard/new", "guard/verbatim"])],
    }
    assert all(ChartData(title, []).note for charts in groups.values() for title, _ in charts)


@given(names=st.lists(st.text(max_size=12), unique=True, max_size=40))
def test_every_metric_is_in_one_chart(names):
    shown = [name for charts in group_metrics(names).values() for _, held in charts for name in held]
    assert sorted(shown) == sorted(set(names) - {"run/iteration", "run/phase"})


def test_a_single_need_is_no_chart_of_its_own():
    one, two = (Series(f"answer/exact_match_n{number}", [1, 2], [0.1, 0.2]) for number in (1, 2))
    assert not ChartData("Exact match by searches needed", [one]).has_course
    assert ChartData("Exact match by searches needed", [one, two]).has_course
    assert ChartData("Exact match", [one]).has_course


def test_no_chart_has_more_lines_than_can_be_told_apart():
    charts = [chart for of in group_metrics([f"passes/{number}" for number in range(24)]).values() for chart in of]
    assert [len(held) for _, held in charts] == [MAX_LINES, MAX_LINES, 4]


def test_the_axis_of_a_share_begins_at_0_and_few_values_are_dots():
    values = [Series("right", [1, 2], [0.5, 0.6])]
    share, other = (plot(values, first_step=1, last_step=2, is_share=is_share) for is_share in (True, False))
    assert (share.y_ticks[0].label, len(share.lines[0].dots)) == ("0", 2)
    assert (other.y_ticks[0].label, other.lines[0].dots) == ("0.5", [])


def test_a_chart_says_which_way_is_good_and_one_value_is_no_curve():
    groups = group_metrics(["reward/mean", "passes/3", "memory/gpu_gib", "gain/mean", "gain/positive"]).values()
    for title, names in (chart for charts in groups for chart in charts):
        assert ChartData(title, [Series(names[0], [1], [0.5])]).note.endswith(".")
    assert ChartData("odd/thing", []).note == ""
    assert not ChartData("r", [Series("r", [1, 2], [0.5, math.nan])]).has_course
    assert ChartData("r", [Series("r", [1, 2], [0.5, 0.5])]).has_course
