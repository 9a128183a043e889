"""`quaere view`: runs as pages in a browser.

quaere view
quaere view runs/notes --open
"""

from __future__ import annotations

import argparse
import sys

from quaere.cli.server_options import add_server_options, read_key, server_settings

_DESCRIPTION = """\
Show runs in a browser: all of a folder, or one. Pages follow a run while it trains. Only this machine can reach them;
--host lets others in, and needs a key.
"""
PORT = 8700


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
    add_server_options(parser, PORT)


def run(args: argparse.Namespace) -> None:
    """Serve until Ctrl-C."""
    import webbrowser

    from quaere.serving.server import run_server
    from quaere.viewer.page_formats import path_to
    from quaere.viewer.run_folder import open_folder
    from quaere.viewer.viewer_server import make_view_server

    folder = open_folder(args.what, args.runs)
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
