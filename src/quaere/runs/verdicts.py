"""People's verdicts on candidates. They are stored apart from the run's own decisions and do not change them.

    give_verdicts(run.path, [judge(candidate, "rejected", note="two bridges fit")])
    is_learned(candidate, run.verdicts().get(candidate.id)) == False

Verdicts can be given at any time, also during training: they do not need the run's lock, and SQLite serialises the
writes. Truncating a run to a checkpoint keeps its verdicts. After that the run may write a different question under an
old id, so a verdict contains the text it was given on and applies only to that text.
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
    """A person's verdict on a candidate, with its time and the text it was given on.

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
        """True if the candidate has exactly the id and text the verdict was given on."""
        judged = (self.candidate_id, self.question, self.answer, self.span)
        return judged == (candidate.id, candidate.question, candidate.answer, candidate.gold_span)


def judge(candidate: Candidate, kind: VerdictKind, note: str = "") -> Verdict:
    """A verdict on a candidate, given now; raises BadInput on accepting a candidate without question or answer."""
    if kind == "accepted" and not can_be_learned(candidate):
        lacking = "question" if not candidate.question.strip() else "answer"
        raise BadInput(f"candidate {candidate.id} cannot be accepted: it has no {lacking}")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Verdict(candidate.id, kind, candidate.question, candidate.answer, candidate.gold_span, note, now)


def can_be_learned(candidate: Candidate) -> bool:
    """True if the candidate has a question and an answer."""
    return bool(candidate.question.strip() and candidate.answer.strip())


def is_learned(candidate: Candidate, verdict: Verdict | None) -> bool:
    """True if the solver trains on the candidate: the run's decision, unless a verdict on this text overrides it."""
    if verdict is None or verdict.kind == "flagged" or not verdict.is_about(candidate):
        return candidate.kept
    return verdict.kind == "accepted" and can_be_learned(candidate)


def give_verdicts(directory: Path, verdicts: Sequence[Verdict], *, clear: Collection[str] = ()) -> None:
    """Store verdicts, replacing earlier ones on the same candidates, and delete those on the ids in `clear`.

    One transaction: all or nothing. The verdicts are on disk when this returns.
    """
    try:
        with closing(connect(directory / DATABASE, write=True)) as database, database:
            database.executemany("DELETE FROM verdicts WHERE candidate_id = ?", [(id,) for id in clear])
            insert(database, "verdicts", [msgspec.structs.asdict(verdict) for verdict in verdicts], replace=True)
    except (sqlite3.Error, UnicodeError) as error:
        raise BadInput(f"cannot write verdicts to the run {directory}: {error}") from error


def read_verdicts(database: sqlite3.Connection) -> dict[str, Verdict]:
    """All verdicts by candidate id; {} for a database older than this table."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'verdicts'").fetchone():
        return {}
    rows = database.execute("SELECT * FROM verdicts ORDER BY time, candidate_id")
    return {row["candidate_id"]: msgspec.convert(dict(row), Verdict) for row in rows}
