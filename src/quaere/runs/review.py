"""A person's review of a curriculum: verdicts on candidates, and questions that are added.

    give_verdicts(run.path, [judge(candidate, "rejected", note="two bridges fit")])
    is_learned(candidate, run.verdicts().get(candidate.id)) == False
    add_questions(run.path, [make_added("Who built the Halm bridge?", "Orsolya Venn", origin="mine.jsonl, row 1")])
    run.curriculum(iteration=0)[-1].id == "added-2ae454b42544"

Both are stored apart from what the run itself wrote, at any time, also during training: they do not need the run's
lock, and SQLite serialises the writes. Truncating a run to a checkpoint keeps them. After that the run may write a
different question under an old id, so a verdict contains the text it was given on and applies only to that text. Added
questions are never changed or deleted; rejecting one removes it from the solver's curriculum.
"""

import hashlib
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from quaere.errors import BadInput
from quaere.records import Candidate, Evidence
from quaere.runs.directory import DATABASE, connect
from quaere.runs.rows import candidate_row, insert

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
    if kind == "accepted" and not _can_be_learned(candidate):
        lacking = "question" if not candidate.question.strip() else "answer"
        raise BadInput(f"candidate {candidate.id} cannot be accepted: it has no {lacking}")
    return Verdict(candidate.id, kind, candidate.question, candidate.answer, candidate.gold_span, note, _now())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _can_be_learned(candidate: Candidate) -> bool:
    return bool(candidate.question.strip() and candidate.answer.strip())


def is_learned(candidate: Candidate, verdict: Verdict | None) -> bool:
    """True if the solver trains on the candidate: the run's decision, unless a verdict on this text overrides it."""
    if verdict is None or verdict.kind == "flagged" or not verdict.is_about(candidate):
        return candidate.kept
    return verdict.kind == "accepted" and _can_be_learned(candidate)


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


# ---------------------------------------------------------------------------------------------------- added questions

EVERY_ITERATION = -1  # `iteration` of a question that is added to every iteration
_COLUMNS = ("id", "iteration", "document_id", "hops", "question", "answer", "span", "evidence", "aliases")


class Added(Struct, frozen=True):
    """A question added by a person: the candidate the solver learns from, its origin and the time it was added.

    Added(Candidate(id="added-2ae454b42544", ...), origin="mine.jsonl, row 1", time="2025-03-01T10:15:00+00:00")
    """

    candidate: Candidate
    origin: str = ""
    time: str = ""


def make_added(
    question: str,
    answer: str,
    *,
    iteration: int | None = None,
    facts: int = 0,
    document_id: str = "",
    span: str = "",
    evidence: Evidence | None = None,
    aliases: tuple[str, ...] = (),
    origin: str = "",
) -> Added:
    """A question added now, for one iteration or, by default, for all. Its id is a hash of question and answer.

    `evidence` must already have been compared with the run's documents; unchecked evidence goes into `span` as plain
    text.
    """
    id = f"added-{hashlib.sha256(msgspec.json.encode((question, answer))).hexdigest()[:12]}"
    place = (id, 0, EVERY_ITERATION if iteration is None else iteration, "")  # no step and no episode wrote it
    texts = (document_id, facts, question, answer)
    return Added(Candidate(*place, *texts, span=span, evidence=evidence, aliases=aliases), origin, _now())


def add_questions(directory: Path, added: Sequence[Added]) -> None:
    """Store added questions in one transaction: all or none. They are on disk when this returns."""
    for item in added:
        if not _can_be_learned(item.candidate):
            raise BadInput(f"{item.origin or item.candidate.id}: question and answer must not be empty")
    candidates = [candidate_row(item.candidate) for item in added]
    rows = [
        {name: row[name] for name in _COLUMNS} | {"origin": item.origin, "time": item.time}
        for row, item in zip(candidates, added, strict=True)
    ]
    try:
        with closing(connect(directory / DATABASE, write=True)) as database:
            insert(database, "added", rows)
    except sqlite3.IntegrityError as error:
        raise BadInput(f"at least one of the questions is already in the run {directory}") from error
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        raise BadInput(f"cannot add questions to the run {directory}: {error}") from error
