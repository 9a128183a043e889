"""Do a policy's scores of its searches agree with what they returned? By question set, from runs in evalact's dialect.

    quaere eval --run RUN --solver-dialect evalact --questions FILE --index INDEX --runs evals ...
    python benchmarks/calibration.py evals/eval-... --rows scores.jsonl     # the scored searches, to measure them again
    python benchmarks/calibration.py scores.jsonl --labels answers
    python benchmarks/calibration.py scores.jsonl --items EVAL.items.jsonl.gz

A search was good if it returned evidence of its question that no earlier search of the episode had, as in training
(`quaere/rewards/self_evaluation.py`); with `--labels answers`, if it was the first to return an accepted answer.
`ceiling` is the AUROC of a perfect judge of the evidence, by the same labels: 1 by construction for labels by evidence.
`title rule` is the AUROC of the rule that a search was good if the title of a passage it returned occurs in the
question. `same turn` compares only searches of equal number in their episodes, because later searches are worse and a
judge could know that without reading; `title, same turn` is the rule's, and `margin` the first minus the second.
Intervals are percentiles of 1,000 resamples of questions, for the margin of both together.

With `--items`, the answers of the same evaluation: how many are refused if an answer needs a search of at least such a
score, of those to hidden answers (`eval --hide-answers`), of others without a good search, and of the right ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean

import msgspec
import numpy as np
from msgspec import Struct
from tables import as_table

from quaere.chat.protocol import was_searched
from quaere.dialects.evalact_reward import find_pairs, value_episode
from quaere.disk import write_file
from quaere.evaluation.intervals import rate_interval
from quaere.evaluation.qa.items import Item, read_items
from quaere.grouping import group_by
from quaere.objectives.pcar import MAX_SCORE
from quaere.records import Episode, SolveTask
from quaere.rewards.abstention import has_hidden_answer
from quaere.rewards.answers import contains
from quaere.rewards.self_evaluation import auroc, auroc_within, expected_calibration_error, is_good, value_by_answers
from quaere.runs import Run


class Row(Struct, frozen=True):
    """A scored search: its value by evidence and by answers (None: unknown), and what the title rule says.

    Row(run="eval-1", question="q1", set="popqa", number=0, score=9.0, by_evidence=10, by_answers=10, titled=True)
    """

    run: str
    question: str
    set: str
    number: int
    score: float
    by_evidence: int | None
    by_answers: int | None
    titled: bool

    def good(self, labels: str) -> bool | None:
        """True if the search was good by these labels; by answers where the evidence is not known; None if unknown."""
        value = self.by_evidence if labels == "evidence" and self.by_evidence is not None else self.by_answers
        return None if value is None else is_good(value)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, or of the episodes of a run."""
    if path.is_file():
        return [msgspec.json.decode(line, type=Row) for line in path.read_bytes().splitlines()]
    with Run.open(path) as run:
        return [row for episode in run.episodes() for row in rows_of(episode, path.name)]


def rows_of(episode: Episode, run: str) -> list[Row]:
    """The scored searches of an episode."""
    assert isinstance(episode.task, SolveTask)
    question = episode.task.question
    is_known = bool(question.evidence or question.gold_ids)
    by_evidence = value_episode(episode) if is_known else {}
    by_answers = value_episode(episode, value_by_answers)
    titles = {
        place: {hit.passage.title for result in turn.results for hit in result.hits}
        for place, turn in enumerate(episode.turns)
        if was_searched(turn)
    }
    return [
        Row(
            run,
            question.id,
            question.set,
            number,
            pair.score,
            by_evidence.get(pair.turn),
            by_answers.get(pair.turn),
            any(contains(question.text, title) for title in titles[pair.turn] if title),
        )
        for number, pair in enumerate(find_pairs(episode))
    ]


