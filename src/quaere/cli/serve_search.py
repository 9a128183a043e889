"""`quaere serve-search`: serve an index over HTTP."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_DESCRIPTION = """\
Serve an index at POST /retrieve, in the form Search-R1 and verl's search tool speak. There is no password: whoever can
reach the port can read the documents, so by default only this machine can.
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-command."""
    parser = commands.add_parser("serve-search", help="serve an index over HTTP", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument("--index", type=Path, required=True, metavar="DIR", help="the index to serve")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0 takes a free one (default: 8000)")
    parser.add_argument("--max-concurrent", type=int, metavar="N", help="searches at once (default: 2)")
    parser.add_argument("--max-waiting", type=int, metavar="N", help="requests that may wait; then 429 (default: 256)")
    parser.add_argument("--max-topk", type=int, metavar="N", help="most passages per query (default: 100)")
    parser.add_argument("--max-queries", type=int, metavar="N", help="most queries per request (default: 512)")


def run(args: argparse.Namespace) -> None:
    """Serve until Ctrl-C."""
    from msgspec import convert

    from quaere.search.index import open_index
    from quaere.search.server import ServerLimits, serve

    limits = convert({name: value for name, value in vars(args).items() if value is not None}, ServerLimits)
    index = open_index(args.index)

    def say_ready(url: str) -> None:
        settings = index.manifest.settings
        print(f"serving {len(index)} passages ({settings.engine}) at {url}/retrieve, Ctrl-C ends", file=sys.stderr)

    serve(index, args.host, args.port, limits, on_ready=say_ready)
