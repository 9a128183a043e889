"""Durations in words and sparklines."""

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.api.printing import format_duration
from quaere.cli.progress_view import draw_sparkline


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (4.24, "4.2 s"),
        (9.96, "10 s"),
        (41.4, "41 s"),
        (119.4, "119 s"),
        (119.6, "2 min"),
        (35 * 60, "35 min"),
        (3599, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (86399, "1 d 00 h"),
        (3 * 86400 + 4 * 3600, "3 d 04 h"),
    ],
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text


@given(st.floats(0, 1e7))
def test_a_duration_is_off_by_half_its_smallest_unit_at_most(seconds):
    text = format_duration(seconds)
    units = {"s": 1, "min": 60, "h": 3600, "d": 86400}
    parts = re.findall(r"([\d.]+) (\w+)", text)
    said = sum(float(number) * units[unit] for number, unit in parts)
    assert abs(said - seconds) <= units[parts[-1][1]] / 2 + 1e-6


def test_sparklines():
    assert draw_sparkline([0.1, 0.2, 0.4]) == "▁▃█"
    assert draw_sparkline([0.5, 0.5]) == "▁▁"
    assert draw_sparkline([0.0, math.nan, 1.0]) == "▁ █"
    assert draw_sparkline([math.nan]) == draw_sparkline([]) == ""


@given(st.lists(st.floats(-1e9, 1e9), min_size=2).filter(lambda values: len(set(values)) > 1))
def test_a_sparkline_keeps_order_and_ends(values):
    bars = draw_sparkline(values)
    assert len(bars) == len(values)
    assert (bars[values.index(min(values))], bars[values.index(max(values))]) == ("▁", "█")
    by_value = sorted(zip(values, bars, strict=True))
    assert all(lower <= higher for (_, lower), (_, higher) in pairwise(by_value))
