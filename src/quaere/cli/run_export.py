"""`quaere runs export`: a run for the tools of others.

quaere runs export notes --to inspect --out logs/notes.json
quaere runs export notes --to trackio
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from quaere.cli.terminal import say_line
from quaere.errors import BadInput

if TYPE_CHECKING:
    from quaere.runs import Run

TARGETS = ("inspect", "trackio")


def add_export(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add `export` to the actions of `runs`."""
    parser = actions.add_parser("export", help="hand a run to Inspect (its episodes) or Trackio (its metrics)")
    parser.add_argument("name", metavar="RUN", help="a run's name or directory")
    parser.add_argument("--to", choices=TARGETS, required=True, help="whose format")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="with inspect, the log to write (such as logs/notes.json)"
    )
    parser.add_argument("--step", type=int, metavar="N", help="with inspect, only the episodes of a step")
    parser.add_argument("--phase", help="with inspect, only those of a phase, such as solver")
    parser.add_argument("--force", action="store_true", help="replace the file at --out")
    parser.set_defaults(run=run_export)
    return parser


def run_export(args: argparse.Namespace) -> None:
    """Write the log, or log the metrics."""
    from quaere.runs import Run, find_run, runs_root

    with Run.open(find_run(runs_root(args.runs), args.name)) as run:
        done = _export_log(run, args) if args.to == "inspect" else _export_metrics(run, args)
    if args.json:
        from quaere.cli.runs import as_json

        print(as_json(done))


def _export_log(run: Run, args: argparse.Namespace) -> dict[str, object]:
    from quaere.runs.inspect_log import write_inspect_log

    if args.out is None:
        raise BadInput("--to inspect needs --out", hint=f"--out logs/{run.info.id}.json")
    if args.out.suffix != ".json":  # Inspect tells its formats apart by the name
        raise BadInput(f"a log of Inspect ends with .json, not {args.out.name}", hint=f"--out {args.out}.json")
    if args.out.exists() and not args.force:
        raise BadInput(f"{args.out} exists already", hint="choose another --out, or replace it with --force")
    num = write_inspect_log(run, args.out, step=args.step, phase=args.phase)
    say_line(f"{num} episodes in {args.out}; look at them with: inspect view --log-dir {args.out.parent}")
    return {"to": "inspect", "path": str(args.out), "num_episodes": num}


def _export_metrics(run: Run, args: argparse.Namespace) -> dict[str, object]:
    from quaere.training.progress import PROJECT, TrackioReporter, replay_steps

    for name in ("out", "step", "phase"):
        if getattr(args, name) is not None:
            raise BadInput(f"--{name} belongs to --to inspect", hint=f"leave --{name} out")
    if not run.last_step():
        raise BadInput(f"run {run.info.id} has no metrics: it was not a training", hint="--to inspect --out FILE")
    reporter = TrackioReporter(PROJECT, run.info.id, run.info.settings)
    try:
        num = replay_steps(run, reporter)
    finally:
        reporter.close()
    say_line(f"{num} steps in Trackio's project {PROJECT}; look at them with: trackio show --project {PROJECT}")
    return {"to": "trackio", "project": PROJECT, "num_steps": num}
