"""The table of a suite: its rows, and how they are shown on the terminal and written as Markdown, CSV and JSON.

make_tables(rows)[0].title == "dev"
print_tables(rows)
write_tables(rows, Path("suite"))      # suite/table.md, table.csv, table.json

A row that was made with another index or other questions than the set has now is marked, and its difference to other
rows says nothing of their methods.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from quaere.api.evaluation_table import ABSTENTION_HEAD, abstention_cells
from quaere.api.printing import as_json, between, count, plain_table, wide_console
from quaere.chat.terminal_text import printable
from quaere.disk import write_file
from quaere.evaluation.intervals import Interval, mean_of_means
from quaere.evaluation.qa.abstaining import AbstentionScore
from quaere.evaluation.qa.scores import Evaluation

_HEAD = ("model", "method", "questions", "EM %", "F1 %", "searches", "tokens", "answered %", "minutes")
_MEAN_HEAD = ("model", "method", "EM %", "F1 %")


class Row(Struct, frozen=True):
    """The result of a model with a method on a set, and all that it depends on.

    `differs` are what the set has changed since: ("index",), ("questions",) or both. `abstention` is None if
    nothing is known of it.

    Row(set="dev", model="base", method="rag", num_questions=500, exact_match=Interval(...), f1=Interval(...),
        mean_searches=1.0, mean_tokens=14.2, answered=0.98, seconds=41.5, settings={"weights": "5f2c...", ...})
    """

    set: str
    model: str
    method: str
    num_questions: int
    exact_match: Interval
    f1: Interval
    mean_searches: float
    mean_tokens: float
    answered: float
    seconds: float
    settings: dict[str, Any]
    differs: tuple[str, ...] = ()
    num_failed: int = 0  # episodes in which the model or a search failed; each counts as wrong
    abstention: AbstentionScore | None = None


class Part(Struct, frozen=True):
    """One table, with a title and with notes below it.

    Part(title="dev", head=("model", "method", "EM %"), rows=[("base", "rag", "31.0 [27.0, 35.0]")], notes=[])
    """

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: list[str] = []


def make_row(set: str, model: str, method: str, found: Evaluation, differs: tuple[str, ...]) -> Row:
    """The row of a cell."""
    score, settings = found.score, dict(found.settings)
    seconds = float(settings.pop("seconds", 0.0))
    return Row(
        set=set,
        model=model,
        method=method,
        num_questions=len(found.questions),
        exact_match=score.exact_match,
        f1=score.f1,
        mean_searches=score.mean_searches,
        mean_tokens=score.mean_tokens,
        answered=score.answered,
        seconds=seconds,
        settings=settings,
        differs=differs,
        num_failed=sum(one.end == "failed" or one.search_failed for one in found.questions),
        abstention=structs.replace(score.abstention, by_kind={}) if score.abstention else None,
    )


# -------------------------------------------------------------------------------------------------------------- tables


def make_tables(rows: Sequence[Row]) -> list[Part]:
    """A table for each set, one of its abstention where that is known and, of several sets, one of the means."""
    sets = list(dict.fromkeys(row.set for row in rows))
    parts = []
    for name in sets:
        found = [row for row in rows if row.set == name]
        parts.append(_table_of(found, name))
        abstaining = [(row.model, row.method, *abstention_cells(row.abstention)) for row in found if row.abstention]
        if abstaining:
            parts.append(Part(f"{name}: abstention", ("model", "method", *ABSTENTION_HEAD), abstaining))
    return [*parts, _mean_table(rows, sets)] if len(sets) > 1 else parts


def _table_of(rows: Sequence[Row], title: str) -> Part:
    shown, notes = [], []
    for row in rows:
        said = (between(row.exact_match), between(row.f1), f"{row.mean_searches:.2f}", f"{row.mean_tokens:.0f}")
        costs = (f"{100 * row.answered:.1f}", f"{row.seconds / 60:.1f}")
        shown.append((row.model, row.method + _mark(row), str(row.num_questions), *said, *costs))
        if row.differs:
            which = " and ".join("another index" if name == "index" else "other questions" for name in row.differs)
            notes.append(f"* {row.model}, {row.method}: with {which}, not comparable with the others")
        if row.num_failed:
            failed = count(row.num_failed, "episode")
            notes.append(f"* {row.model}, {row.method}: the model or a search failed in {failed}; each counts as wrong")
    if num_open := max(row.num_questions - row.exact_match.num for row in rows):
        notes.append(f"{count(num_open, 'question')} without an answer left out of EM and F1")
    devices = dict.fromkeys(str(row.settings.get("device", "")) for row in rows)
    return Part(title, _HEAD, shown, [*notes, f"minutes on {', '.join(devices)}"])


def _mark(row: Row) -> str:
    return " *" if row.differs else ""


def _mean_table(rows: Sequence[Row], sets: Sequence[str]) -> Part:
    """Means over the sets, each with the same weight, of what was evaluated on all of them and is not marked."""
    of: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        of.setdefault((row.model, row.method), []).append(row)
    shown = []
    for (model, method), found in of.items():
        if len(found) == len(sets) and not any(row.differs for row in found):
            means = (mean_of_means([getattr(row, name) for row in found]) for name in ("exact_match", "f1"))
            shown.append((model, method, *map(between, means)))
    return Part(f"mean of {len(sets)} sets", _MEAN_HEAD, shown)


def print_tables(rows: Sequence[Row]) -> None:
    """Print the tables on the terminal."""
    console = wide_console(120)
    for part in make_tables(rows):
        console.print(printable(part.title), style="bold", markup=False)
        console.print(plain_table(*part.head, rows=part.rows, whole=part.head))
        for note in part.notes:
            console.print(printable(note), style="yellow" if note.startswith("*") else "dim", markup=False)
        console.print()


def write_tables(rows: Sequence[Row], folder: Path) -> None:
    """Write the tables as table.md, and the rows as table.csv and table.json."""
    write_file(folder / "table.md", "\n".join(map(_as_markdown, make_tables(rows))))
    write_file(folder / "table.csv", _as_csv(rows))
    write_file(folder / "table.json", as_json(rows) + "\n")


def _as_markdown(part: Part) -> str:
    lines = [part.head, tuple("---" for _ in part.head), *part.rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"### {part.title}\n\n{table}\n" + "".join(f"\n{note}\n" for note in part.notes)


def _as_csv(rows: Sequence[Row]) -> str:
    """One line per row; intervals and settings have a column for each of their values."""
    lines = [_flat(msgspec.to_builtins(row)) for row in rows]
    names = list(dict.fromkeys(name for line in lines for name in line))
    # A column that another row splits into several is left out.
    names = [name for name in names if not any(other.startswith(f"{name}.") for other in names)]
    file = io.StringIO()
    writer = csv.DictWriter(file, names, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return file.getvalue()


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, and lists as words.

    _flat({"f1": {"mean": 0.5}, "differs": ("index",)}) == {"f1.mean": 0.5, "differs": "index"}
    """
    found: dict[str, Any] = {}
    for name, one in value.items():
        if isinstance(one, dict):
            found |= _flat(one, f"{prefix}{name}.")
        else:
            found[prefix + name] = " ".join(map(str, one)) if isinstance(one, list | tuple) else one
    return found
