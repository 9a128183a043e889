"""`quaere search`: searches an index and prints excerpts of the passages, or the passages."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from quaere.cli.options import Flag, IndexPlace, JsonOption, command, refuse
from quaere.cli.terminal import open_console, printable, printable_line
from quaere.search.words import question_words, terms
from quaere.setting_types import Count

_EXCERPT_CHARS = 240

if TYPE_CHECKING:
    from rich.text import Text

    from quaere.records import Hit


class SearchOptions(JsonOption, kw_only=True):
    """Options of `quaere search`.

    Attributes:
        queries: words to search for, in quotes: "halm bridge"
        topk: passages per query
        index: what is searched: an index directory, URL of a search server (repeatable: requests are spread over the
            servers), mcp:COMMAND|URL, web:NAME[@URL], record:FILE@PLACE or replay:FILE
        full: print whole passages (default: an excerpt around the words of the query)
        json: print the results as JSON
    """

    queries: Annotated[tuple[str, ...], "QUERY", Flag("queries", nargs="+")]
    topk: Count = 3
    index: IndexPlace
    full: bool = False


def _run(args: argparse.Namespace) -> None:
    refuse(("" in map(str.strip, args.queries), "the question is empty", 'quaere search "halm bridge" --index DIR'))
    found = asyncio.run(_search(args.index, args.queries, args.topk))
    if args.json:
        results = [{"query": query, "hits": hits} for query, hits in zip(args.queries, found, strict=True)]
        print(msgspec.json.encode(results).decode())
    else:
        _print_hits(args.queries, found, full=args.full)


fill = command(_run, SearchOptions)


async def _search(where: str, queries: Sequence[str], topk: int) -> list[list[Hit]]:
    from quaere.search.searcher import open_searcher

    searcher = open_searcher(where)
    try:
        return await searcher.search(queries, topk)
    finally:
        await searcher.close()


def _print_hits(queries: Sequence[str], found: list[list[Hit]], *, full: bool) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console = open_console()
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

    shown = Text(printable(text) if full else excerpt(query, printable(text), _EXCERPT_CHARS))
    for start, end, _ in find_matches(query, shown.plain):
        shown.stylize("bold", start, end)
    return shown


# ------------------------------------------------------------------------------------------------------------- excerpts


_LANGUAGE = "english"  # words of other languages match in the same form, or by chance in one more
_WORD = re.compile(r"[^\W_]+")
_LINE_BREAKS = re.compile(r"[ \t\n]+")
_COMMON = frozenset("a an and at by for from in of on or the to with".split())

Match = tuple[int, int, str]  # start, end, term


def find_matches(query: str, text: str) -> list[Match]:
    """Start, end and term of the query's words in the text, in the order of the text; articles and the like are none.

    find_matches("halm bridges", "The Halm bridge") == [(4, 8, "halm"), (9, 15, "bridg")]
    """
    wanted = _terms(query, without=question_words(_LANGUAGE) | _COMMON) or _terms(query)
    found: list[Match] = []
    for word in _WORD.finditer(text):
        own = _terms(word.group())
        same = sorted(own & wanted, key=lambda term: (-len(term), term))
        if same and len(word.group()) > 1 and any(len(term) == 1 for term in own):
            # Of a script without spaces: characters and their pairs are terms, and a pair says more.
            found += _find_parts(word.group(), [term for term in same if len(term) == len(same[0])], word.start())
        elif same:
            found.append((*word.span(), same[0]))
    return sorted(found)


def excerpt(query: str, text: str, num_chars: int) -> str:
    """The text on one line, cut to about `num_chars` characters that have most of the query's words."""
    line = _LINE_BREAKS.sub(" ", text).strip(" ")
    if len(line) <= num_chars:
        return line
    start, end = _best_window(find_matches(query, line), num_chars)
    start = max(0, min(start - (num_chars - (end - start)) // 2, len(line) - num_chars))
    end = start + num_chars
    if start and (space := line.find(" ", start - 1, end)) >= 0:
        start = space + 1
    if end < len(line) and (space := line.rfind(" ", start, end + 1)) >= 0:
        end = space
    return f"{'… ' if start else ''}{line[start:end]}{' …' if end < len(line) else ''}"


def _terms(text: str, without: frozenset[str] = frozenset()) -> set[str]:
    return set(terms(text, stemmer=_LANGUAGE, without=without))


def _find_parts(word: str, parts: list[str], offset: int) -> list[Match]:
    """The places of parts in a word; none where its letters were folded."""
    places = ((part, match.start()) for part in parts for match in re.finditer(f"(?={re.escape(part)})", word))
    return [(offset + start, offset + start + len(part), part) for part, start in places]


def _best_window(matches: list[Match], num_chars: int) -> tuple[int, int]:
    """From the first to the last match of the window with the most different terms, then the most matches."""
    best, most = (0, 0), (0, 0)
    for number, (start, _, _) in enumerate(matches):
        inside = [match for match in matches[number : number + num_chars] if match[1] <= start + num_chars]
        size = len({term for _, _, term in inside}), len(inside)
        if size > most:
            best, most = (start, max(end for _, end, _ in inside)), size
    return best
