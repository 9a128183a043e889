"""Does agreement among a question's attempts tell what can be answered? From the groups of a training run.

    python benchmarks/agreement.py runs/evolved --last 7 --out votes.tsv       # the attempts of its last seven steps
    python benchmarks/agreement.py votes.tsv                                   # the same table from that file

Each group of attempts votes as `quaere ask --attempts` does: its answer is the most frequent one, and the share of
attempts that give it is its agreement. The table has, for each least agreement, the share of the unanswerable groups
that are *refused* (their answer has less, or there is none), and the share of the groups with a right answer that are
*lost*. The last lines have the area under the ROC curve (right answers against answers to unanswerable questions), and
how often a single attempt is right and how often the vote is.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from tables import as_table

from quaere.dialects.roles import is_right, read_outcome
from quaere.records import Episode, SolveTask
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


def read_groups(path: Path, last: int) -> list[Group]:
    """The groups of a run's last steps, or of a file that `--out` wrote."""
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            return [Group(**{k: v if k == "question" else int(v) for k, v in row.items()}) for row in _rows(file)]
    with Run.open(path) as run:
        rows = [row for row in run.index() if row.phase == "solver"]
        first = max(row.step for row in rows) - last
        groups = defaultdict[tuple[int, str], list[Episode]](list)
        for row in rows:
            if row.step > first:
                groups[row.step, row.task_id].append(run.episode(row.id))
    return [describe(step, attempts) for (step, _), attempts in groups.items()]


def _rows(lines: Iterator[str]) -> csv.DictReader[str]:
    return csv.DictReader(lines, delimiter="\t")


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


def rank(right: Sequence[float], other: Sequence[float]) -> float:
    """The share of pairs in which the right one is higher; ties count half."""
    pairs = [(a > b) + (a == b) / 2 for a in right for b in other]
    return sum(pairs) / len(pairs)


def report(groups: Sequence[Group]) -> str:
    """The table and the last lines."""
    asked = [group for group in groups if group.answerable]
    right = [group.agreeing / group.attempts for group in asked if group.right]
    hidden = [group.agreeing / group.attempts for group in groups if not group.answerable]
    most = max(group.attempts for group in groups)
    rows = [
        [
            f"{least}/{most}",
            *(f"{100 * sum(one < least / most for one in some) / len(some):.1f}" for some in (hidden, right)),
        ]
        for least in range(1, most + 1)
    ]
    single = sum(group.right_attempts for group in asked) / sum(group.attempts for group in asked)
    voted = len(right) / len(asked)
    return "\n".join(
        [
            as_table(["least agreement", f"refused % of {len(hidden)}", f"lost % of {len(right)}"], rows),
            "",
            f"area under the ROC curve {rank(right, hidden):.3f}",
            f"of {len(asked)} answerable: a single attempt is right in {single:.1%}, the vote in {voted:.1%}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, metavar="RUN|VOTES.tsv")
    parser.add_argument("--last", type=int, default=7, metavar="N", help="steps from the end (default: 7)")
    parser.add_argument("--out", type=Path, metavar="VOTES.tsv", help="write the groups there")
    args = parser.parse_args()
    groups = read_groups(args.source, args.last)
    if args.out:
        with args.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t", lineterminator="\n")
            writer.writerow(Group.__struct_fields__)
            writer.writerows([getattr(group, name) for name in Group.__struct_fields__] for group in groups)
    print(report(groups))


if __name__ == "__main__":
    main()
