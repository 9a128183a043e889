"""Questions on a sheet for a person to label blind, of one file or of several arms; then the labels counted.

    python benchmarks/blind_sample.py trained.jsonl untrained.jsonl --num 100 --out sheet.tsv --key key.json
    # write good, unclear or wrong into the first column of sheet.tsv
    python benchmarks/blind_sample.py --count sheet.tsv --key key.json

    python benchmarks/blind_sample.py own.jsonl --planted 20 --index INDEX --out sheet.txt --key key.json
    # write a table of the columns number and label: labels.tsv
    python benchmarks/blind_sample.py --count labels.tsv --key key.json

Each file is an arm and gives an equal share of the questions, drawn at random by --seed. The sheet shows question and
answers alone, in an order that says nothing of the arm; which is whose stands in the key, to be opened by --count.
With --index it is a text with the passages of each question below it. --planted adds questions of one fact with a wrong
answer: another span of the same kind in the same passage. How many of them are called wrong says how well was read.
Label a question good if it has one right answer and that is the one given, unclear if you cannot tell which thing it is
about or several answers are right, and wrong if the answer is not right. The brackets are 95 % Wilson intervals.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from planted_answers import Passages, find_wrong_answers
from tables import as_table

from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval, wilson_interval
from quaere.records import Question
from quaere.rollout.question_files import read_questions

LABELS = ("good", "unclear", "wrong")
COLUMNS = ("label", "number", "question", "answers", "note")
PLANTED = "planted"


class Drawn(NamedTuple):
    """A question of the sheet, the file it is from, and whether its answer was replaced by a wrong one."""

    path: Path
    question: Question
    planted: bool = False


# ------------------------------------------------------------------------------------------------------------- drawing


def draw(files: Sequence[Path], num: int, seed: int) -> list[Drawn]:
    """`num` questions, as many of each file as of any other or one more, in random order."""
    drawn: list[Drawn] = []
    for place, path in enumerate(files):
        share = num // len(files) + (place < num % len(files))
        questions = [question for question in read_questions(path) if question.answers]
        if len(questions) < share:
            raise BadInput(f"{path} has {len(questions)} questions with answers, and {share} are wanted of it")
        picked = random.Random(f"{seed}/{place}").sample(questions, share)
        drawn += [Drawn(path, question) for question in picked]
    random.Random(seed).shuffle(drawn)
    return drawn


def plant(drawn: Sequence[Drawn], files: Sequence[Path], num: int, seed: int, shown: Passages) -> list[Drawn]:
    """What was drawn and `num` questions with a wrong answer, which were not, in random order."""
    taken = {(item.path, item.question.id) for item in drawn}
    rest = [(path, question) for path in files for question in read_questions(path) if (path, question.id) not in taken]
    dice = random.Random(f"{seed}/{PLANTED}")
    dice.shuffle(rest)
    planted: list[Drawn] = []
    for path, question in rest:
        others = find_wrong_answers(question, shown) if len(planted) < num else []
        if others:
            planted.append(Drawn(path, msgspec.structs.replace(question, answers=(dice.choice(others),)), planted=True))
    if len(planted) < num:
        raise BadInput(f"{len(planted)} more questions can be given a wrong answer, and {num} are wanted")
    mixed = [*drawn, *planted]
    dice.shuffle(mixed)
    return mixed


# --------------------------------------------------------------------------------------------------------------- sheet


def write_sheet(drawn: Sequence[Drawn], out: Path, key: Path, shown: Passages | None = None) -> None:
    """The sheet, a table with empty labels or a text with passages, and the key that says whose each question is."""
    for path in (out, key):
        if path.exists():
            raise BadInput(f"{path} is there already; it is left alone")
    out.write_text(as_text(drawn, shown) if shown else as_rows(drawn), encoding="utf-8")
    arms = {
        str(number): {"arm": str(item.path), "id": item.question.id, PLANTED: item.planted}
        for number, item in enumerate(drawn, start=1)
    }
    key.write_text(json.dumps(arms, indent=1) + "\n", encoding="utf-8")


def as_rows(drawn: Sequence[Drawn]) -> str:
    """A table with an empty column for the labels."""
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(("", number, *show_item(item), "") for number, item in enumerate(drawn, start=1))
    return stream.getvalue()


def as_text(drawn: Sequence[Drawn], shown: Passages) -> str:
    """A block for each question, with its passages."""
    blocks = []
    for number, item in enumerate(drawn, start=1):
        question, answers = show_item(item)
        passages = "".join(f"PASSAGE: {passage.titled_text}\n" for passage in shown.of(item.question))
        blocks.append(f"### {number}\nQUESTION: {question}\nANSWER: {answers}\n{passages}\n")
    return "".join(blocks)


def show_item(item: Drawn) -> tuple[str, str]:
    """Question and answers, on one line each without tabs, as a sheet can show them."""
    return " ".join(item.question.text.split()), " ".join(" | ".join(item.question.answers).split())


# ------------------------------------------------------------------------------------------------------------ counting


def count_labels(sheet: Path, key: Path) -> dict[str, Counter[str]]:
    """The labels of each arm, and of what was planted as one more; every question must have one."""
    arms = json.loads(key.read_text(encoding="utf-8"))
    with sheet.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    whose = {number: PLANTED if entry.get(PLANTED) else entry["arm"] for number, entry in arms.items()}
    counts: dict[str, Counter[str]] = {arm: Counter() for arm in whose.values()}
    numbers = [row.get("number") for row in rows]
    if sorted(map(str, numbers)) != sorted(arms):
        raise BadInput(f"{sheet} does not hold the questions of {key}, each once")
    for row in rows:
        label = (row.get("label") or "").strip().lower()
        if label not in LABELS:
            raise BadInput(f"{sheet}, question {row['number']}: the label is {', '.join(LABELS)}, not {label!r}")
        counts[whose[row["number"]]][label] += 1
    return counts


def show(counts: dict[str, Counter[str]]) -> str:
    """A row for each arm: how many, and the share of each label with its interval; then what was planted."""
    rows = [
        [arm, str(labels.total()), *(bracket(wilson_interval(labels[label], labels.total())) for label in LABELS)]
        for arm, labels in counts.items()
        if arm != PLANTED
    ]
    lines = [as_table(("arm", "questions", *LABELS), rows)]
    if PLANTED in counts:
        wrong, num = counts[PLANTED]["wrong"], counts[PLANTED].total()
        lines.append(f"planted: {wrong} of {num} called wrong, {bracket(wilson_interval(wrong, num))}")
    return "\n".join(lines)


def bracket(share: Interval) -> str:
    return f"{share.mean:.3f} [{share.low:.3f}, {share.high:.3f}]"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="question files, one for each arm")
    parser.add_argument("--num", type=int, default=100, metavar="N", help="questions in all (default: 100)")
    parser.add_argument("--planted", type=int, default=0, metavar="N", help="questions with a wrong answer to add")
    parser.add_argument("--index", type=Path, metavar="DIR", help="their index: the sheet has their passages")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, metavar="SHEET", help="the sheet to write")
    parser.add_argument("--count", type=Path, metavar="SHEET", help="a labelled sheet to count")
    parser.add_argument("--key", type=Path, required=True, metavar="KEY", help="whose question is which")
    args = parser.parse_args(words)
    if args.count:
        print(show(count_labels(args.count, args.key)))
        return
    if not args.files or args.out is None or args.num < len(args.files):
        raise BadInput("give FILE, --out SHEET, and a question for each file")
    if args.planted and args.index is None:
        raise BadInput("--planted needs the --index that the questions are about")
    shown = Passages(args.index) if args.index else None
    drawn = draw(args.files, args.num, args.seed)
    if shown and args.planted:
        drawn = plant(drawn, args.files, args.planted, args.seed, shown)
    write_sheet(drawn, args.out, args.key, shown)
    print(f"{args.out}: {len(drawn)} questions of {len(args.files)} arms; labels: {', '.join(LABELS)}")


if __name__ == "__main__":
    try:
        main()
    except BadInput as error:
        sys.exit(f"blind_sample: {error}")
