"""Curves of training runs side by side, one small picture per metric.

    pip install matplotlib
    python benchmarks/curves.py runs/hrpo runs/shuffled --phase proposer --out curves.svg

A run may also be a file of its metrics, `NAME.metrics.json.gz`: a JSON list of [step, name, value].

Thin lines are steps, thick ones means over `--window` of them. Of every metric it prints the mean over the first
`--first` steps and over the last `--last`, and how far the first run is from the others there, step by step (runs with
one seed see the same documents at the same step), with bootstrap intervals over steps.
"""

import argparse
import gzip
import json
import math
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from quaere.evaluation.intervals import bootstrap_interval, paired_difference
from quaere.runs import Run
from quaere.runs.rows import PHASES

METRICS = (
    "reward/mean",
    "reward/difficulty",
    "reward/format",
    "format/think",
    "format/tool",
    "format/answer",
    "proposer/valid",
    "passes/mean",
    "policy/entropy",
)


class StoredMetrics:
    """The metrics of a run that is no longer there, read like the run's own."""

    def __init__(self, path):
        self.path = Path(path.name.removesuffix(".metrics.json.gz"))
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            self._rows = json.load(stream)

    def metrics(self, name):
        """Every value of a metric, by step."""
        return [Metric(step, name, value) for step, other, value in sorted(self._rows) if other == name]


class Metric(NamedTuple):
    """A value of a metric at a step."""

    step: int
    name: str
    value: float


def open_metrics(path):
    """A run, or a file of its metrics."""
    return StoredMetrics(path) if path.name.endswith(".metrics.json.gz") else Run.open(path)


def read_curve(run, metric, phase):
    """Steps (counted within the phase) and values."""
    wanted = {item.step for item in run.metrics("run/phase") if PHASES[int(item.value)] == phase}
    values = [item.value for item in run.metrics(metric) if item.step in wanted]
    return list(range(1, len(values) + 1)), values


def smooth(values, window):
    """Means over the last `window` values."""
    return [sum(values[max(0, n + 1 - window) : n + 1]) / min(window, n + 1) for n in range(len(values))]


def draw(runs, metrics, phase, window, out):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "quaere"  # the same picture from the same runs
    from matplotlib import pyplot

    columns = min(3, len(metrics))
    rows = -(-len(metrics) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(3.4 * columns, 2.3 * rows), squeeze=False)
    for axis, metric in zip(axes.flat, metrics, strict=False):
        for number, run in enumerate(runs):
            steps, values = read_curve(run, metric, phase)
            axis.plot(steps, values, color=f"C{number}", alpha=0.3, linewidth=0.8)
            axis.plot(steps, smooth(values, window), color=f"C{number}", linewidth=1.8, label=run.path.name)
        axis.set_title(metric, fontsize=9)
        axis.tick_params(labelsize=7)
    for axis in axes.flat[len(metrics) :]:
        axis.set_visible(False)
    axes.flat[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def compare(runs, metrics, phase, first, last):
    """Print the first steps and the last ones of every run, and the first run's lead over the others."""
    for metric in metrics:
        ends = []
        for run in runs:
            _, values = read_curve(run, metric, phase)
            if not values:
                continue
            end = bootstrap_interval(values[-last:])
            print(
                f"{metric:18} {run.path.name:16} {len(values):3} steps  first {first}: {fmean(values[:first]):.4g}"
                f"  last {end.num}: {end.mean:.4g} [{end.low:.4g}, {end.high:.4g}]"
            )
            ends.append((run.path.name, values[-last:]))
        for name, values in ends[1:]:
            if len(values) == len(ends[0][1]):
                lead = paired_difference(ends[0][1], values, most=math.inf)
                print(f"{metric:18} {ends[0][0]} - {name}: {lead.mean:+.3f} [{lead.low:+.3f}, {lead.high:+.3f}]")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--metrics", nargs="+", default=METRICS)
    parser.add_argument("--phase", choices=PHASES, default="proposer")
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--last", type=int, default=10)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    opened = [open_metrics(path) for path in args.runs]
    compare(opened, args.metrics, args.phase, args.first, args.last)
    draw(opened, args.metrics, args.phase, args.window, args.out)


if __name__ == "__main__":
    main()