def interval(rows: Sequence[Row], measure: Callable[[Sequence[Row]], float | None], num: int = 1000) -> str:
    """A figure over the rows, with its interval over questions: "0.498 [0.465, 0.532]"."""
    value = measure(rows)
    if value is None:
        return "-"
    asked = list(group_by(rows, lambda row: row.question).values())
    dice = np.random.default_rng(0)
    drawn = (
        measure([row for place in dice.integers(0, len(asked), len(asked)) for row in asked[place]]) for _ in range(num)
    )
    low, high = np.quantile([one for one in drawn if one is not None], [0.025, 0.975])
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def describe(name: str, rows: Sequence[Row], labels: str) -> list[str]:
    """A line of the table: the rows of one set."""

    def goods(some: Sequence[Row]) -> list[bool]:
        return [bool(row.good(labels)) for row in some]

    def ceiling() -> float | None:
        known = [row for row in rows if row.by_evidence is not None]
        return auroc([float(row.by_evidence or 0) for row in known], goods(known)) if len(known) == len(rows) else None

    def within(some: Sequence[Row], values: Sequence[float]) -> float | None:
        return auroc_within(values, goods(some), [row.number for row in some])

    def same_turn(some: Sequence[Row]) -> float | None:
        return within(some, [row.score for row in some])

    def title_same_turn(some: Sequence[Row]) -> float | None:
        return within(some, [float(row.titled) for row in some])

    def margin(some: Sequence[Row]) -> float | None:
        own, rule = same_turn(some), title_same_turn(some)
        return None if own is None or rule is None else own - rule

    perfect, said = ceiling(), [row.score for row in rows]
    return [
        name,
        str(len(rows)),
        f"{fmean(goods(rows)):.2f}",
        f"{fmean(said):.1f}",
        interval(rows, lambda some: auroc([row.score for row in some], goods(some))),
        interval(rows, lambda some: auroc([float(row.titled) for row in some], goods(some))),
        *(interval(rows, measure) for measure in (same_turn, title_same_turn, margin)),
        "-" if perfect is None else f"{perfect:.3f}",
        f"{expected_calibration_error([score / MAX_SCORE for score in said], goods(rows)):.3f}",
    ]


def report(rows: Iterable[Row], labels: str) -> str:
    """The table: a line for each set, and one for all."""
    known = [row for row in rows if row.good(labels) is not None]
    if not known:
        return "no scored search of a question with evidence or an answer"
    sets = group_by(known, lambda row: row.set)
    lines = [describe(name or "(none)", some, labels) for name, some in sorted(sets.items()) if len(sets) > 1]
    heads = ["set", "searches", "good", "score", "AUROC", "title rule", "same turn", "title, same turn", "margin"]
    heads += ["ceiling", "ECE"]
    return as_table(heads, [*lines, describe("all", known, labels)])


def refusals(rows: Sequence[Row], items: Sequence[Item]) -> str:
    """A table: how many answers are refused if one needs a search of at least such a score."""
    asked = group_by(rows, lambda row: row.question)
    items = [item for item in items if item.id in asked]
    best = {key: max(row.score for row in some) for key, some in asked.items()}
    proven = {key for key, some in asked.items() if any(row.good("evidence") for row in some)}
    hidden = [item for item in items if has_hidden_answer(item.id)]
    others = [item for item in items if not has_hidden_answer(item.id)]
    groups = {
        "hidden, refused": hidden,
        "without evidence, refused": [item for item in others if item.id not in proven],
        "right, lost": [item for item in others if item.right],
    }
    groups = {name: some for name, some in groups.items() if some}
    lines = []
    for least in sorted({*best.values()})[1:]:
        refused = {name: [best[item.id] < least for item in some] for name, some in groups.items()}
        lines.append([f"{least:g}", *(f"{sum(some)}: {in_percent(some)}" for some in refused.values())])
    return as_table(["least score", *(f"{name}, of {len(some)}" for name, some in groups.items())], lines)


def in_percent(some: Sequence[bool]) -> str:
    """The share that is true, with its interval: "57 % [45, 68]"."""
    found = rate_interval([float(one) for one in some])
    return f"{100 * found.mean:.0f} % [{100 * found.low:.0f}, {100 * found.high:.0f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, nargs="+", help="directory of a run of evalact, or a file of --rows")
    parser.add_argument("--labels", choices=("evidence", "answers"), default="evidence")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write the scored searches as JSON Lines")
    parser.add_argument("--items", type=Path, metavar="FILE", help="the answers of the same evaluation")
    args = parser.parse_args()
    if args.items and len(args.source) > 1:
        parser.error("--items has the answers of one evaluation: name one source")
    found = {path: read_rows(path) for path in args.source}
    if args.rows:
        rows = [row for some in found.values() for row in some]
        write_file(args.rows, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    for path, some in found.items():
        print(f"{path}: {len(some)} scored searches, labels by {args.labels}")
        print(report(some, args.labels))
        if args.items:
            print(refusals(some, read_items(args.items)))


if __name__ == "__main__":
    main()
