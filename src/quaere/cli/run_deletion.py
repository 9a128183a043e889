"""`quaere runs delete`: runs, or the checkpoints they can do without.

quaere runs delete ask-20250301-101500 eval-20250301-111500
quaere runs delete evolve-20250301-101500 --checkpoints --yes
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from quaere.cli.terminal import printable_line
from quaere.errors import BadInput


def delete_runs(args: argparse.Namespace) -> None:
    """Refuse what is no run or is running before anything is deleted, ask, delete, and say what is free for it."""
    from quaere.runs import check_deletable, delete_folders, find_run, hold_idle, runs_root

    root = runs_root(args.runs)
    paths = list(dict.fromkeys(check_deletable(find_run(root, name)) for name in args.names))
    for path in paths:
        with hold_idle(path):
            pass
    if not args.yes and not _agrees(args, paths):
        print("nothing was deleted", file=sys.stderr)
        return
    deleted: dict[Path, int] = {}
    for path in paths:
        with hold_idle(path):  # again: it may have been gone on with while the question stood there
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
    from quaere.runs.checkpoints import find_spare

    return find_spare(path / "checkpoints") if only_checkpoints else [path]


def _agrees(args: argparse.Namespace, paths: list[Path]) -> bool:
    """Ask at the terminal; what is deleted cannot be had again."""
    from quaere.runs import measure_size

    if not sys.stdin.isatty():
        raise BadInput("nothing was deleted: there is no terminal to ask at", hint="add --yes")
    for path in paths:
        folders = _find_folders(path, args.checkpoints)
        what = f", {len(folders)} checkpoints" if args.checkpoints else ""
        print(printable_line(f"  {path}{what}, {_megabytes(measure_size(folders))}"), file=sys.stderr)
    print("delete this for good? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.2f} MB"
