"""How the time of every function that reads foreign text grows with the text, on the texts that are worst for it.

    python benchmarks/linear.py

Prints the time for half a megabyte, and its ratio to the time for half of that: 2 is linear, 4 quadratic. Medians of 5.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from quaere.chat.statements import extract_conclusion, split_statements
from quaere.chat.tags import find_blocks
from quaere.cli.episode_view import printable
from quaere.evaluation.reports.citations import find_cited
from quaere.evaluation.reports.lexical import find_names, name_runs, read_numbers, split_clauses, strip_marks
from quaere.evaluation.reports.name_matching import split_words
from quaere.records import Passage, Question, Report, Source
from quaere.search.chunks import ChunkSettings, cut
from quaere.search.corpus import Document
from quaere.search.files import read_file
from quaere.search.words import count_words, terms

HALF, WHOLE = 1 << 18, 1 << 19


def repeat(unit: str, end: str = "", start: str = ""):
    return lambda size: start + unit * (size // len(unit)) + end


def read(suffix: str):
    def work(text: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, f"page{suffix}")
            page.write_text(text)
            read_file(page)

    return work


def cut_document(text: str) -> None:
    cut(Document(id="a", title="", text=text, kind="file"), ChunkSettings())


def cite(text: str) -> None:
    source = Source(1, Passage(id="a#0", doc_id="a", title="Halm", text="Venn built the bridge.", start=0, end=22))
    find_cited(Report(Question("q", "?"), text, split_statements(text), (source,)))


CASES = [
    (".md: spaces in a heading", read(".md"), repeat(" ", "x", "# a")),
    (".md: headings without a word", read(".md"), repeat("#######\n")),
    (".html: tags that do not end", read(".html"), repeat("<a ")),
    (".html: tags that end at last", read(".html"), repeat("<a ", ">")),
    (".html: quotes", read(".html"), repeat('<a b=">" ')),
    (".html: comments", read(".html"), repeat("<!--", ">")),
    (".html: references", read(".html"), repeat("&#1")),
    (".html: paragraphs", read(".html"), repeat("<p>one")),
    ("cut: blank lines", cut_document, repeat("\n \t")),
    ("cut: full stops and quotes", cut_document, repeat(".'\"")),
    ("cut: prose", cut_document, repeat("The Oss rises. ")),
    ("terms: marks on a letter", terms, repeat("\u0301\u0316", start="a")),
    ("terms: Chinese", terms, repeat("東京")),
    ("count_words: no spaces", count_words, repeat("x")),
    ("split_words: apostrophes", split_words, repeat("'", "x")),
    ("split_words: possessives", split_words, repeat("Oss's ")),
    ("find_cited: one number", cite, repeat("[1] ", start="Venn built it ")),
    ("find_cited: nothing but numbers", cite, repeat("[1] ")),
    ("split_statements: full stops", split_statements, repeat(". ")),
    ("split_statements: citations behind", split_statements, repeat("a.[1] ")),
    ("extract_conclusion", extract_conclusion, repeat("Conclusion:\n")),
    ("strip_marks: open brackets", strip_marks, repeat("[1, ")),
    ("read_numbers: commas", read_numbers, repeat(",111", "x", "1")),
    ("split_clauses", split_clauses, repeat(" and")),
    ("find_names", lambda text: find_names(text, frozenset()), repeat("Venn ")),
    ("name_runs", name_runs, repeat("Venn ")),
    ("find_blocks: tags that are not closed", lambda text: find_blocks(text, ("think",)), repeat("<think>")),
    ("printable: escape sequences", printable, repeat("\x1b[31m")),
]


def seconds(work, text: str, repeats: int = 5) -> float:
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        work(text)
        taken.append(time.perf_counter() - started)
    return median(taken)


def main() -> None:
    print(f"{'text':40} {'ms':>10} {'ratio':>7}")
    for name, work, make in CASES:
        half, whole = (seconds(work, make(size)) for size in (HALF, WHOLE))
        print(f"{name:40} {whole * 1e3:>10.1f} {whole / half:>7.2f}", flush=True)


if __name__ == "__main__":
    main()
