"""Does agreement among a question's attempts tell what can be answered? From a training run, or from an evaluation.

    python benchmarks/agreement.py runs/evolved --last 7 --out votes.tsv       # the attempts of its last seven steps
    python benchmarks/agreement.py votes.tsv                                   # the same table from that file
    python benchmarks/agreement.py voted.items.jsonl.gz --single single.items.jsonl.gz --digits 5-f

The last takes `quaere eval --hide-answers --attempts 8 --min-confidence 0 --items voted.items.jsonl.gz`, and the same
questions asked once. Attempts vote as in `quaere ask --attempts`: the answer is the most frequent one, and the share of
attempts that give it is its agreement. For each least agreement (`--min-confidence`) the table has

- the share of the questions with hidden answers, and of those that have none, that are *refused*: too few agree,
- the share of the right votes, and of the single attempts' right answers, that are *lost* because the vote is refused,
- exact match of the vote on the answerable questions, and the difference to a single attempt, paired by question,

with 95 % intervals over questions. The last line has the area under the ROC curve: right votes against votes on
questions with hidden answers.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from results_table import first_digit, parse_digits
from tables import as_table

from quaere.dialects.roles import is_right, read_outcome
from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval, paired_difference, rate_interval, ratio_interval
from quaere.evaluation.qa.items import Item, read_items
from quaere.records import Episode, SolveTask
from quaere.rewards.abstention import has_hidden_answer
from quaere.rollout.voting import vote
from quaere.runs import Run


class Group(Struct, frozen=True):
    """A question's attempts: whether it has an answer, how many agree on the one that won, and if that one is right."""

    step: int
    question: str
    answerable: int
    attempts: int
    agreeing: int  # attempts that give the winning answer; 0 if all abstain
    right: int  # 1 if the winning answer is right
    right_attempts: int


class Vote(Struct, frozen=True):
    """A question's vote.

    Vote(question="q1", answerable=True, agreement=0.375, right=True, single=0.25)
    """

    question: str
    answerable: bool
    agreement: float  # 0 if all attempts abstain
    right: bool
    single: float  # the share of single attempts that are right


def read_groups(path: Path, last: int) -> list[Group]:
    """The groups of a run's last steps, or of a file that `--out` wrote."""
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, delimiter="\t")
            return [Group(**{k: v if k == "question" else int(v) for k, v in row.items()}) for row in rows]
    with Run.open(path) as run:
        rows = [row for row in run.index() if row.phase == "solver"]
        first = max(row.step for row in rows) - last
        groups = defaultdict[tuple[int, str], list[Episode]](list)
        for row in rows:
            if row.step > first:
                groups[row.step, row.task_id].append(run.episode(row.id))
    return [describe(step, attempts) for (step, _), attempts in groups.items()]


def describe(step: int, attempts: Sequence[Episode]) -> Group:
    """A group as a row."""
    won = vote(attempts)
    assert isinstance(won.task, SolveTask)
    is_answer = won.outcome is not None and not won.abstained
    return Group(
        step=step,
        question=won.task.id,
        answerable=int(bool(read_outcome(won)[1])),
        attempts=len(attempts),
        agreeing=round((won.agreement or 0.0) * len(attempts)) if is_answer else 0,
        right=int(is_answer and is_right(won)),
        right_attempts=sum(is_right(attempt) for attempt in attempts),
    )


def from_group(group: Group) -> Vote:
    """The vote of a group; of an unanswerable question no attempt is right."""
    single = group.right_attempts / group.attempts if group.answerable else 0.0
    return Vote(group.question, bool(group.answerable), group.agreeing / group.attempts, bool(group.right), single)


def from_items(voted: Sequence[Item], asked_once: Sequence[Item]) -> list[Vote]:
    """The votes of an evaluation, each with the question's single attempt."""
    single = {item.key: item.exact_match for item in asked_once}
    if missing := [item.id for item in voted if item.key not in single]:
        raise BadInput(f"{len(missing)} questions were not asked once: {missing[0]}")
    return [
        Vote(
            item.id,
            item.answerable,
            (item.confidence or 0.0) if item.is_answer else 0.0,
            item.answerable and item.right,
            single[item.key],
        )
        for item in voted
    ]


def rank(right: Sequence[float], other: Sequence[float]) -> float:
    """The share of pairs in which the right one is higher; ties count half."""
    pairs = [(a > b) + (a == b) / 2 for a in right for b in other]
    return sum(pairs) / len(pairs)


def say(found: Interval) -> str:
    """In percent: "41.8 [34.0, 49.6]"."""
    return f"{100 * found.mean:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def report(votes: Sequence[Vote]) -> str:
    """The table and the last line."""
    asked = [one for one in votes if one.answerable]
    right = [one for one in asked if one.right]
    single = [one.single for one in asked]
    hidden = [one for one in votes if has_hidden_answer(one.question)]
    if not right or not hidden:
        raise BadInput("no question was answered right, or none was asked with a hidden answer")
    shares = {
        "hidden refused": hidden,
        "unanswerable refused": [one for one in votes if not (one.answerable or has_hidden_answer(one.question))],
        "right votes lost": right,
    }
    shares = {f"{name} % of {len(some)}": some for name, some in shares.items() if some}
    rows = []
    for least in sorted({one.agreement for one in votes} - {0.0}):
        row = [say(rate_interval([float(one.agreement < least) for one in some])) for some in shares.values()]
        lost = ratio_interval([one.single * (one.agreement < least) for one in asked], single)
        matches = [float(one.right and one.agreement >= least) for one in asked]
        change = paired_difference(matches, single)
        rows.append([f"{least:g}", *row, say(lost), say(rate_interval(matches)), say(change)])
    head = ["least agreement", *shares, "right single attempts lost %", f"EM % of {len(asked)}", "EM - single attempt"]
    area = rank([one.agreement for one in right], [one.agreement for one in hidden])
    return f"{as_table(head, rows)}\n\narea under the ROC curve {area:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, metavar="RUN|VOTES.tsv|ITEMS")
    parser.add_argument("--last", type=int, default=7, metavar="N", help="of a run: steps from the end (default: 7)")
    parser.add_argument("--out", type=Path, metavar="VOTES.tsv", help="of a run: write the groups there")
    parser.add_argument("--single", type=Path, metavar="ITEMS", help="the same questions, asked once")
    parser.add_argument("--digits", default="0-f", metavar="5-f", help="first hex digits of sha256(id) to keep")
    args = parser.parse_args()
    try:
        digits = parse_digits(args.digits)
        if args.single:
            votes = from_items(read_items(args.source), read_items(args.single))
        else:
            groups = read_groups(args.source, args.last)
            votes = [from_group(group) for group in groups]
            if args.out:
                write_groups(groups, args.out)
        print(report([one for one in votes if first_digit(one.question) in digits]))
    except BadInput as error:
        sys.exit(f"{parser.prog}: {error}")


def write_groups(groups: Sequence[Group], path: Path) -> None:
    """Write the groups as tab-separated values."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(Group.__struct_fields__)
        writer.writerows([getattr(group, name) for name in Group.__struct_fields__] for group in groups)


if __name__ == "__main__":
    main()
