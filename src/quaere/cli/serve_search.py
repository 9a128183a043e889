"""`quaere serve-search`: serves an index over HTTP."""

import argparse
import sys

from msgspec import Struct

from quaere.api.printing import count
from quaere.cli.options import ServerOptions, command, group, read_key, read_options, server_settings
from quaere.setting_types import Count, Folder


class SearchServerOptions(Struct):
    """Options of `quaere serve-search`.

    Attributes:
        index: the index to serve
        max_concurrent: searches at once (default: 2)
        max_waiting: waiting requests; more get status 429 (default: 256)
        max_topk: most passages per query (default: 100)
        max_queries: most queries per request (default: 512)
    """

    index: Folder
    max_concurrent: Count | None = None
    max_waiting: Count | None = None
    max_topk: Count | None = None
    max_queries: Count | None = None


def _run(args: argparse.Namespace) -> None:
    from quaere.search.index import open_index
    from quaere.serving.search_app import ServerLimits
    from quaere.serving.server import make_search_server, run_server

    settings, key = server_settings(args), read_key(args)
    limits = read_options(args, ServerLimits)
    index = open_index(args.index)

    def say_ready(url: str) -> None:
        how = index.manifest.settings.summary
        print(f"serving {count(len(index), 'passage')} ({how}) at {url}/retrieve, Ctrl-C ends", file=sys.stderr)

    run_server(make_search_server(index, settings, key=key, limits=limits), say_ready)


fill = command(
    _run,
    SearchServerOptions,
    group("address and access", ServerOptions),
    description="""\
Serve an index at POST /retrieve, in the form Search-R1 and verl's search tool speak. Only this machine can reach it;
--host lets others in, and needs a key.
""",
)
