"""Questions of several arms on one sheet for a person to label, with the arm hidden; then the labels counted.

    python benchmarks/blind_sample.py trained.jsonl untrained.jsonl --num 100 --out sheet.tsv --key key.json
    # write good, unclear or wrong into the first column of sheet.tsv
    python benchmarks/blind_sample.py --count sheet.tsv --key key.json

Each file is an arm and gives an equal share of the questions, drawn at random by --seed. The sheet shows question and
answers alone, in an order that says nothing of the arm; which is whose stands in the key, to be opened by --count.
Label a question good if it has one right answer and that is the one given, unclear if you cannot tell which thing it is
about or several answers are right, and wrong if the answer is not right. The brackets are 95 % Wilson intervals.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tables import as_table

from quaere.errors import BadInput
from quaere.evaluation.intervals import wilson_interval
from quaere.records import Question
from quaere.rollout.question_files import read_questions

LABELS = ("good", "unclear", "wrong")
COLUMNS = ("label", "number", "question", "answers", "note")


def draw(files: Sequence[Path], num: int, seed: int) -> list[tuple[Path, Question]]:
    """`num` questions, as many of each file as of any other or one more, in random order."""
    drawn: list[tuple[Path, Question]] = []
    for place, path in enumerate(files):
        share = num // len(files) + (place < num % len(files))
        questions = [question for question in read_questions(path) if question.answers]
        if len(questions) < share:
            raise BadInput(f"{path} has {len(questions)} questions with answers, and {share} are wanted of it")
        picked = random.Random(f"{seed}/{place}").sample(questions, share)
        drawn += [(path, question) for question in picked]
    random.Random(seed).shuffle(drawn)
    return drawn


def write_sheet(drawn: Sequence[tuple[Path, Question]], out: Path, key: Path) -> None:
    """The sheet with empty labels, and the key that says whose each question is."""
    for path in (out, key):
        if path.exists():
            raise BadInput(f"{path} is there already; it is left alone")
    with out.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
        writer.writerow(COLUMNS)
        for number, (_, question) in enumerate(drawn, start=1):
            writer.writerow(("", number, *map(flatten, (question.text, " | ".join(question.answers))), ""))
    arms = {str(number): {"arm": str(path), "id": question.id} for number, (path, question) in enumerate(drawn, 1)}
    key.write_text(json.dumps(arms, indent=1) + "\n", encoding="utf-8")


def flatten(text: str) -> str:
    """One line without tabs, as a sheet can show it."""
    return " ".join(text.split())


def count_labels(sheet: Path, key: Path) -> dict[str, Counter[str]]:
    """The labels of each arm; every question must have one."""
    arms = json.loads(key.read_text(encoding="utf-8"))
    with sheet.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    counts: dict[str, Counter[str]] = {entry["arm"]: Counter() for entry in arms.values()}
    numbers = [row.get("number") for row in rows]
    if sorted(map(str, numbers)) != sorted(arms):
        raise BadInput(f"{sheet} does not hold the questions of {key}, each once")
    for row in rows:
        label = (row.get("label") or "").strip().lower()
        if label not in LABELS:
            raise BadInput(f"{sheet}, question {row['number']}: the label is {', '.join(LABELS)}, not {label!r}")
        counts[arms[row["number"]]["arm"]][label] += 1
    return counts


def show(counts: dict[str, Counter[str]]) -> str:
    """A row for each arm: how many, and the share of each label with its interval."""
    rows = []
    for arm, labels in counts.items():
        shares = [wilson_interval(labels[label], labels.total()) for label in LABELS]
        told = [f"{share.mean:.3f} [{share.low:.3f}, {share.high:.3f}]" for share in shares]
        rows.append([arm, str(labels.total()), *told])
    return as_table(("arm", "questions", *LABELS), rows)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="question files, one for each arm")
    parser.add_argument("--num", type=int, default=100, metavar="N", help="questions in all (default: 100)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, metavar="SHEET", help="the sheet to write")
    parser.add_argument("--count", type=Path, metavar="SHEET", help="a labelled sheet to count")
    parser.add_argument("--key", type=Path, required=True, metavar="KEY", help="whose question is which")
    args = parser.parse_args(words)
    if args.count:
        print(show(count_labels(args.count, args.key)))
        return
    if len(args.files) < 2 or args.out is None or args.num < len(args.files):
        raise BadInput("give at least two files, --out SHEET, and a question for each file")
    write_sheet(draw(args.files, args.num, args.seed), args.out, args.key)
    print(f"{args.out}: {args.num} questions of {len(args.files)} arms; labels: {', '.join(LABELS)}")


if __name__ == "__main__":
    try:
        main()
    except BadInput as error:
        sys.exit(f"blind_sample: {error}")
