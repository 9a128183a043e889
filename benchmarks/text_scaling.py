"""How the time of every function that reads foreign text grows with the text, on the texts that are worst for it.

    python benchmarks/text_scaling.py                     # all of them; some minutes
    python benchmarks/text_scaling.py locate_span terms   # those whose name holds one of the words

Every function is tried on some eighty texts of 32 KiB: units that are repeated, between others. The three that take
longest or grow fastest there are measured at 512 KiB and at 1 MiB (at less where that would take many seconds), medians
of 5. A ratio of 2 is linear, 4 quadratic. Above 2.6 the exit code is 1.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from quaere.chat.elements import read_markup
from quaere.chat.known_markups import MARKUPS
from quaere.chat.markup import find_blocks, read_turn
from quaere.chat.question_wordings import QuestionWriter, find_question_fault
from quaere.chat.report_pages import to_html, to_markdown
from quaere.chat.spans import locate_span
from quaere.chat.statements import extract_conclusion, find_citations, split_statements
from quaere.cli.terminal import printable, printable_line
from quaere.dialects.closed_book import ClosedBook
from quaere.dialects.evalact import EvaluateSolver
from quaere.dialects.report.assessment import Assessor
from quaere.dialects.report.report_writer import ReportWriter
from quaere.dialects.report.rubric import RubricChooser
from quaere.dialects.tag_dialects import TagSolver
from quaere.dialects.tool_call import ToolCallProposer, ToolCallSolver
from quaere.evaluation.judges.judge import Citation, ask_verdict, read_block, read_list
from quaere.evaluation.reports.citations import find_cited
from quaere.evaluation.reports.grades import count_proxies
from quaere.evaluation.reports.lexical import (
    content_words,
    find_names,
    lower_words,
    name_runs,
    num_negations,
    read_numbers,
    split_clauses,
    split_sentences,
    split_words,
    strip_marks,
)
from quaere.records import Dimension, DimensionRules, Harness, Passage, Question, Report, Rubric, Source
from quaere.rewards.answers import (
    contains,
    f1_score,
    gives_away,
    names_alternatives,
    normalise_answer,
    year_aliases,
    year_of,
)
from quaere.rewards.guards import Triple, count_earlier, refusals
from quaere.rewards.reports import check_report, consistency_score, diversity_score, find_terms
from quaere.rollout.topic_questions import find_phrases, is_title
from quaere.search.chunks import ChunkSettings, cut
from quaere.search.corpus import Document
from quaere.search.extracted import Unreadable
from quaere.search.files import read_file
from quaere.search.json_lines import split_contents
from quaere.search.words import count_words, fold, terms, word_spans
from quaere.warmup.documents.askable_facts import find_spans, page_name
from quaere.warmup.documents.checks import shares_words, word_overlap
from quaere.warmup.documents.prompts import OneLine

TRIED, WHOLE = 1 << 15, 1 << 20
LIMIT = 2.6
TOO_FAST_S = 1e-4  # below it a ratio says nothing
MOST_S = 3.0
NUM_MEASURED = 3

TAGS = ("think", "answer", "tool_call", "search", "question", "evidence", "rubric", "assessment", "verdict", "report")
UNITS = [
    *(form.format(tag) for tag in ("think", "answer", "tool_call", "search", "report") for form in ("<{}>", "</{}>")),
    *("<{}", "<a ", '<a b=">" ', "<a b='\">", "</", "<!--", "<![", "<?", "&#1", "&", "<p>one", "<title>a<", "<script>"),
    *("[1] ", "[1, ", "[", "]", "[1][2]", "a.[1] ", ". ", ".'\"", "! ", "? ", "?", "Conclusion:\n", "# a\n"),
    "#######\n",
    *("<function=a>", "<parameter=a>", "<arg_key>a</arg_key>", "<|message|>", "<|channel|>", "<|start|>", "<|end|>"),
    *(" to=a", "<|channel>", "<|tool_call>", '<|"|>', "call:a{", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"),
    *("[TOOL_CALLS]", "[ARGS]", "<|tool_call_start|>", "[a(", "<|message|>a<|end|>"),
    *(" ", "\n", "\n \t", "\t\n", "- ", "-", "_", "* ", "|", "\\", "`", "{", '{"a":', '["', '"', "'", "’s ", "Oss's "),
    *(",111", "1", "1.", "1,", "1702 ", "12 May 1702, ", "a", "x ", "Venn ", "Venn of ", "Dr. ", "A. ", " and", " or "),
    *(
        "The Oss rises. ",
        "not ",
        "a_",
        "a.",
        "a/",
        "a::",
        "aB",
        "--a ",
        "`a b` ",
        "uses a ",
        "Default: ",
        "5 GB ",
        "東京",
        "橋。",
        "\u0301\u0316",
        "é",
        "\u200b",
        "\x1b[31m",
        "\u202e",
        "\x00",
        "🌉",
    ),
]
ENDS = [("", ""), ("x", "x"), ("# a", "x"), ("<think>", ">"), ("Venn built it ", "."), ("Did Orsolya Venn or ", "?")]

PASSAGE = Passage(id="a#0", doc_id="a", title="Halm", text="Venn built the bridge.", start=0, end=22)
HARNESS = Harness(0, (Dimension("factuality", "Good."),), DimensionRules(k=1))
PROTOCOLS = {
    "tool-call solver": ToolCallSolver(evidence=True),
    "proposer": ToolCallProposer(evidence=True),
    "evalact": EvaluateSolver(evidence=True),
    "search-r1": TagSolver("search-r1"),
    "evalrar": TagSolver("evalrar", evidence=True),
    "autorefine": TagSolver("autorefine"),
    "closed book": ClosedBook(evidence=True),
    "report writer": ReportWriter(),
    "guided writer": ReportWriter(guided=True),
    "rubric": RubricChooser(HARNESS),
    "assessment": Assessor(Rubric("factuality"), 2),
    "open question": QuestionWriter({}),
    "verdict": ask_verdict(Citation("Who?", ("Venn",), "Venn built it.")),
    "one line": OneLine([]),
}


def read(suffix: str, before: str = "", after: str = "") -> Callable[[str], object]:
    def work(text: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, f"page{suffix}")
            page.write_bytes((before + text + after).replace("\0", "0").encode("utf-8", "replace"))
            with contextlib.suppress(Unreadable):
                read_file(page)

    return work


def as_report(text: str) -> Report:
    return Report(Question("q", "?"), text, split_statements(text), (Source(1, PASSAGE),), extract_conclusion(text))


def as_triple(text: str) -> Triple:
    return Triple(text, "Orsolya Venn", text[:4000], 9, text, 2, (text,), (text,), (text,))


FUNCTIONS: dict[str, Callable[[str], object]] = {
    **{f"{name}.read": protocol.read for name, protocol in PROTOCOLS.items()},
    **{f"read_turn {markup.name}": partial(read_turn, markup) for markup in MARKUPS},
    **{f"read_file {suffix}": read(suffix) for suffix in (".md", ".txt", ".rst", ".csv", ".html")},
    "read_file .eml": read(".eml", "From: a\n\n"),
    "read_file .eml (header)": read(".eml", "From: a\nSubject: "),
    "read_file .eml (parameters)": read(".eml", "From: a\nContent-Type: text/plain; "),
    "read_file .eml (HTML)": read(".eml", "From: a\nContent-Type: text/html\n\n"),
    "read_file .ipynb": read(".ipynb", '{"cells": [{"cell_type": "markdown", "source": "', '"}]}'),
    "cut": lambda text: cut(Document(id="a", title="", text=text, kind="file"), ChunkSettings()),
    "terms": terms,
    "fold": fold,
    "count_words": count_words,
    "word_spans": lambda text: list(word_spans(text, 0, len(text))),
    "split_contents": split_contents,
    "find_blocks": lambda text: find_blocks(text, TAGS),
    "read_markup": lambda text: read_markup(text, max_chars=1 << 21, max_elements=1000, max_depth=8),
    "read_block": lambda text: read_block(text, "verdict"),
    "read_list": lambda text: read_list(text, int),
    "locate_span": lambda text: locate_span(text[: len(text) // 2] + "“", text),
    "split_statements": split_statements,
    "find_citations": find_citations,
    "extract_conclusion": extract_conclusion,
    "to_markdown": lambda text: to_markdown(as_report(text), lambda passage: "a.md"),
    "to_html": lambda text: to_html(as_report(text), lambda passage: "a.md"),
    "find_cited": lambda text: find_cited(as_report(text)),
    "count_proxies": lambda text: count_proxies(as_report(text)),
    "check_report": lambda text: check_report(as_report(text)),
    "consistency_score": lambda text: consistency_score([text, text[1:]]),
    "diversity_score": lambda text: diversity_score([text, text[1:]]),
    "find_terms": find_terms,
    "split_words": split_words,
    "strip_marks": strip_marks,
    "split_sentences": split_sentences,
    "split_clauses": split_clauses,
    "read_numbers": read_numbers,
    "content_words": content_words,
    "lower_words": lower_words,
    "find_names": lambda text: find_names(text, frozenset()),
    "name_runs": name_runs,
    "num_negations": num_negations,
    "normalise_answer": normalise_answer,
    "f1_score": lambda text: f1_score(text, [text[1:]]),
    "year_of": year_of,
    "year_aliases": lambda text: year_aliases(text, text),
    "contains": lambda text: contains(text, text[: len(text) // 2] + "z"),
    "gives_away": lambda text: gives_away(text, "Orsolya Venn"),
    "names_alternatives": lambda text: names_alternatives(text, "Orsolya Venn"),
    "refusals": lambda text: refusals(as_triple(text)),
    "count_earlier": lambda text: count_earlier([text, text]),
    "find_question_fault": lambda text: find_question_fault(text, "Halm", PASSAGE),
    "find_phrases": find_phrases,
    "is_title": is_title,
    "page_name": page_name,
    "find_spans": lambda text: list(find_spans(text)),
    "word_overlap": lambda text: word_overlap(text, text[1:]),
    "shares_words": lambda text: shares_words(text, text[1:], ("Halm",)),
    "printable": printable,
    "printable_line": printable_line,
}


class Measured(NamedTuple):
    """A text of this size, repeated from a unit; how long it took, and by how much longer than half of it."""

    unit: str
    size: int
    whole_s: float
    ratio: float


def seconds(work: Callable[[str], object], text: str, repeats: int = 1, at_least_s: float = 0.0) -> float:
    """The median CPU time of a call, which other programs do not add to; a short call is made several times."""
    taken = []
    for _ in range(repeats):
        started, num_calls = time.process_time(), 0
        while num_calls == 0 or time.process_time() - started < at_least_s:
            work(text)
            num_calls += 1
        taken.append((time.process_time() - started) / num_calls)
    return median(taken)


def make_text(unit: str, ends: tuple[str, str], size: int) -> str:
    return ends[0] + unit * (size // len(unit)) + ends[1]


def worst_texts(work: Callable[[str], object]) -> list[tuple[str, tuple[str, str]]]:
    """The units that take longest, by the time for 32 KiB and, of those that count, by its growth."""
    tried = []
    for number, unit in enumerate(UNITS):
        ends = ENDS[number % len(ENDS)]
        half, whole = (seconds(work, make_text(unit, ends, size)) for size in (TRIED // 2, TRIED))
        growth = whole / half if whole > TOO_FAST_S else 0.0
        tried.append((whole, growth, unit, ends))
    by_growth = sorted(tried, key=lambda one: one[1], reverse=True)[: NUM_MEASURED - 1]
    slowest = max(tried, key=lambda one: one[0])
    return list(dict.fromkeys((unit, ends) for _, _, unit, ends in [*by_growth, slowest]))


def measure(work: Callable[[str], object], unit: str, ends: tuple[str, str]) -> Measured:
    """At 1 MiB; at the largest part of it that takes some seconds where that would take longer."""
    tried, size = seconds(work, make_text(unit, ends, TRIED)), WHOLE
    while tried * size / TRIED > MOST_S and size > 2 * TRIED:
        size //= 2
    half, whole = (seconds(work, make_text(unit, ends, num), 5, 0.05) for num in (size // 2, size))
    return Measured(unit, size, whole, whole / half if whole > TOO_FAST_S else 1.0)


def main() -> int:
    chosen = {name: work for name, work in FUNCTIONS.items() if any(word in name for word in sys.argv[1:] or [""])}
    num_slow = 0
    print(f"{'function':20} {'unit':22} {'KiB':>6} {'ms':>9} {'ratio':>6}")
    for name, work in chosen.items():
        worst = max((measure(work, *text) for text in worst_texts(work)), key=lambda one: one.ratio)
        num_slow += worst.ratio > LIMIT
        mark = "  <-- too slow" if worst.ratio > LIMIT else ""
        said = f"{name:20} {worst.unit!r:22.22} {worst.size >> 10:>6} {worst.whole_s * 1e3:>9.1f} {worst.ratio:>6.2f}"
        print(said + mark, flush=True)
    print(f"{num_slow} of {len(chosen)} functions grow by more than {LIMIT} when their text doubles")
    return 1 if num_slow else 0


if __name__ == "__main__":
    sys.exit(main())
