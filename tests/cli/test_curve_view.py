"""A metric drawn over the steps of a run."""

import math

from quaere.cli.run_view import draw_curve
from quaere.runs import Metric


def rows(text):
    return [line.partition("|")[2] for line in text.splitlines()[1:-1]]


def test_the_highest_value_fills_its_column_and_the_lowest_an_eighth():
    drawn = draw_curve("reward/mean", [Metric(3, 0.25), Metric(4, 0.75), Metric(5, 0.5)])
    title, *_, axis = drawn.splitlines()
    assert title == "reward/mean" and axis.split() == ["3", "5"]
    columns = ["".join(column) for column in zip(*(row.ljust(3) for row in rows(drawn)), strict=True)]
    assert columns[0] == " " * 5 + "▁" and columns[1] == "█" * 6
    assert columns[2].count("█") in (2, 3) and columns[2].startswith("  ")
    assert [line.partition("|")[0] for line in drawn.splitlines()[1:-1]] == [" 0.75 ", *[" " * 6] * 4, " 0.25 "]
    assert axis.index("3") == len(" 0.75 |")


def test_many_steps_are_means_in_columns_that_fit_a_terminal():
    drawn = draw_curve("loss", [Metric(step, float(step // 2)) for step in range(120)])
    assert drawn.splitlines()[0] == "loss, means of 2 steps"
    assert max(map(len, drawn.splitlines())) <= 80 and len(rows(drawn)[-1]) == 60


def test_values_that_are_not_finite_leave_a_gap():
    drawn = draw_curve("x", [Metric(1, 1.0), Metric(2, math.nan), Metric(3, 2.0)])
    assert all(row[1] == " " for row in rows(drawn)) and rows(drawn)[-1][0] == "▁"
    assert draw_curve("x", [Metric(1, math.inf)]) == "x: no finite value"


def test_equal_values_are_a_line():
    assert rows(draw_curve("x", [Metric(1, 0.5), Metric(2, 0.5)]))[-1] == "▁▁"
