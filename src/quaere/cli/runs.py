"""`quaere runs`: what was run, every episode of it, and what of it is no longer needed.

quaere runs list
quaere runs show ask-20250301-101500
quaere runs show ask-20250301-101500 ask-0 --full --tokens
quaere runs show evolve-20250301-101500 --metrics 'reward/*'
quaere runs export evolve-20250301-101500 --to inspect --out logs/evolve.json
quaere runs delete ask-20250301-101500
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, to_builtins
from rich.text import Text

from quaere.api.printing import as_json, count, plain_table
from quaere.cli import options
from quaere.cli.terminal import open_console, printable, printable_line, say_line
from quaere.errors import BadInput
from quaere.runs import (
    Run,
    check_deletable,
    delete_folders,
    describe_state,
    hold_idle,
    list_runs,
    measure_size,
    runs_root,
)
from quaere.runs.checkpoints import find_spare
from quaere.runs.inspect_log import write_inspect_log
from quaere.setting_types import Count, File
from quaere.training.progress import PROJECT, TrackioReporter, replay_steps

ALL_STEPS = -1
_EXPORTED = "hand a run to Inspect (its episodes) or Trackio (its metrics)"


class ShownPart(Struct):
    """The part of a run that is shown.

    Attributes:
        metrics: the values of these metrics; '*' stands for any text
        candidates: the questions that were written to learn from
        episodes: all episodes, or those of a step
    """

    metrics: Annotated[tuple[str, ...], "NAME", options.Several] | None = None
    candidates: bool = False
    episodes: Annotated[int, "STEP", Meta(ge=0), options.Flag(nargs="?", const=ALL_STEPS)] | None = None


class ShowOptions(options.JsonOption, kw_only=True):
    """Options of `quaere runs show`.

    Attributes:
        name: a run's name or directory
        episode: an episode's id; without it, the whole run is shown
        chart: with --metrics: draw each over the steps
        full: show passages and replies uncut
        tokens: show the segments with their token counts
    """

    name: options.RunName
    episode: Annotated[str, "EPISODE", options.Flag("episode", nargs="?")] | None = None
    chart: bool = False
    full: bool = False
    tokens: bool = False


class DeleteOptions(options.JsonOption, kw_only=True):
    """Options of `quaere runs delete`.

    Attributes:
        names: a run's name or directory
        checkpoints: only the checkpoints but the best and the last
        yes: delete without asking
    """

    names: Annotated[tuple[str, ...], "RUN", options.Named, options.Several, options.Flag("names")]
    checkpoints: bool = False
    yes: bool = False


class ExportOptions(options.JsonOption, kw_only=True):
    """Options of `quaere runs export`.

    Attributes:
        name: a run's name or directory
        to: whose format
        out: with inspect, the log to write (such as logs/notes.json)
        step: with inspect, only the episodes of a step
        phase: with inspect, only those of a phase, such as solver
        force: replace the file at --out
    """

    name: options.RunName
    to: Literal["inspect", "trackio"]
    out: File | None = None
    step: Count | None = None
    phase: str | None = None
    force: bool = False


def _list(args: argparse.Namespace) -> None:
    root = runs_root(args.runs)
    if args.runs and not root.is_dir():  # the default folder is made by the first run
        raise BadInput(f"there is no folder {root}", hint="quaere runs list --runs DIR")
    summaries = list_runs(root)
    if args.json:
        print(as_json(summaries))
        return
    console = open_console()
    if not summaries:
        console.print(f"no runs in {root}", markup=False)
        return
    numbers = ("episodes", "answered", "size")
    rows = []
    for run in summaries:
        told = (run.kind, run.state.name, run.created[:10], str(run.num_episodes), str(run.num_answered))
        what = (run.problem, "", "", "", "") if run.problem else told
        rows.append((run.id, *what, _megabytes(run.num_bytes)))
    console.print(plain_table("id", "kind", "state", "created", *numbers, rows=rows, right=numbers, whole=("id",)))
    for run in summaries:
        if run.state.name in ("failed", "stopped") and (run.state.why or run.next):
            then = f"; go on with: {run.next}" if run.next else ""
            said = printable(f"{run.id} {describe_state(run.state, run.step)}{then}")
            console.print(Text(said, "dim"), soft_wrap=True)  # a command that is to be copied stays on one line


def _show(args: argparse.Namespace) -> None:
    from quaere.cli import episode_view, run_view

    part = args.metrics or args.candidates or args.episodes is not None
    if part and args.episode is not None:
        raise BadInput("--metrics, --candidates and --episodes are of a run: leave EPISODE out")
    found: Any
    with Run.open(options.named_run(args, args.name)) as run:
        if args.chart and not args.metrics:
            raise BadInput("--chart draws metrics", hint=f"{run.show_command} --metrics reward/mean --chart")
        if args.metrics:
            _show_metrics(run, args)
            return
        if args.episode is not None:
            episode, metrics = run.episode(args.episode), run.episode_metrics(args.episode)
            least = run.min_confidence
            found = {**to_builtins(episode), "abstained": episode.abstains(least), "metrics": metrics}
            how = {"full": args.full, "tokens": args.tokens, "min_confidence": least}
            shown = episode_view.render_stored(episode, metrics, **how)
        elif args.candidates:
            found = run.candidates()
            shown = run_view.render_candidates(found)
        elif args.episodes is None and (run.info.kind == "evolve" or run.metric_names()):
            found = run_view.summarise_training(run)
            shown = run_view.render_training(found, run.show_command)
        else:
            found = run_view.list_episodes(run, None if args.episodes == ALL_STEPS else args.episodes)
            shown = run_view.render_episodes(found, run.show_command)
    if args.json:
        print(as_json(found))
    else:
        open_console().print(shown, crop=False)


def _show_metrics(run: Run, args: argparse.Namespace) -> None:
    """Charts, or lines that other programs can cut at the tabs: name, step, value."""
    from quaere.cli.run_view import draw_curve

    found = run.find_metrics(args.metrics)
    if args.json:
        print(as_json(found))
        return
    for name, metrics in found.items():
        lines = (f"{printable(name)}\t{metric.step}\t{metric.value:.6g}" for metric in metrics)
        print(draw_curve(printable(name), metrics) if args.chart else "\n".join(lines))


# --------------------------------------------------------------------------------------------------------------- delete


def _delete(args: argparse.Namespace) -> None:
    """Raise `BadInput` for what is no run or is running; then ask, delete, and print the space that is freed."""
    paths = list(dict.fromkeys(check_deletable(options.named_run(args, name)) for name in args.names))
    for path in paths:
        with hold_idle(path):
            pass
    if not args.yes and not _agrees(args, paths):
        print("nothing was deleted", file=sys.stderr)
        return
    deleted: dict[Path, int] = {}
    for path in paths:
        with hold_idle(path):  # again: it may have been resumed while the question was asked
            deleted[path] = delete_folders(_find_folders(path, args.checkpoints))
        if not args.json:
            what = "checkpoints deleted" if args.checkpoints else "deleted"
            print(printable_line(f"{path.name}: {what}, {_megabytes(deleted[path])} freed"))
    total = sum(deleted.values())
    if args.json:
        rows = [{"path": str(path), "num_bytes": num_bytes} for path, num_bytes in deleted.items()]
        print(json.dumps({"deleted": rows, "num_bytes": total}))
    elif len(deleted) > 1:
        print(f"{_megabytes(total)} freed in all")


def _find_folders(path: Path, only_checkpoints: bool) -> list[Path]:
    return find_spare(path / "checkpoints") if only_checkpoints else [path]


def _agrees(args: argparse.Namespace, paths: list[Path]) -> bool:
    """Ask at the terminal: a deletion cannot be undone."""
    if not sys.stdin.isatty():
        raise BadInput("nothing was deleted: there is no terminal to ask at", hint="add --yes")
    for path in paths:
        folders = _find_folders(path, args.checkpoints)
        what = f", {count(len(folders), 'checkpoint')}" if args.checkpoints else ""
        print(printable_line(f"  {path}{what}, {_megabytes(measure_size(folders))}"), file=sys.stderr)
    print("delete this for good? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.2f} MB"


# --------------------------------------------------------------------------------------------------------------- export


def _export(args: argparse.Namespace) -> None:
    with Run.open(options.named_run(args, args.name)) as run:
        done = _export_log(run, args) if args.to == "inspect" else _export_metrics(run, args)
    if args.json:
        print(as_json(done))


def _export_log(run: Run, args: argparse.Namespace) -> dict[str, object]:
    if args.out is None:
        raise BadInput("--to inspect needs --out", hint=f"--out logs/{run.info.id}.json")
    if args.out.suffix != ".json":  # Inspect tells its formats apart by the name
        raise BadInput(f"a log of Inspect ends with .json, not {args.out.name}", hint=f"--out {args.out}.json")
    if args.out.exists() and not args.force:
        raise BadInput(f"{args.out} exists already", hint="choose another --out, or replace it with --force")
    num = write_inspect_log(run, args.out, step=args.step, phase=args.phase)
    say_line(f"{count(num, 'episode')} in {args.out}; look at them with: inspect view --log-dir {args.out.parent}")
    return {"to": "inspect", "path": str(args.out), "num_episodes": num}


def _export_metrics(run: Run, args: argparse.Namespace) -> dict[str, object]:
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
    said = f"{count(num, 'step')} in Trackio's project {PROJECT}"
    say_line(f"{said}; look at them with: trackio show --project {PROJECT}")
    return {"to": "trackio", "project": PROJECT, "num_steps": num}


_PLACE, _PART = options.RunsFolder, options.exclusive(ShownPart)
fill = options.command(
    None,
    options.actions(
        options.action("list", _list, "every run, the oldest first", _PLACE, options.JsonOption),
        options.action("show", _show, "one run, or one episode of it", ShowOptions, _PLACE, _PART),
        options.action("delete", _delete, "delete runs, or what they can do without", DeleteOptions, _PLACE),
        options.action("export", _export, _EXPORTED, ExportOptions, _PLACE),
    ),
)
