"""`quaere view`: runs as pages in a browser.

quaere view
quaere view runs/notes --open
quaere view runs/notes --export notes-pages
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from quaere.cli.bounds import check_positive
from quaere.cli.server_options import add_server_options, read_key, server_settings

if TYPE_CHECKING:
    from quaere.viewer.run_folder import RunFolder

_DESCRIPTION = """\
Show runs in a browser: all of a folder, or one. Pages follow a run while it trains. Only this machine can reach them;
--host lets others in, and needs a key. --export writes the pages to a folder instead: they open without a server.
"""
PORT = 8700
MAX_PAGES = 2000


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `view` to the command line."""
    parser = commands.add_parser("view", help="show runs in a browser", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument(
        "what",
        nargs="?",
        metavar="RUN|FOLDER",
        help="a run's name or directory, or a folder of runs (default: the folder of runs)",
    )
    parser.add_argument("--runs", metavar="DIR", help="folder of runs (default: $QUAERE_RUNS, or ./runs)")
    parser.add_argument("--open", action="store_true", help="also open the page in the browser of this machine")
    files = parser.add_argument_group("pages as files")
    files.add_argument("--export", type=Path, metavar="DIR", help="write the pages to this folder and end")
    files.add_argument(
        "--pages",
        type=int,
        default=MAX_PAGES,
        metavar="N",
        help=f"write at most this many, those nearest to the first one (default: {MAX_PAGES})",
    )
    files.add_argument("--force", action="store_true", help="replace an earlier export at --export")
    add_server_options(parser, PORT)


def run(args: argparse.Namespace) -> None:
    """Serve until Ctrl-C, or write the pages."""
    import webbrowser

    from quaere.serving.server import run_server
    from quaere.viewer.page_formats import path_to
    from quaere.viewer.run_folder import open_folder
    from quaere.viewer.viewer_server import make_view_server

    folder = open_folder(args.what, args.runs)
    if args.export is not None:
        _export(folder, args)
        return
    key = read_key(args)
    server = make_view_server(folder, server_settings(args), key=key)

    def say_ready(url: str) -> None:
        page = url + (path_to("run", folder.only) if folder.only else "/")
        print(f"showing {folder.only or folder.root} at {page}, Ctrl-C ends", file=sys.stderr)
        if key:
            print(f"a browser needs the key once: {url}/?api_key=KEY", file=sys.stderr)
        if args.open:
            webbrowser.open(page)

    run_server(server, say_ready)


def _export(folder: RunFolder, args: argparse.Namespace) -> None:
    import webbrowser

    from quaere.cli.interrupt import interruptible
    from quaere.viewer.page_files import export_pages

    check_positive(args, ("pages",))
    with interruptible(f"nothing is written to {args.export}"):
        done = export_pages(folder, args.export, max_pages=args.pages, force=args.force)
    print(f"{done.num_pages} pages in {args.export}; open {done.first}", file=sys.stderr)
    if done.num_left_out:
        print(f"{done.num_left_out} further pages had no room: --pages N writes more", file=sys.stderr)
    if args.open:
        webbrowser.open(done.first.absolute().as_uri())
