"""`quaere search`: searches an index and prints excerpts of the passages, or the passages."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from quaere.cli.index_option import add_index

_EXCERPT_CHARS = 240

if TYPE_CHECKING:
    from rich.text import Text

    from quaere.records import Hit


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `search` to the command line."""
    parser = commands.add_parser("search", help="search an index")
    parser.set_defaults(run=run)
    parser.add_argument("queries", nargs="+", metavar="QUERY", help='words to search for, in quotes: "halm bridge"')
    add_index(parser, required=True)
    parser.add_argument("--topk", type=int, default=3, metavar="N", help="passages per query (default: 3)")
    parser.add_argument(
        "--full", action="store_true", help="print whole passages (default: an excerpt around the words of the query)"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def run(args: argparse.Namespace) -> None:
    """Search and print the hits."""
    found = asyncio.run(_search(args.index, args.queries, args.topk))
    if args.json:
        _print_json(args.queries, found)
    else:
        _print_hits(args.queries, found, full=args.full)


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


def _print_hits(queries: Sequence[str], found: list[list[Hit]], *, full: bool) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from quaere.cli.terminal import printable_line

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
            console.print(Padding(render_passage(query, passage.text, full=full), (0, 0, int(full), 3), expand=False))


def render_passage(query: str, text: str, *, full: bool = False) -> Text:
    """The passage, or an excerpt of it on one line, with the query's words in bold."""
    from rich.text import Text

    from quaere.cli.excerpt import excerpt, find_matches
    from quaere.cli.terminal import printable

    shown = Text(printable(text) if full else excerpt(query, printable(text), _EXCERPT_CHARS))
    for start, end, _ in find_matches(query, shown.plain):
        shown.stylize("bold", start, end)
    return shown
