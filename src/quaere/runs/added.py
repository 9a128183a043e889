"""Questions a person gives to a run's solver. They lie apart from what the run itself wrote, as verdicts do.

    add_questions(run.path, [make_added("Who built the Halm bridge?", "Orsolya Venn", origin="mine.jsonl, row 1")])
    run.curriculum(iteration=0)[-1].id == "added-2ae454b42544"

Anybody may add at any time, also while the run is being trained, and a run that is cut back to a checkpoint keeps what
was added. Nothing is changed or taken away afterwards: to reject an added question keeps the solver from it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from quaere.errors import BadInput
from quaere.records import Candidate, Evidence
from quaere.runs.database import connect, insert
from quaere.runs.directory import DATABASE
from quaere.runs.rows import candidate_row, read_candidate
from quaere.runs.verdicts import can_be_learned

EVERY_ITERATION = -1  # what a question for no iteration in particular has as its iteration
_COLUMNS = ("id", "iteration", "document_id", "hops", "question", "answer", "span", "evidence", "aliases")


class Added(Struct, frozen=True):
    """A question somebody added, as the candidate a solver learns from; where it comes from, and when it was given.

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
    """A question given now, for one iteration or, by default, for every one. Its id follows from its words.

    `evidence` must have been compared with the documents of the run; what was not is a `span`, mere text.
    """
    words = hashlib.sha256(msgspec.json.encode((question, answer))).hexdigest()
    candidate = Candidate(
        id=f"added-{words[:12]}",
        step=0,
        iteration=EVERY_ITERATION if iteration is None else iteration,
        episode_id="",  # none has written it
        document_id=document_id,
        hops=facts,
        question=question,
        answer=answer,
        span=span,
        evidence=evidence,
        aliases=aliases,
    )
    return Added(candidate, origin, datetime.now(UTC).isoformat(timespec="seconds"))


def add_questions(directory: Path, added: Sequence[Added]) -> None:
    """Store added questions: all of them, or none. When this returns, they are on disk."""
    for item in added:
        if not can_be_learned(item.candidate):
            raise BadInput(f"{item.origin or item.candidate.id}: there must be a question and an answer")
    try:
        with closing(connect(directory / DATABASE, write=True)) as database:
            insert(database, "added", [_added_row(item) for item in added])
    except sqlite3.IntegrityError as error:
        raise BadInput(f"one of the questions was added to the run {directory} already") from error
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        raise BadInput(f"cannot add questions to the run {directory}: {error}") from error


def read_added(database: sqlite3.Connection) -> list[Added]:
    """What was added, in that order; nothing where the schema is from before there was any."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'added'").fetchone():
        return []
    rows = [dict(row) for row in database.execute("SELECT * FROM added ORDER BY number")]
    return [Added(read_candidate({**row, "step": 0, "episode_id": ""}), row["origin"], row["time"]) for row in rows]


def _added_row(item: Added) -> dict[str, str | int | None]:
    values = candidate_row(item.candidate)
    return {**{name: values[name] for name in _COLUMNS}, "origin": item.origin, "time": item.time}
