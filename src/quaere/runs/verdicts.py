"""What a person says of a candidate. It lies apart from what the run itself decided, and changes none of it.

    give_verdicts(run.path, [judge(candidate, "rejected", note="two bridges fit")])
    is_learned(candidate, run.verdicts().get(candidate.id)) == False

Anybody may give a verdict at any time, also while the run is being trained: the lock of the run is not needed, and the
database lets one write while another waits. A run that is cut back to a checkpoint keeps its verdicts. What it then
writes anew under an old id may be another question, so a verdict holds the words it was given on and counts only for
those.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from quaere.errors import BadInput
from quaere.records import Candidate
from quaere.runs.database import connect, insert
from quaere.runs.directory import DATABASE

VerdictKind = Literal["accepted", "rejected", "flagged"]


class Verdict(Struct, frozen=True):
    """What a person said of a candidate, when, and the words it was said of.

    Verdict(candidate_id="i0g-0001", kind="rejected", question="Who built it?", answer="Orsolya Venn", span="",
            note="which bridge?", time="2025-03-01T10:15:00+00:00")
    """

    candidate_id: str
    kind: VerdictKind
    question: str
    answer: str
    span: str
    note: str = ""
    time: str = ""

    def is_about(self, candidate: Candidate) -> bool:
        """Was it given on these very words?"""
        judged = (self.candidate_id, self.question, self.answer, self.span)
        return judged == (candidate.id, candidate.question, candidate.answer, candidate.gold_span)


def judge(candidate: Candidate, kind: VerdictKind, note: str = "") -> Verdict:
    """A verdict on a candidate, given now; what has no question or no answer cannot be accepted."""
    if kind == "accepted" and not can_be_learned(candidate):
        lacking = "question" if not candidate.question.strip() else "answer"
        raise BadInput(f"{candidate.id} cannot be accepted: it has no {lacking}")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Verdict(candidate.id, kind, candidate.question, candidate.answer, candidate.gold_span, note, now)


def can_be_learned(candidate: Candidate) -> bool:
    """Is there a question to put and an answer to compare with?"""
    return bool(candidate.question.strip() and candidate.answer.strip())


def is_learned(candidate: Candidate, verdict: Verdict | None) -> bool:
    """Does a solver learn from it? As the run decided, unless a person accepted or rejected these very words."""
    if verdict is None or verdict.kind == "flagged" or not verdict.is_about(candidate):
        return candidate.kept
    return verdict.kind == "accepted" and can_be_learned(candidate)


def give_verdicts(directory: Path, verdicts: Sequence[Verdict], *, clear: Collection[str] = ()) -> None:
    """Store verdicts, each in place of an earlier one on the same candidate, and forget those on the ids in `clear`.

    All of it is done, or nothing. When this returns, it is on disk.
    """
    try:
        with closing(connect(directory / DATABASE, write=True)) as database, database:
            database.executemany("DELETE FROM verdicts WHERE candidate_id = ?", [(id,) for id in clear])
            insert(database, "verdicts", [msgspec.structs.asdict(verdict) for verdict in verdicts], replace=True)
    except (sqlite3.Error, UnicodeError) as error:
        raise BadInput(f"cannot write verdicts to the run {directory}: {error}") from error


def read_verdicts(database: sqlite3.Connection) -> dict[str, Verdict]:
    """Every verdict by the id of its candidate; none where the schema is from before there were any."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'verdicts'").fetchone():
        return {}
    rows = database.execute("SELECT * FROM verdicts ORDER BY time, candidate_id")
    return {row["candidate_id"]: msgspec.convert(dict(row), Verdict) for row in rows}
