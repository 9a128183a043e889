"""`quaere models`: lists the models of the catalogue, downloads them, and checks whether a model can be used.

quaere models list
quaere models pull smollm2-135m
quaere models path smollm2-135m
quaere models check Qwen/Qwen3-0.6B@main
"""

from __future__ import annotations

import argparse
import sys

import msgspec

from quaere.policies.catalogue import CATALOGUE, find_pulled, resolve_model

_DEFAULT = next(iter(CATALOGUE))


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `models` with its actions to the command line."""
    parser = commands.add_parser("models", help="list and pull models")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    listing = actions.add_parser("list", help="list the built-in catalogue, and which models have been pulled")
    listing.set_defaults(run=run_list)

    pull = actions.add_parser("pull", help="download a model, so that later commands need no network")
    pull.set_defaults(run=run_pull)

    path = actions.add_parser("path", help="print the directory of a model that has been pulled")
    path.set_defaults(run=run_path)

    check = actions.add_parser(
        "check", help="check a model: template, tools, thoughts, joints, memory of each preset, one episode"
    )
    check.add_argument("--no-episode", action="store_true", help="load no weights and play no episode")
    check.set_defaults(run=run_check)

    for action in (pull, path, check):
        named = "catalogue name, directory, GGUF file, hub id or hub id@revision"
        action.add_argument("name", nargs="?", default=_DEFAULT, metavar="NAME", help=f"{named} (default: {_DEFAULT})")
    for action in (listing, pull, path, check):
        action.add_argument("--json", action="store_true", help="print JSON")


def run_list(args: argparse.Namespace) -> None:
    """Print the catalogue, one model per line; a star marks models on this machine."""
    rows = []
    for entry in CATALOGUE.values():
        found = find_pulled(entry)
        rows.append({**msgspec.to_builtins(entry), "path": str(found) if found else None})
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    for row in rows:
        print(f"{'*' if row['path'] else ' '} {row['name']}  {row['summary']} ({row['licence']})")
        print(f"    {row['note']}")
        print(f"    {row['path'] or 'not pulled: quaere models pull ' + str(row['name'])}")
    print("Any Hugging Face id, local directory or GGUF file is a model too.", file=sys.stderr)


def run_pull(args: argparse.Namespace) -> None:
    """Download a model unless it is on this machine, and print its directory."""
    _show(args, pull=True)


def run_path(args: argparse.Namespace) -> None:
    """Print the directory of a model; never downloads."""
    _show(args, pull=False)


def run_check(args: argparse.Namespace) -> None:
    """Check a model and print the results; exit code 2 if one failed."""
    from quaere.cli.check_list import print_checks
    from quaere.cli.model_check import check_model

    report = (lambda line: None) if args.json else (lambda line: print(line, file=sys.stderr))
    print_checks(check_model(args.name, with_episode=not args.no_episode, report=report), as_json=args.json)


def _show(args: argparse.Namespace, *, pull: bool) -> None:
    model = resolve_model(args.name, pull=pull, report=lambda line: print(line, file=sys.stderr))
    folder = model.path if args.name in CATALOGUE else model.folders[0]
    print(msgspec.json.encode(model).decode() if args.json else folder)
