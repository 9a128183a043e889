"""What the built-in model refuses: questions as they are and with their answers hidden, one row for each.

    python benchmarks/built_in.py ask --questions exam.jsonl --index dev-index --out built-in.tsv
    python benchmarks/built_in.py ask ... --model small/reader          # another adapter of the same base
    python benchmarks/built_in.py table built-in.tsv --overlap 0 0.6 --confidence 0 0.5

`ask` writes the kind of a row (right or wrong; hidden: the answer is hidden; open: the question has none), whether the
model abstained, its confidence, and the overlap of its passage with the question. `table` prints which share of each
kind the thresholds refuse, and of the questions that `--before FILE` has right.
"""

import argparse
import csv
import itertools
from pathlib import Path
from typing import Any

from quaere import Agent
from quaere.api.answer import Answer, question_overlap
from quaere.evaluation.intervals import rate_interval
from quaere.evaluation.qa.abstaining import add_hidden
from quaere.records import Answer as FinalAnswer
from quaere.records import Question
from quaere.rewards.abstention import has_hidden_answer
from quaere.rollout.question_files import read_questions

_FIELDS = ("question", "kind", "abstained", "overlap", "confidence", "searches", "tokens")


def describe(question: Question, answer: Answer) -> dict[str, Any]:
    """The row of an answer; overlap and confidence of an abstention, or without an answer, are 0."""
    has_answer = isinstance(answer.episode.outcome, FinalAnswer) and not answer.abstained
    is_right = has_answer and answer.scores.get("answer/exact_match") == 1.0
    asked = "hidden" if has_hidden_answer(question.id) else "open" if not question.answers else ""
    return {
        "question": question.id,
        "kind": asked or ("right" if is_right else "wrong"),
        "abstained": int(not has_answer),
        "overlap": f"{question_overlap(answer.episode) if has_answer else 0:.3f}",
        "confidence": f"{(answer.confidence or 0) if has_answer else 0:.4f}",
        "searches": answer.episode.num_searches,
        "tokens": sum(turn.num_tokens for turn in answer.episode.turns),
    }


def ask(args: argparse.Namespace) -> None:
    """Ask all questions and their hidden copies, and write the rows."""
    questions = add_hidden(read_questions(str(args.questions)))[0]
    how: dict[str, Any] = {"min_overlap": 0.0, "min_confidence": 0.0, "device": "cpu", "max_rows": args.max_rows}
    with Agent(args.model, args.index, **how) as agent:
        rows = [describe(one, answer) for one, answer in zip(questions, agent.ask_many(questions), strict=True)]
    with args.out.open("w") as file:
        writer = csv.DictWriter(file, _FIELDS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    with path.open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def show(args: argparse.Namespace) -> None:
    """Print, for each pair of thresholds, the share of each kind that is refused."""
    rows, kinds = read(args.file), ("hidden", "open", "right", "wrong")
    before = {row["question"] for row in read(args.before) if row["kind"] == "right"} if args.before else set()
    before &= {row["question"] for row in rows}
    print(f"{'overlap':<9}{'confidence':<12}", *(f"{kind + ' refused':<20}" for kind in kinds), "right before, refused")
    for overlap, confidence in itertools.product(args.overlap, args.confidence):
        kept = {row["question"] for row in rows if is_kept(row, overlap, confidence)}
        shares = [say([row["question"] not in kept for row in rows if row["kind"] == kind]) for kind in kinds]
        lost = say([question not in kept for question in sorted(before)])
        print(f"{overlap:<9}{confidence:<12}", *(f"{share:<20}" for share in shares), lost)


def is_kept(row: dict[str, Any], overlap: float, confidence: float) -> bool:
    """True if the row has an answer that both thresholds let pass."""
    is_answer = not int(row["abstained"])
    return is_answer and float(row["overlap"]) >= overlap and float(row["confidence"]) >= confidence


def say(values: list[bool]) -> str:
    """A share in percent with its interval and number."""
    if not values:
        return "-"
    found = rate_interval([float(value) for value in values])
    return f"{100 * found.mean:.0f} [{100 * found.low:.0f}, {100 * found.high:.0f}] ({found.num})"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    asking = commands.add_parser("ask")
    asking.add_argument("--model", default="smollm2-135m")
    asking.add_argument("--questions", type=Path, required=True)
    asking.add_argument("--index", required=True)
    asking.add_argument("--max-rows", type=int, default=16)
    asking.add_argument("--out", type=Path, required=True)
    asking.set_defaults(work=ask)
    table = commands.add_parser("table")
    table.add_argument("file", type=Path)
    table.add_argument("--before", type=Path)
    table.add_argument("--overlap", type=float, nargs="+", default=[0.0])
    table.add_argument("--confidence", type=float, nargs="+", default=[0.0])
    table.set_defaults(work=show)
    args = parser.parse_args()
    args.work(args)


if __name__ == "__main__":
    main()
