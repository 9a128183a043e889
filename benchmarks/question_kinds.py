"""Exact match by the kind of question: yes or no, a choice between two named things, any other.

    python benchmarks/question_kinds.py questions.jsonl form.items.jsonl.gz own.items.jsonl.gz

A question is yes-or-no if one of its answers is, and a choice if it says "or" and names an answer. Shares in percent,
one column for each file, by the set a question is of.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from tables import as_table

from quaere.evaluation.qa.items import read_items
from quaere.records import Question
from quaere.rollout.question_files import read_questions


def kind_of(question: Question) -> str:
    """What sort of answer is asked for."""
    answers = [answer.lower() for answer in question.answers]
    if {"yes", "no"} & set(answers):
        return "yes or no"
    is_choice = " or " in question.text and any(answer in question.text.lower() for answer in answers)
    return "choice" if is_choice else "other"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("items", type=Path, nargs="+", help="what `quaere eval --items` wrote")
    args = parser.parse_args()
    kinds = {question.id: kind_of(question) for question in read_questions(args.questions)}
    scores: dict[tuple[str, str], dict[Path, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in args.items:
        for item in read_items(path):
            scores[item.set, kinds[item.id]][path].append(item.exact_match)
    rows = [
        [name, kind, str(len(found[args.items[0]])), *(f"{100 * fmean(found[path]):.1f}" for path in args.items)]
        for (name, kind), found in sorted(scores.items())
    ]
    print(as_table(["set", "kind", "questions", *(path.name.partition(".")[0] for path in args.items)], rows))


if __name__ == "__main__":
    main()
