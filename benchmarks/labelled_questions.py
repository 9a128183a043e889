"""Choose labelled questions to train on: all that are not of HotpotQA, and those of HotpotQA that a search can begin.

    python benchmarks/labelled_questions.py data/train --out real.jsonl

Many of HotpotQA's questions come with evidence that no query made of the question finds, and every attempt at them
fails. So 6,000 of them are drawn, and the first 2,800 are kept for which one of the five passages that BM25 finds for
the question is gold. `data/train` has corpus.jsonl.gz ({id, title, text}) and questions.jsonl.gz ({id, question,
answers, gold_ids, set}).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bm25s

from quaere.search.json_lines import read_lines

NUM_DRAWN, NUM_HOTPOT, TOP = 6000, 2800, 5
Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for _, line in read_lines(path)]


def tokenize(texts: Sequence[str]) -> Any:
    return bm25s.tokenize(list(texts), stopwords=None, show_progress=False)


def begun_by_search(questions: Sequence[Row], corpus: Sequence[Row]) -> list[Row]:
    """The questions for which a gold passage is among the first that BM25 finds."""
    index = bm25s.BM25()
    index.index(tokenize([f"{page['title']} {page['text']}" for page in corpus]), show_progress=False)
    found, _ = index.retrieve(tokenize([row["question"] for row in questions]), k=TOP, show_progress=False)
    names = [{corpus[place]["id"] for place in places} for places in found]
    return [row for row, shown in zip(questions, names, strict=True) if shown & set(row["gold_ids"])]


def choose(folder: Path) -> list[Row]:
    """The chosen questions in random order, the same ones each time."""
    questions = read_rows(folder / "questions.jsonl.gz")
    hotpot = [row for row in questions if row["set"].startswith("hotpot")]
    random.Random(0).shuffle(hotpot)
    begun = begun_by_search(hotpot[:NUM_DRAWN], read_rows(folder / "corpus.jsonl.gz"))
    chosen = [row for row in questions if not row["set"].startswith("hotpot")] + begun[:NUM_HOTPOT]
    random.Random(1).shuffle(chosen)
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    chosen = choose(args.folder)
    lines = [json.dumps({name: row[name] for name in ("id", "question", "answers")}) + "\n" for row in chosen]
    args.out.write_text("".join(lines), encoding="utf-8")
    print(f"{args.out}: {len(chosen):,} questions")


if __name__ == "__main__":
    main()
