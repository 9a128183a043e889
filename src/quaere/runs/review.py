"""A person's review of a curriculum: its candidates as items to audit, verdicts on them, and questions that are added.

    hard = ItemFilter(kept=True, hops=2, most={"votes": 1})
    [check_item(item, index.document) for item in read_items(run) if hard.admits(item)]
    give_verdicts(run.path, [judge(candidate, "rejected", note="two bridges fit")])
    is_learned(candidate, run.verdicts().get(candidate.id)) == False
    add_questions(run.path, [make_added("Who built the Halm bridge?", "Orsolya Venn", origin="mine.jsonl, row 1")])
    run.curriculum(iteration=0)[-1].id == "added-2ae454b42544"

Verdicts and added questions are stored apart from what the run itself wrote, at any time, also during training: they do
not need the run's lock, and SQLite serialises the writes. Truncating a run to a checkpoint keeps them. After that the
run may write a different question under an old id, so a verdict contains the text it was given on and applies only to
that text. Added questions are never changed or deleted; rejecting one removes it from the solver's curriculum.
"""

from __future__ import annotations

import hashlib
import math
import shlex
import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct, structs

from quaere.chat.spans import check_evidence
from quaere.errors import BadInput, nearest_hint
from quaere.records import Candidate, DropReason, Evidence
from quaere.runs.directory import DATABASE, connect
from quaere.runs.rows import candidate_row, insert

if TYPE_CHECKING:  # `reader` imports this module to read verdicts
    from quaere.runs.reader import RunReader

# "" without evidence; "unchecked" if the document was not available.
EvidenceState = Literal["", "unchecked", "verbatim", "mismatch"]
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
            insert(database, "verdicts", [structs.asdict(verdict) for verdict in verdicts], replace=True)
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


# ----------------------------------------------------------------------------------------------------------- the audit


class Item(Struct, frozen=True, gc=False):
    """A candidate, the verdict on it, and whether its evidence is in the document.

    `outdated` is a verdict that was given on a different text under the same id: it is shown and has no effect.
    `problem` describes what is wrong with the evidence. Only added questions have `origin` and `added_time`.

        Item(candidate=Candidate(...), verdict=Verdict(kind="rejected", ...), evidence_state="verbatim")
    """

    candidate: Candidate
    verdict: Verdict | None = None
    outdated: Verdict | None = None
    evidence_state: EvidenceState = ""
    problem: str = ""
    origin: str = ""
    added_time: str = ""

    @property
    def learned(self) -> bool:
        """True if a solver phase that starts now would train on the candidate."""
        return is_learned(self.candidate, self.verdict)

    @property
    def state(self) -> str:
        """ "kept" or the drop reason, as the run decided; "added" for an added question."""
        return "added" if self.candidate.added else self.candidate.reason or "kept"


def read_items(run: RunReader) -> list[Item]:
    """All candidates of a run in the order they were stored, then the added questions, each with its verdict."""
    verdicts = run.verdicts()
    return [
        Item(
            one.candidate,
            *match_verdict(one.candidate, verdicts.get(one.candidate.id)),
            evidence_state="unchecked" if one.candidate.evidence else "",
            origin=one.origin,
            added_time=one.time,
        )
        for one in (*map(Added, run.candidates()), *run.added())
    ]


def match_verdict(candidate: Candidate, verdict: Verdict | None) -> tuple[Verdict | None, Verdict | None]:
    """The stored verdict of a candidate as `Item.verdict` and `Item.outdated`: one of them is None."""
    return (verdict, None) if verdict is not None and verdict.is_about(candidate) else (None, verdict)


def find_item(items: Sequence[Item], id: str, run: Path) -> Item:
    """The item with this id; raises BadInput with the nearest existing id as a hint."""
    for item in items:
        if item.candidate.id == id:
            return item
    hint = nearest_hint(id, [item.candidate.id for item in items], f"quaere curriculum {shlex.quote(str(run))}")
    raise BadInput(f"run {run.absolute().name} has no candidate {id}", hint=hint)


def check_item(item: Item, read_document: Callable[[str], str] | None) -> Item:
    """The item with `evidence_state` set by comparing its evidence, character by character, with the document.

    Evidence that is not in the document is marked as a mismatch; it is neither removed nor corrected.
    """
    evidence = item.candidate.evidence
    if evidence is None or read_document is None:
        return item
    try:
        check_evidence(evidence, read_document(evidence.doc_id))
    except BadInput as error:
        return structs.replace(item, evidence_state="mismatch", problem=str(error))
    return structs.replace(item, evidence_state="verbatim")


def measures(candidate: Candidate) -> dict[str, float]:
    """The numbers a candidate can be filtered by; those that were not measured are absent.

    measures(candidate) == {"format": 1.0, "votes": 2.0, "rate": 0.4, "p+": 0.8, "p-": 0.2, "value": 0.6}
    """
    found = dict(candidate.scores)
    if candidate.num_attempts:
        found |= {"votes": float(candidate.num_right), "rate": candidate.num_right / candidate.num_attempts}
    if support := candidate.support:
        found |= {"p+": support.chance_with, "p-": support.chance_without, "value": support.value}
    return found


class ItemFilter(Struct, frozen=True):
    """A filter for items: an item must satisfy every condition that is set.

    `hops` is the number that was requested, `searches` the number the question needs. `least` and `most` are inclusive
    bounds on `measures`; an item without the measure does not pass.

    `kept` is the decision of the run; added questions pass for neither True nor False. Questions added to every
    iteration pass for any `iteration`. `verdict="none"` selects items without a verdict. `text` is searched for in
    question, answer and span, ignoring case.

        ItemFilter(kept=True, hops=2, least={"value": 0.5}, text="bridge")
    """

    kept: bool | None = None
    added: bool | None = None
    learned: bool | None = None
    reason: DropReason | None = None
    verdict: VerdictKind | Literal["none"] | None = None
    hops: int | None = None
    searches: int | None = None
    iteration: int | None = None
    text: str = ""
    least: dict[str, float] = {}
    most: dict[str, float] = {}

    def admits(self, item: Item) -> bool:
        """True if the item satisfies all conditions of the filter."""
        candidate = item.candidate
        is_always = candidate.iteration == EVERY_ITERATION
        wanted = (
            (self.kept, None if candidate.added else candidate.kept),
            (self.added, candidate.added),
            (self.learned, item.learned),
            (self.reason, candidate.reason),
            (self.verdict, item.verdict.kind if item.verdict else "none"),
            (self.hops, candidate.hops),
            (self.searches, candidate.num_searches),
            (self.iteration, self.iteration if is_always else candidate.iteration),
        )
        if not all(want is None or want == value for want, value in wanted):
            return False
        places = (candidate.question, candidate.answer, candidate.span, candidate.gold_span)
        if self.text and not any(self.text.casefold() in place.casefold() for place in places):
            return False
        found = measures(candidate) if self.least or self.most else {}
        # NaN, also of a missing measure, is within no bound: `nan >= 0` is false.
        return all(found.get(name, math.nan) >= least for name, least in self.least.items()) and all(
            found.get(name, math.nan) <= most for name, most in self.most.items()
        )

    def check_measures(self, items: Sequence[Item], run_id: str) -> None:
        """Raise BadInput for a bound on a measure that no item has: a typo would otherwise give an empty list."""
        known = sorted({name for item in items for name in measures(item.candidate)})
        for name in (*self.least, *self.most):
            if items and name not in known:
                hint = nearest_hint(name, known, f"one of {', '.join(known)}" if known else "remove the bound")
                raise BadInput(f"no candidate of run {run_id} has a measure {name}", hint=hint)
