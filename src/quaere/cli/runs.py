"""`quaere runs`: what was run, and every episode of it.

quaere runs list
quaere runs show ask-20250301-101500
quaere runs show ask-20250301-101500 ask-0 --full --tokens
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from quaere.records import Episode
    from quaere.runs import EpisodeRow, Run


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `runs` with its actions to the command line."""
    parser = commands.add_parser("runs", help="list runs and read their episodes")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    listing = actions.add_parser("list", help="every run, the oldest first")
    listing.set_defaults(run=run_list)

    show = actions.add_parser("show", help="one run, or one episode of it")
    show.add_argument("name", metavar="RUN", help="a run's name or directory")
    show.add_argument("episode", metavar="EPISODE", nargs="?", help="an episode's id; without it, all are listed")
    show.add_argument("--full", action="store_true", help="show passages and replies uncut")
    show.add_argument("--tokens", action="store_true", help="show the segments with their token counts")
    show.set_defaults(run=run_show)

    for action in (listing, show):
        action.add_argument("--runs", metavar="DIR", help="folder of runs (default: $QUAERE_RUNS, or ./runs)")
        action.add_argument("--json", action="store_true", help="print JSON")


def run_list(args: argparse.Namespace) -> None:
    """Print the runs under the folder of runs."""
    from rich.console import Console

    from quaere.runs import list_runs, runs_root

    root = runs_root(args.runs)
    summaries = list_runs(root)
    if args.json:
        print(_json(summaries))
        return
    console = Console(highlight=False)
    if not summaries:
        console.print(f"no runs in {root}", markup=False)
        return
    table = _table("id", "kind", "created", "episodes", "answered", "size", right=("episodes", "answered", "size"))
    for run in summaries:
        counts = (str(run.num_episodes), str(run.num_answered))
        what = (run.problem, "", "", "") if run.problem else (run.kind, run.created[:16].replace("T", " "), *counts)
        table.add_row(*_cells(run.id, *what, f"{run.num_bytes / 1e6:.2f} MB"))
    console.print(table)


def run_show(args: argparse.Namespace) -> None:
    """Print one run with a table of its episodes, or one whole episode."""
    from quaere.runs import Run, find_run, runs_root

    with Run.open(find_run(runs_root(args.runs), args.name)) as run:
        if args.episode is None:
            _show_run(run, as_json=args.json)
        else:
            _show_episode(run.episode(args.episode), args)


def _show_run(run: Run, *, as_json: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    from quaere.cli.episode_view import count, printable

    rows = run.index()
    if as_json:
        print(_json({"run": run.info, "episodes": rows, "metrics": run.metric_names()}))
        return
    console = Console(highlight=False)
    info = run.info
    console.print(Text(printable(f"{info.id}  {info.kind}, {info.created}, quaere {info.version}"), "bold"))
    for name, value in info.settings.items():
        console.print(Text(printable(f"  {name}: {value}"), "dim"))
    console.print(_episode_table(rows))
    num_answered = sum(row.end == "answered" for row in rows)
    console.print(
        Text(f"{count(len(rows), 'episode')}, {num_answered} answered; quaere runs show {info.id} EPISODE", "dim")
    )


def _episode_table(rows: list[EpisodeRow]) -> Table:
    from quaere.cli.episode_view import trim

    counts = ("turns", "searches", "tokens")
    table = _table("episode", "question", "answer", "end", *counts, right=counts)
    for row in rows:
        numbers = (str(row.num_turns), str(row.num_searches), str(row.num_tokens))
        table.add_row(*_cells(row.id, trim(row.question, 60), trim(row.answer or "", 40), row.end, *numbers))
    return table


def _show_episode(episode: Episode, args: argparse.Namespace) -> None:
    from rich.console import Console

    from quaere.cli.episode_view import render_episode, render_tokens

    if args.json:
        print(_json(episode))
        return
    console = Console(highlight=False)
    console.print(render_episode(episode, full=args.full))
    if args.tokens:
        console.print(render_tokens(episode))


def _table(*names: str, right: tuple[str, ...]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


def _cells(*values: str) -> list[Any]:
    from rich.text import Text

    from quaere.cli.episode_view import printable

    return [Text(printable(value)) for value in values]


def _json(value: Any) -> str:
    """Indented JSON in ASCII, so that no character of a document reaches the terminal as itself."""
    import json

    import msgspec

    return json.dumps(json.loads(msgspec.json.encode(value)), indent=2)  # msgspec writes NaN as null, json would not
