"""`quaere search`: searches an index and prints the passages."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from quaere.cli.index_option import add_index

if TYPE_CHECKING:
    from quaere.records import Hit


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `search` to the command line."""
    parser = commands.add_parser("search", help="search an index")
    parser.set_defaults(run=run)
    parser.add_argument("queries", nargs="+", metavar="QUERY", help='words to search for, in quotes: "halm bridge"')
    add_index(parser, required=True)
    parser.add_argument("--topk", type=int, default=3, metavar="N", help="passages per query (default: 3)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def run(args: argparse.Namespace) -> None:
    """Search and print the hits."""
    found = asyncio.run(_search(args.index, args.queries, args.topk))
    if args.json:
        _print_json(args.queries, found)
    else:
        _print_hits(args.queries, found)


async def _search(where: str, queries: Sequence[str], topk: int) -> list[list[Hit]]:
    from quaere.search.searcher import open_searcher

    searcher = open_searcher(where)
    try:
        return await searcher.search(queries, topk)
    finally:
        await searcher.close()


def _print_json(queries: Sequence[str], found: list[list[Hit]]) -> None:
    import msgspec

    results = [{"query": query, "hits": hits} for query, hits in zip(queries, found, strict=True)]
    print(msgspec.json.encode(results).decode())


def _print_hits(queries: Sequence[str], found: list[list[Hit]]) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from quaere.cli.terminal import printable, printable_line

    console = Console(highlight=False)
    for query, hits in zip(queries, found, strict=True):
        if len(queries) > 1:
            console.print(Text(f"\n{printable_line(query)}", style="bold underline"))
        if not hits:
            console.print("nothing found")
        for rank, hit in enumerate(hits, start=1):
            passage = hit.passage
            place = f"  {passage.place}" if passage.place else ""
            under = f" > {passage.heading}" if passage.heading else ""
            heading = Text(printable_line(f"{rank}. {passage.title or passage.doc_id}{under}"), style="bold")
            heading.append(printable_line(f"  {passage.id}{place}  score {hit.score:.4g}"), style="not bold dim")
            console.print(heading)
            console.print(Padding(Text(printable(passage.text)), (0, 0, 1, 3), expand=False))
