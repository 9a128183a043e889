"""Plans the import of an edited export: which verdicts are new, which are removed.

plan_import([VerdictRow(id="i0g-0001", verdict="rejected")], items, "mine.jsonl", "evolve-1").counts
-> {"rejected": 1, "cleared": 0, "unchanged": 0}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

from msgspec import Struct

from quaere.errors import BadInput
from quaere.runs.curriculum_audit import Item, find_item
from quaere.runs.item_files import VerdictRow
from quaere.runs.review import Verdict, VerdictKind, judge


class ImportPlan(Struct, frozen=True):
    """The changes that an import makes.

    ImportPlan(verdicts=[Verdict(...)], clear=["i0g-0002"], counts={"rejected": 1, "cleared": 1, "unchanged": 14})
    """

    verdicts: list[Verdict]
    clear: list[str]
    counts: dict[str, int]


def plan_import(rows: Sequence[VerdictRow], items: Sequence[Item], file: str, run_id: str) -> ImportPlan:
    """The changes from these rows; a row that does not belong to the run makes the whole file invalid."""
    known = {item.candidate.id: item for item in items}
    verdicts, clear = [], []
    for row in rows:
        item = known.get(row.id) or find_item(items, row.id, run_id)  # raises with the nearest id
        _check_words(row, item, file)
        kind, note = (row.verdict or "").strip(), row.note or ""
        now = (item.verdict.kind, item.verdict.note) if item.verdict else ("", "")
        if kind and (kind, note) != now:
            verdicts.append(judge(item.candidate, _read_kind(kind, row.id, file), note))
        elif not kind and item.verdict:
            clear.append(row.id)
    counted: Counter[str] = Counter(verdict.kind for verdict in verdicts)
    num_unchanged = len(rows) - len(verdicts) - len(clear)
    return ImportPlan(verdicts, clear, {**counted, "cleared": len(clear), "unchanged": num_unchanged})


def _check_words(row: VerdictRow, item: Item, file: str) -> None:
    """Raise `BadInput` if question or answer of a row differ from the run's."""
    # An edited question would be lost silently, and a verdict for another run's question would hit the wrong one.
    for name in ("question", "answer"):
        theirs = getattr(row, name)
        if theirs is not None and theirs != getattr(item.candidate, name):
            said = f"{file}: the {name} of {row.id} is not the one in the run"
            raise BadInput(said, hint="only the columns verdict and note are imported; export the file again")


def _read_kind(kind: str, id: str, file: str) -> Any:
    kinds = get_args(VerdictKind)
    if kind not in kinds:
        raise BadInput(f"{file}: {kind!r}, the verdict of {id}, is not one", hint=f"{', '.join(kinds)} or nothing")
    return kind
