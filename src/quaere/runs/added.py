"""Questions that a person adds to a run's curriculum, stored apart from what the run itself wrote.

    add_questions(run.path, [make_added("Who built the Halm bridge?", "Orsolya Venn", origin="mine.jsonl, row 1")])
    run.curriculum(iteration=0)[-1].id == "added-2ae454b42544"

Questions can be added at any time, also during training, and truncating a run to a checkpoint keeps them. They are
never changed or deleted; rejecting an added question (see `verdicts.py`) removes it from the solver's curriculum.
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
    words = hashlib.sha256(msgspec.json.encode((question, answer))).hexdigest()
    candidate = Candidate(
        id=f"added-{words[:12]}",
        step=0,
        iteration=EVERY_ITERATION if iteration is None else iteration,
        episode_id="",  # no episode wrote it
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
    """Store added questions in one transaction: all or none. They are on disk when this returns."""
    for item in added:
        if not can_be_learned(item.candidate):
            raise BadInput(f"{item.origin or item.candidate.id}: question and answer must not be empty")
    try:
        with closing(connect(directory / DATABASE, write=True)) as database:
            insert(database, "added", [_added_row(item) for item in added])
    except sqlite3.IntegrityError as error:
        raise BadInput(f"at least one of the questions is already in the run {directory}") from error
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        raise BadInput(f"cannot add questions to the run {directory}: {error}") from error


def read_added(database: sqlite3.Connection) -> list[Added]:
    """Added questions in the order they were added; [] for a database older than this table."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'added'").fetchone():
        return []
    rows = [dict(row) for row in database.execute("SELECT * FROM added ORDER BY number")]
    return [Added(read_candidate({**row, "step": 0, "episode_id": ""}), row["origin"], row["time"]) for row in rows]


def _added_row(item: Added) -> dict[str, str | int | None]:
    values = candidate_row(item.candidate)
    return {**{name: values[name] for name in _COLUMNS}, "origin": item.origin, "time": item.time}
