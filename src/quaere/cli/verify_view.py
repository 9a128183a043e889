"""Prints results of `quaere verify`: a row per claim, then the means over all spans."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from quaere.evaluation.claims import SupportingScore, Verified
    from quaere.evaluation.intervals import Interval

_QUESTION_CHARS = 60


def print_items(score: SupportingScore, items: list[Verified]) -> None:
    """Print the table, the means with their intervals, and how many spans help, have no effect or hurt."""
    from rich.console import Console

    from quaere.cli.episode_view import count

    # A file or pipe has no width of its own; 140 columns keep the table from being wrapped at 80.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    console.print(_table(items, with_places=score.num_verbatim is not None))
    console.print()
    for name, interval in (("p+", score.chance_with), ("p-", score.chance_without), ("V", score.value)):
        if interval is not None:
            console.print(f"mean {name:2} {_between(interval, '+' if name == 'V' else '')}", markup=False)
    told = f"{score.num_helping} help, {score.num_idle} do nothing (V within 0.05 of 0), {score.num_hurting} hurt"
    console.print(f"of {count(len(items) - score.num_unverified, 'span')}: {told}", markup=False)
    if score.num_verbatim is not None:
        console.print(f"{score.num_verbatim} of {count(len(items), 'span')} stand verbatim in a document", markup=False)
    if score.num_without_evidence:
        console.print(f"{count(score.num_without_evidence, 'claim')} without evidence", style="yellow", markup=False)
    if score.num_unverified:
        told = f"{count(score.num_unverified, 'claim')} could not be verified: the model failed, or they are too long"
        console.print(told, style="yellow", markup=False)


def _table(items: list[Verified], *, with_places: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    from quaere.cli.episode_view import printable

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("id", "p+", "p-", "V"):
        table.add_column(heading, no_wrap=True)
    table.add_column("question")
    table.add_column("answer")
    if with_places:
        table.add_column("verbatim in", no_wrap=True)
    for item in items:
        support, claim = item.support, item.claim
        numbers = ["?", "?", "?"]
        if support is not None:
            value = round(support.value, 2) + 0.0  # no "-0.00"
            numbers = [f"{support.chance_with:.2f}", f"{support.chance_without:.2f}", f"{value:+.2f}"]
        words = [_cut(claim.question), _cut(claim.answers[0])]
        table.add_row(
            *(Text(printable(cell)) for cell in (claim.id, *numbers, *words, *([_place(item)] if with_places else [])))
        )
    return table


def _place(item: Verified) -> str:
    """The place of the first span, `halm.md:28-49`, and the number of further spans."""
    if not item.evidence:
        return "no document" if item.claim.span.strip() else "no evidence"
    first, *others = item.evidence
    return f"{first.doc_id}:{first.start}-{first.end}" + (f" and {len(others)} more" if others else "")


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _QUESTION_CHARS else line[: _QUESTION_CHARS - 1] + "…"


def _between(interval: Interval, sign: str) -> str:
    mean, low, high = (f"{value:{sign}.3f}" for value in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}, {high}]"


def result_json(settings: dict[str, Any], score: SupportingScore, items: list[Verified]) -> str:
    """Settings, score and every claim with its result, as JSON."""
    import msgspec

    found = {"settings": settings, "score": score, "items": items}
    return json.dumps(json.loads(msgspec.json.encode(found)), indent=1, ensure_ascii=False)
