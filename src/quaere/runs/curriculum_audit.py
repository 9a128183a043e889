"""The curriculum of a run for auditing: every candidate with its scores and a person's verdict.

    items = read_items(run)
    hard = ItemFilter(kept=True, hops=2, most={"votes": 1})
    [check_item(item, index.document) for item in items if hard.admits(item)]

`check_item` compares an item's evidence with its document. Evidence that is not in the document is marked as a
mismatch; it is neither removed nor corrected.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct, structs

from quaere.chat.spans import check_evidence
from quaere.errors import BadInput, nearest_hint
from quaere.records import Candidate, DropReason
from quaere.runs.reader import RunReader
from quaere.runs.review import EVERY_ITERATION, Added, Verdict, VerdictKind, is_learned

# "" without evidence; "unchecked" if the document was not available.
EvidenceState = Literal["", "unchecked", "verbatim", "mismatch"]


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


def find_item(items: Sequence[Item], id: str, run_id: str) -> Item:
    """The item with this id; raises BadInput with the nearest existing id as a hint."""
    for item in items:
        if item.candidate.id == id:
            return item
    hint = nearest_hint(id, [item.candidate.id for item in items], f"quaere curriculum {run_id}")
    raise BadInput(f"run {run_id} has no candidate {id}", hint=hint)


def check_item(item: Item, read_document: Callable[[str], str] | None) -> Item:
    """The item with `evidence_state` set by comparing its evidence, character by character, with the document."""
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
