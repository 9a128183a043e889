"""A small copy of a training run: all its metrics and alarms, and the first questions of its first and last step.

    python benchmarks/shrink_run.py runs/notes benchmarks/results/wikipedia/run --groups 6

For pictures of a real run (`screenshots.py`), in a few hundred kB. Checkpoints and candidates are left out, and paths
are shortened to their last part. The questions are not chosen: they are the first ones.
"""

from __future__ import annotations

import argparse
import re
from itertools import islice
from pathlib import Path

from msgspec import structs

from quaere.runs import Run
from quaere.runs.rows import EpisodeFilter, EpisodeRow

_PATH = re.compile(r"(?<!\S)/\S*/(?=[^/\s]+)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--groups", type=int, default=6, help="questions of each of the two steps")
    args = parser.parse_args()
    with Run.open(args.run) as run:
        shrink(run, args.out, args.groups)
    print(f"{sum(file.stat().st_size for file in args.out.rglob('*')) / 1000:.0f} kB")


def shrink(run: Run, out: Path, num_groups: int) -> None:
    """Copy a run with `num_groups` groups of attempts of its first step, and as many of its last."""
    settings = {name: shorten(value) if isinstance(value, str) else value for name, value in run.info.settings.items()}
    last = run.last_step()
    with Run.create(out, run.info.kind, settings, config=shorten(run.config_text())) as copy:
        for step in range(1, last + 1):
            copy.log_metrics(step, run.metrics_at(step))
        for event in run.events():
            copy.add_event(event.step, event.kind, event.message)
        for step in sorted({1, last}):
            rows = first_groups(run.rows(EpisodeFilter(step=step)), num_groups)
            episodes = [structs.replace(run.episode(row.id), model=shorten(row.model)) for row in rows]
            copy.add_episodes(episodes, [row.metrics for row in rows], step=step, phase=rows[0].phase)
        copy.note_end(run.state())


def first_groups(rows: list[EpisodeRow], num_groups: int) -> list[EpisodeRow]:
    """The attempts at the first questions."""
    kept = set(islice(dict.fromkeys(row.task_id for row in rows), num_groups))
    return [row for row in rows if row.task_id in kept]


def shorten(text: str) -> str:
    """The text with every absolute path as its last part.

    shorten("model: /data/models/form") == "model: form"
    """
    return _PATH.sub("", text)


if __name__ == "__main__":
    main()
