"""Steps, seconds and questions of training runs, from the files of their metrics.

    python benchmarks/run_costs.py benchmarks/results/same-start/*.metrics.json.gz

Seconds are the sum of `step/seconds`: loading the model and saving checkpoints after the last step are not in them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from curves import open_metrics
from tables import as_table


def cost_row(path: Path) -> list[str]:
    """A run's name, its updates, its seconds, the different questions it drew, and the GPU memory it took."""
    run = open_metrics(path)

    def values(name: str) -> list[float]:
        return [item.value for item in run.metrics(name)]

    drawn, memory = values("questions/distinct"), values("memory/gpu_gib")
    row = [run.path.name, str(len(values("reward/mean"))), f"{sum(values('step/seconds')):.0f}"]
    return [*row, f"{drawn[-1]:.0f}" if drawn else "", f"{max(memory):.0f}" if memory else ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="files NAME.metrics.json.gz, or runs")
    args = parser.parse_args()
    rows = [cost_row(path) for path in args.runs]
    print(as_table(["run", "steps", "seconds", "different questions", "GPU GiB"], rows))


if __name__ == "__main__":
    main()
