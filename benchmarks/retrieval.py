"""How often the first 1, 3 and 10 passages hold what proves the answer, for several engines side by side.

    python benchmarks/retrieval.py --corpus DATA/dev/corpus.jsonl.gz --questions DATA/dev/questions.jsonl.gz
    python benchmarks/retrieval.py --corpus DATA/docs-dev/corpora --questions DATA/docs-dev/questions.jsonl \\
        --engine plain:stemmer=none,whole_names=false,title_weight=2 --engine default: --engine reranked:rerank=MODEL \\
        --digits 5-f

An engine is NAME:OPTION=VALUE,... with the options of `quaere index`; --index NAME=DIR adds an index that is there.
Gains are over the first column. The engine before stems were an option is `plain`.
Questions are JSON Lines with "id", "question", "answers" and "set", and what proves the answer:

- "sentences" (and "corpus", a folder of the corpus): a hit is a passage of that folder with one of these sentences;
- "gold_ids": the share of these documents that have a passage among the first;
- neither: a hit is a passage with an answer in its text.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from results_table import first_digit, parse_digits

from quaere.api.index import index_settings
from quaere.records import Hit
from quaere.search.index import Index, open_index
from quaere.search.index_build import build_index
from quaere.search.json_lines import read_lines
from quaere.search.words import fold

DEPTHS = (1, 3, 10)
DEFAULT_ENGINES = ["plain:stemmer=none,whole_names=false,title_weight=2", "default:"]


class Question(msgspec.Struct):
    """A question of the question file."""

    id: str
    question: str
    answers: list[str]
    set: str
    gold_ids: list[str] = []
    sentences: list[str] = []
    corpus: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--engine", action="append", metavar="NAME:OPTION=VALUE,...")
    parser.add_argument("--index", action="append", default=[], metavar="NAME=DIR", help="an index that is there")
    parser.add_argument("--digits", default="0-f", metavar="A-B", help="only questions whose sha256(id) begins so")
    args = parser.parse_args()
    digits = parse_digits(args.digits)
    questions = [msgspec.json.decode(line, type=Question) for _, line in read_lines(args.questions)]
    questions = [question for question in questions if question.answers and first_digit(question.id) in digits]
    shares: dict[str, dict[str, list[float]]] = {}
    for name, _, path in (given.partition("=") for given in args.index):
        shares[name] = measure(open_index(Path(path)), questions)
    for name, _, options in (given.partition(":") for given in args.engine or DEFAULT_ENGINES):
        with tempfile.TemporaryDirectory() as scratch:
            settings = index_settings(read_options(options))
            shares[name] = measure(build_index(args.corpus, Path(scratch) / "index", settings), questions)
    print(make_table(questions, shares))


def read_options(text: str) -> dict[str, Any]:
    """Options by name: read_options("stemmer=none,title_weight=3") == {"stemmer": "none", "title_weight": 3}."""
    return {name: read_value(value) for name, _, value in (part.partition("=") for part in text.split(",") if part)}


def read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def measure(index: Index, questions: Sequence[Question]) -> dict[str, list[float]]:
    """Per question's id what share of the proof is among the first passages, at every depth."""
    found = index.search([question.question for question in questions], max(DEPTHS))
    return {
        question.id: [share_found(question, hits[:depth]) for depth in DEPTHS]
        for question, hits in zip(questions, found, strict=True)
    }


def share_found(question: Question, hits: Sequence[Hit]) -> float:
    if question.sentences:
        inside = [hit.passage for hit in hits if hit.passage.doc_id.startswith(f"{question.corpus}/")]
        texts = [squeeze(passage.text) for passage in inside]
        return float(any(squeeze(sentence) in text for sentence in question.sentences for text in texts))
    if question.gold_ids:
        return len({hit.passage.doc_id for hit in hits} & {*question.gold_ids}) / len({*question.gold_ids})
    texts = [fold(f"{hit.passage.title} {hit.passage.text}") for hit in hits]
    return float(any(fold(answer) in text for answer in question.answers for text in texts))


def squeeze(text: str) -> str:
    """The text with single spaces."""
    return " ".join(text.split())


def make_table(questions: Sequence[Question], shares: dict[str, dict[str, list[float]]]) -> str:
    """A row per set and one of all: per engine the percentages at every depth, and the gains over the first engine."""
    depths = " / ".join(map(str, DEPTHS))
    lines = [f"| set | questions | {' | '.join(f'{name}, first {depths}' for name in shares)} |"]
    lines.append("|---" * (2 + len(shares)) + "|")
    for name in [*sorted({question.set for question in questions}), "all"]:
        ids = [question.id for question in questions if name in (question.set, "all")]
        means = [
            [100 * statistics.fmean(column) for column in zip(*(found[one] for one in ids), strict=True)]
            for found in shares.values()
        ]
        cells = [" / ".join(f"{value:.1f}" for value in means[0])]
        for row in means[1:]:
            gains = " / ".join(f"{value - before:+.1f}" for value, before in zip(row, means[0], strict=True))
            cells.append(f"{' / '.join(f'{value:.1f}' for value in row)} ({gains})")
        lines.append(f"| {name} | {len(ids)} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
