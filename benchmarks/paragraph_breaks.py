"""Counts paragraph breaks and passage ends that fall inside a sentence, per folder of documents.

    python benchmarks/paragraph_breaks.py docs manuals
    python benchmarks/paragraph_breaks.py docs --show 20

A break is inside a sentence if the line before it has at least three words and no mark at its end (full stop, colon,
...), and the text after it begins with a word of lower-case letters: not a title, nor the name of a command. Counted
are breaks between the paragraphs of a document as it was read, and ends of passages with more of it behind them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from quaere.search.chunks import ChunkSettings, cut
from quaere.search.corpus import CorpusReader, Document

_BREAK = re.compile(r"\n[^\S\n]*\n\s*")
_ENDED = re.compile(r"[.!?…:;。！？][\"'”’»)\]*_`]*$")
_MIN_WORDS = 3  # shorter ones are headings


def is_inside_sentence(before: str, after: str) -> bool:
    """True if a sentence goes on from one text to the next.

    is_inside_sentence("where the Oss rises", "near Halmgate.") -> True
    """
    line = before.rstrip().rpartition("\n")[2]
    word = after.split(maxsplit=1)[0].rstrip(",")
    return len(line.split()) >= _MIN_WORDS and _ENDED.search(line) is None and word.isalpha() and word.islower()


def find_breaks(document: Document) -> Iterator[tuple[str, str]]:
    """The texts before and after each paragraph break of a document."""
    return pairwise(part for part in _BREAK.split(document.text) if part.strip())


def find_cuts(document: Document, settings: ChunkSettings) -> Iterator[tuple[str, str]]:
    """The texts before and after each end of a passage."""
    return pairwise(passage.text for passage in cut(document, settings))


def main() -> None:
    """Print a table of counts, and some of the breaks that were counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--show", type=int, default=0, help="breaks inside a sentence to print of each kind and folder")
    args = parser.parse_args()
    print("| folder | documents | passages | paragraph breaks | in a sentence | ends of passages | in a sentence |")
    print("|---|---|---|---|---|---|---|")
    shown: list[str] = []
    for folder in args.folders:
        documents = list(CorpusReader(folder))
        cells = [folder.name, str(len(documents)), str(sum(len(cut(each, ChunkSettings())) for each in documents))]
        for kind in ("paragraphs", "passages"):
            pairs = [
                (each.id, *pair)
                for each in documents
                for pair in (find_breaks(each) if kind == "paragraphs" else find_cuts(each, ChunkSettings()))
            ]
            inside = [pair for pair in pairs if is_inside_sentence(*pair[1:])]
            cells += [str(len(pairs)), f"{len(inside)} ({len(inside) / max(1, len(pairs)):.1%})"]
            step = max(1, len(inside) // args.show) if args.show else 1
            shown += [f"{kind} {name}: {a[-70:]!r} || {b[:70]!r}" for name, a, b in inside[::step][: args.show]]
        print(f"| {' | '.join(cells)} |", flush=True)
    print(*shown, sep="\n")


if __name__ == "__main__":
    main()
