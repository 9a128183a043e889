"""`quaere serve-search`: serves an index over HTTP."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from quaere.cli.options import add_server_options, read_key, server_settings

_DESCRIPTION = """\
Serve an index at POST /retrieve, in the form Search-R1 and verl's search tool speak. Only this machine can reach it;
--host lets others in, and needs a key.
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `serve-search` to the command line."""
    parser = commands.add_parser("serve-search", help="serve an index over HTTP", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument("--index", type=Path, required=True, metavar="DIR", help="the index to serve")
    add_server_options(parser)
    parser.add_argument("--max-concurrent", type=int, metavar="N", help="searches at once (default: 2)")
    parser.add_argument(
        "--max-waiting", type=int, metavar="N", help="waiting requests; more get status 429 (default: 256)"
    )
    parser.add_argument("--max-topk", type=int, metavar="N", help="most passages per query (default: 100)")
    parser.add_argument("--max-queries", type=int, metavar="N", help="most queries per request (default: 512)")


def run(args: argparse.Namespace) -> None:
    """Serve until Ctrl-C."""
    from msgspec import convert

    from quaere.search.index import open_index
    from quaere.serving.search_app import ServerLimits
    from quaere.serving.server import run_server
    from quaere.serving.servers import make_search_server

    settings, key = server_settings(args), read_key(args)
    limits = convert({name: value for name, value in vars(args).items() if value is not None}, ServerLimits)
    index = open_index(args.index)

    def say_ready(url: str) -> None:
        how = index.manifest.settings.summary
        print(f"serving {len(index)} passages ({how}) at {url}/retrieve, Ctrl-C ends", file=sys.stderr)

    run_server(make_search_server(index, settings, key=key, limits=limits), say_ready)
