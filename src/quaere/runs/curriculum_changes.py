"""Plans changes of a run's curriculum from a file: questions to add, and verdicts of an edited export.

plan_add([QuestionRow(question="Who built it?", answer="Venn")], items, "mine.jsonl")
-> ([Added(...)], {"added": 1})
plan_import([VerdictRow(id="i0g-0001", verdict="rejected")], items, "mine.jsonl", "evolve-1")
-> ([Verdict(...)], [], {"rejected": 1, "cleared": 0, "unchanged": 0})

Rows written by a person must all be valid, or the whole file is refused. Rows of an export (they have `learned`) come
from a run, and runs repeat questions: of these, rows that the run has already are left out.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from quaere.errors import BadInput
from quaere.runs.curriculum_audit import Item, find_item
from quaere.runs.item_files import QUESTION_SHAPE, QuestionRow, VerdictRow
from quaere.runs.review import Added, Verdict, VerdictKind, judge, make_added


def plan_add(
    rows: Sequence[QuestionRow],
    items: Sequence[Item],
    file: str,
    *,
    iteration: int | None = None,
    take_all: bool = False,
) -> tuple[list[Added], dict[str, int]]:
    """The questions to add from these rows, and the number of rows by what became of them; `items` are the run's own.

    ([Added(...)], {"added": 1, "not learned from": 3, "there already": 1})
    """
    if not rows:
        raise BadInput(f"{file} has no question", hint=QUESTION_SHAPE)
    # Known are all added questions, and those the run wrote for the same iteration.
    known = {
        (item.candidate.question, item.candidate.answer): item.candidate.id
        for item in items
        if item.candidate.added or iteration is None or item.candidate.iteration == iteration
    }
    added: list[Added] = []
    counts = Counter(dict.fromkeys(("added", "not learned from", "there already"), 0))
    for number, row in enumerate(rows, start=1):
        is_exported = row.learned is not None
        question, answer = row.question or "", _answer(row)
        is_whole = bool(question.strip() and answer.strip())
        if row.learned is False and not (take_all and is_whole):
            counts["not learned from"] += 1
            continue
        if not is_whole:
            lacking = "answer" if question.strip() else "question"
            raise BadInput(f"{file}, row {number}: the {lacking} is missing", hint=QUESTION_SHAPE)
        where = known.get((question, answer))
        if where and not is_exported:
            raise BadInput(
                f"{file}, row {number}: the curriculum has this question already, as {where}", hint="remove the row"
            )
        if where:
            counts["there already"] += 1
            continue
        known[question, answer] = f"row {number}"
        added.append(_make(row, question, answer, iteration, _origin(row, file, number)))
        counts["added"] += 1
    return added, {what: number for what, number in counts.items() if number or what == "added"}


def settle_evidence(item: Added, checked: Item) -> Added:
    """The item with its evidence if that is verbatim in the run's documents; else with its text as a span only."""
    evidence = item.candidate.evidence
    if evidence is None or checked.evidence_state == "verbatim":
        return item
    candidate = msgspec.structs.replace(item.candidate, evidence=None, span=evidence.text)
    return msgspec.structs.replace(item, candidate=candidate)


def _answer(row: QuestionRow) -> str:
    """The row's answer or, in a question file, the first of its answers; the others are accepted too."""
    return row.answer if row.answer is not None else next(iter(row.answers or ()), "")


def _make(row: QuestionRow, question: str, answer: str, iteration: int | None, origin: str) -> Added:
    # Question files have one span per fact, and the last one states the answer; an export has one or none.
    evidence = row.evidence[-1] if row.evidence else None
    return make_added(
        question,
        answer,
        iteration=iteration,
        facts=row.num_facts,
        document_id=row.document_id or (evidence.doc_id if evidence else ""),
        span=row.span or "",
        evidence=evidence,
        aliases=tuple(dict.fromkeys(text for text in row.answers or () if text.strip() and text != answer)),
        origin=origin,
    )


def _origin(row: QuestionRow, file: str, number: int) -> str:
    if row.run and row.id:
        return f"run {row.run}, {row.id}"
    return f"{Path(file).name}, {row.id or f'row {number}'}"


# ----------------------------------------------------------------------------------------- verdicts of an edited export


def plan_import(
    rows: Sequence[VerdictRow], items: Sequence[Item], file: str, run_id: str
) -> tuple[list[Verdict], list[str], dict[str, int]]:
    """The verdicts to give, the ids whose verdicts to remove, and counts; `BadInput` for a row of another run.

    ([Verdict(...)], ["i0g-0002"], {"rejected": 1, "cleared": 1, "unchanged": 14})
    """
    known = {item.candidate.id: item for item in items}
    verdicts, clear = [], []
    for row in rows:
        item = known.get(row.id) or find_item(items, row.id, run_id)  # raises with the nearest id
        # An edited question would be lost silently, and a verdict for another run's question would hit the wrong one.
        for name in ("question", "answer"):
            if getattr(row, name) not in (None, getattr(item.candidate, name)):
                said = f"{file}: the {name} of {row.id} is not the one in the run"
                raise BadInput(said, hint="only the columns verdict and note are imported; export the file again")
        kind, note = (row.verdict or "").strip(), row.note or ""
        now = (item.verdict.kind, item.verdict.note) if item.verdict else ("", "")
        if kind and (kind, note) != now:
            verdicts.append(judge(item.candidate, _read_kind(kind, row.id, file), note))
        elif not kind and item.verdict:
            clear.append(row.id)
    counted: Counter[str] = Counter(verdict.kind for verdict in verdicts)
    num_unchanged = len(rows) - len(verdicts) - len(clear)
    return verdicts, clear, {**counted, "cleared": len(clear), "unchanged": num_unchanged}


def _read_kind(kind: str, id: str, file: str) -> Any:
    kinds = get_args(VerdictKind)
    if kind not in kinds:
        raise BadInput(f"{file}: {kind!r}, the verdict of {id}, is not one", hint=f"{', '.join(kinds)} or nothing")
    return kind
