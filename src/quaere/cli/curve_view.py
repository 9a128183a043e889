"""A metric over the steps of a run as a chart of characters. Pure functions: values in, text out.

reward/mean, means of 2 steps
 0.91 |              ▃█
      |       ▂▄▅█▇████
 0.48 |▃▂▄▆████████████
       1              30
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from quaere.cli.progress_view import BARS
from quaere.runs import Metric

_MAX_COLUMNS = 60
_NUM_ROWS = 6


def draw_curve(name: str, metrics: Sequence[Metric]) -> str:
    """The chart: one column for each step, or for the mean of as many steps as are needed for 60 columns to do.

    The lowest value has one eighth of a row, so that a column without a bar is one without a value.
    """
    per_column = math.ceil(len(metrics) / _MAX_COLUMNS)
    groups = [metrics[at : at + per_column] for at in range(0, len(metrics), per_column)]
    values = [math.fsum(metric.value for metric in group) / len(group) for group in groups]
    known = [value for value in values if math.isfinite(value)]
    title = name if per_column == 1 else f"{name}, means of {per_column} steps"
    if not known:
        return f"{title}: no finite value"
    low, high = min(known), max(known)
    labels = {0: f"{high:.3g}", _NUM_ROWS - 1: f"{low:.3g}"}
    width = max(map(len, labels.values())) + 1
    heights = [_height(value, low, high) for value in values]
    lines = [
        f"{labels.get(row, ''):>{width}} |{''.join(_cell(height, _NUM_ROWS - 1 - row) for height in heights)}"
        for row in range(_NUM_ROWS)
    ]
    first, last = str(metrics[0].step), str(metrics[-1].step)
    axis = " " * (width + 2) + first + last.rjust(max(len(values) - len(first), len(last) + 1))
    return "\n".join([title, *lines, axis])


def _height(value: float, low: float, high: float) -> int:
    """Height in eighths of a row: 1 for the lowest value, all rows for the highest, 0 for one that is not finite."""
    most = _NUM_ROWS * len(BARS)
    return 1 + round((value - low) / ((high - low) or 1.0) * (most - 1)) if math.isfinite(value) else 0


def _cell(height: int, row: int) -> str:
    """The character of a column in this row, counted from below."""
    filled = min(height - row * len(BARS), len(BARS))
    return BARS[filled - 1] if filled > 0 else " "
