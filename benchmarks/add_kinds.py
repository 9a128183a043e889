"""Add the kind of answer to files of items that were written before it was stored.

    python benchmarks/add_kinds.py --questions data/dev/questions.jsonl.gz benchmarks/results/*/*.items.jsonl.gz

`quaere eval` stores the kind of every question, and of a yes/no question or a choice which option is right and which
one the answer takes. This computes the same from the questions and the stored answers, and changes nothing else.
Questions that the file does not have stay as they are, and are counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from quaere.evaluation.qa.answer_kinds import describe_answer
from quaere.evaluation.qa.items import Item, hash_text, read_items, write_items
from quaere.records import Question
from quaere.rollout.question_files import read_questions


def add_kind(item: Item, questions: Mapping[tuple[str, str], Question]) -> Item:
    """The item with its kind and options, or unchanged if its question is not known."""
    question = questions.get(item.key)
    if question is None:
        return item
    return structs.replace(item, **describe_answer(question.text, question.answers, item.answer))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", required=True)
    parser.add_argument("items", type=Path, nargs="+")
    args = parser.parse_args()
    questions = {(one.id, hash_text(one.text)): one for one in read_questions(args.questions)}
    for path in args.items:
        items = [add_kind(item, questions) for item in read_items(path)]
        write_items(items, path)
        print(f"{path}: {len(items)} items, {sum(not item.kind for item in items)} without a kind")


if __name__ == "__main__":
    main()
