"""How results of `quaere eval` are shown: a table, exact match by hops, and what differs between results."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from quaere.evaluation.answering import Difference, Evaluation
    from quaere.evaluation.intervals import Interval
    from quaere.runs import Run


def print_results(evaluation: Evaluation, others: list[Evaluation], stored: Run | None) -> None:
    """A table of all results, the paired differences, and where the episodes are."""
    from rich.console import Console
    from rich.text import Text

    from quaere.cli.episode_view import count, printable
    from quaere.evaluation.answering import compare

    differences = [compare(evaluation, other) for other in others]
    # Where nobody has set a width (a file, a pipe), the tables get the room they need.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    console.print(_table([*others, evaluation]))
    if len(evaluation.score.by_hops) > 1:
        console.print(_hop_table([*others, evaluation]))
    for other, difference in zip(others, differences, strict=True):
        console.print(Text(printable(_difference_line(evaluation, other, difference))))
    score = evaluation.score
    if score.num_search_failed:
        told = f"search failed in {count(score.num_search_failed, 'episode')}; each counts as wrong"
        console.print(told, style="yellow", markup=False)
    if score.num_failed:
        console.print(f"the model failed in {count(score.num_failed, 'episode')}", style="yellow", markup=False)
    costs = f"{score.mean_turns:.2f} turns and {score.mean_tokens:.0f} tokens an episode"
    console.print(
        f"{count(score.exact_match.num, 'question')}; {costs}; {score.num_malformed} malformed turns", style="dim"
    )
    if stored is not None:
        console.print(f"quaere runs show {stored.path}", style="dim", markup=False)


def _table(evaluations: list[Evaluation]) -> Table:
    table = _plain_table("questions", "EM %", "F1 %", "searches", "answered")
    for evaluation in evaluations:
        score = evaluation.score
        numbers = (str(score.exact_match.num), _between(score.exact_match), _between(score.f1))
        table.add_row(*_cells(evaluation.name, *numbers, f"{score.mean_searches:.2f}", f"{score.answered:.1%}"))
    return table


def _hop_table(evaluations: list[Evaluation]) -> Table:
    """Exact match per number of hops."""
    hops = sorted({group.hops for evaluation in evaluations for group in evaluation.score.by_hops})
    headings = [
        f"EM %, {number} hop{'' if number == 1 else 's'}" if number else "EM %, hops unknown" for number in hops
    ]
    table = _plain_table(*headings)
    for evaluation in evaluations:
        found = {
            group.hops: f"{_between(group.exact_match)} of {group.exact_match.num}"
            for group in evaluation.score.by_hops
        }
        table.add_row(*_cells(evaluation.name, *(found.get(number, "") for number in hops)))
    return table


def _plain_table(*headings: str) -> Table:
    """A column for the result's name, which gives way where the terminal is narrow, and columns of numbers."""
    from rich.table import Table

    table = Table("result", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def _difference_line(evaluation: Evaluation, other: Evaluation, difference: Difference | None) -> str:
    if difference is None:
        return f"{evaluation.name} and {other.name} share no question, so no paired difference can be given"
    pair = f"{evaluation.name} - {other.name}, over {difference.exact_match.num} shared questions"
    return f"{pair}: EM {_between(difference.exact_match, '+')}, F1 {_between(difference.f1, '+')}"


def _between(interval: Interval, sign: str = "") -> str:
    """In percent: `31.0 [27.0, 35.0]`."""
    mean, low, high = (f"{100 * value:{sign}.1f}" for value in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}, {high}]"


def _cells(*values: str) -> list[Any]:
    from rich.text import Text

    from quaere.cli.episode_view import printable

    return [Text(printable(value)) for value in values]


def print_json(evaluation: Evaluation, others: list[Evaluation], stored: Run | None) -> None:
    """The result and what it is compared with; the questions one by one are in the run and in --out."""
    import json

    import msgspec

    from quaere.evaluation.answering import compare

    found = {
        "name": evaluation.name,
        "settings": evaluation.settings,
        "score": evaluation.score,
        "compare": [
            {"name": other.name, "score": other.score, "difference": compare(evaluation, other)} for other in others
        ],
        "run": str(stored.path) if stored else None,
    }
    print(json.dumps(json.loads(msgspec.json.encode(found)), indent=2))
