"""The pages that audit a curriculum: its items by facets, one item with its document, and verdicts on them.

read_curriculum(run, "notes", CurriculumQuery(state="kept", text="bridge"), shelves).page.items[0].candidate.question

A verdict is written as `quaere curriculum` writes it, and training honours it: see `runs/review.py`. The counts of a
facet are over the items that the choices in all other facets select, so that a person sees what another value of this
facet would give.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct, structs

from quaere.api.run import Run, RunDocuments, open_documents
from quaere.errors import BadInput
from quaere.records import Candidate
from quaere.runs.review import (
    EVERY_ITERATION,
    Item,
    Verdict,
    VerdictKind,
    check_item,
    give_verdicts,
    is_learned,
    judge,
    match_verdict,
    read_items,
)
from quaere.runs.rows import EpisodeFilter
from quaere.viewer.document_reader import TextPart, mark_part
from quaere.viewer.page_formats import ById, Listed, ListPage, cut_page, read_body
from quaere.viewer.run_folder import Kept, require

MAX_NOTE_CHARS = 2000
_CONTEXT_CHARS = 4000  # characters of a long document that are shown on either side of the span
TITLES = {
    "state": "Kept, or why not",
    "refused": "Refused by",
    "searches": "Searches needed",
    "rate": "Pass rate",
    "value": "Value of the evidence",
    "cluster": "Cluster",
    "iteration": "Iteration",
    "verdict": "Verdict",
}
"""The facets, by the names that addresses use."""

_RATES = ("not attempted", "never", "up to 1/3", "up to 2/3", "above 2/3", "always")
_VALUES = ("not measured", "below 0", "0 to 0.25", "0.25 to 0.5", "0.5 to 0.75", "0.75 to 1")
_RANGES = {"rate": _RATES, "value": _VALUES}


class CurriculumQuery(Listed, frozen=True):
    """Which items are listed: those with the chosen value of each facet, and with every word of the text.

    CurriculumQuery(state="kept", searches="2", text="bridge", page=2)
    """

    state: str = ""
    refused: str = ""
    searches: str = ""
    rate: str = ""
    value: str = ""
    cluster: str = ""
    iteration: str = ""
    verdict: str = ""

    def chosen(self) -> dict[str, str]:
        """The chosen value of each facet that has one, by the facet's name."""
        return {name: value for name in TITLES if (value := getattr(self, name))}


class FacetValue(Struct, frozen=True):
    """A value of a facet and the number of items that have it.

    FacetValue("never solved", 6, is_chosen=False)
    """

    value: str
    count: int
    is_chosen: bool


class Facet(Struct, frozen=True):
    """A property that items can be filtered by, with its values: numbers and ranges ascending, others by frequency."""

    name: str
    title: str
    values: list[FacetValue]


class CurriculumPage(ListPage[CurriculumQuery, Item], frozen=True):
    """One page of the items that a query selects.

    `num_items` counts all items of the run; `num_learned` counts the selected items that training would use.
    """

    run: str
    num_items: int
    num_learned: int
    facets: list[Facet]


class ItemPage(Struct, frozen=True):
    """An item, its document with the evidence marked, and the rewards of its proposer's episode (`paid`).

    `document` is the text, or the part around the evidence; `said` is why there is none. `value` is the probability of
    the answer with the evidence minus that without it.
    `writer` is the id of the proposer's episode, "" if the run did not store it.
    """

    run: str
    item: Item
    is_learned: bool
    value: float | None
    document_id: str
    document: list[TextPart]
    is_cut: bool
    said: str
    writer: str
    paid: dict[str, float]
    num_attempts: int


class VerdictBody(Struct, frozen=True):
    """The body of a request that gives a verdict, or takes it back (kind "").

    VerdictBody(id="i0g-000003", kind="rejected", note="two bridges fit")
    """

    id: str
    kind: VerdictKind | Literal[""]
    note: str = ""


class VerdictReply(Struct, frozen=True):
    """The verdict that is now stored ("" if none), and whether training would use the item."""

    id: str
    kind: VerdictKind | Literal[""]
    is_learned: bool


def read_curriculum(run: Run, name: str, query: CurriculumQuery, shelves: Kept[Shelf]) -> CurriculumPage:
    """One page of the curriculum items that the query selects, with the facets to filter by."""
    shelf, verdicts = _open_shelf(run, shelves), run.verdicts()
    kinds = {
        item.candidate.id: verdict.kind
        for item in shelf.items
        if (verdict := verdicts.get(item.candidate.id)) is not None and verdict.is_about(item.candidate)
    }
    items, facets = shelf.select(query.chosen(), query.text, kinds)
    num_learned = sum(is_learned(item.candidate, verdicts.get(item.candidate.id)) for item in items)
    page = cut_page(items, query.page).map(lambda item: _judged(item, verdicts))
    return CurriculumPage(query, page, name, len(shelf.items), num_learned, facets)


def read_item(run: Run, name: str, query: ById, shelves: Kept[Shelf]) -> ItemPage:
    """The page of one item; `NotShown` if the run has none of this id."""
    item = _judged(_find(_open_shelf(run, shelves), name, query.id), run.verdicts())
    documents = open_documents(run)
    item = check_item(item, None if documents.index is None else documents.index.document)
    candidate = item.candidate
    doc_id = candidate.evidence.doc_id if candidate.evidence else candidate.document_id
    parts, is_cut = _show_document(item, documents, doc_id)
    writer = run.episode_row(candidate.episode_id)
    return ItemPage(
        run=name,
        item=item,
        is_learned=item.learned,
        value=candidate.support.value if candidate.support else None,
        document_id=doc_id,
        document=parts,
        is_cut=is_cut,
        said=documents.said,
        writer=writer.id if writer else "",
        paid=writer.metrics if writer else {},
        num_attempts=len(run.rows(EpisodeFilter(task_id=candidate.id))),
    )


def write_verdict(run: Run, name: str, body: bytes, shelves: Kept[Shelf]) -> VerdictReply:
    """Store the verdict in a request body, or delete the item's verdict if its kind is ""."""
    given = read_body(body, VerdictBody, "a verdict", '{"id": "...", "kind": "accepted"}')
    if len(given.note) > MAX_NOTE_CHARS:
        raise BadInput(f"the note has more than {MAX_NOTE_CHARS} characters", hint="write less")
    candidate = _find(_open_shelf(run, shelves), name, given.id).candidate
    verdict = judge(candidate, given.kind, given.note) if given.kind else None
    give_verdicts(run.path, [verdict] if verdict else [], clear=[] if verdict else [given.id])
    return VerdictReply(given.id, given.kind, is_learned(candidate, verdict))


# ------------------------------------------------------------------------------------------------------------- details


def _open_shelf(run: Run, shelves: Kept[Shelf]) -> Shelf:
    """The cached items of a run, read again if its candidates have changed. Verdicts are not cached."""
    return shelves.get(str(run.path), run.candidates_mark(), lambda: Shelf(read_items(run)))


def _find(shelf: Shelf, name: str, id: str) -> Item:
    found = next((item for item in shelf.items if item.candidate.id == id), None)
    return require(found, f"run {name} has no candidate {id}", "its curriculum is listed")


def _judged(item: Item, verdicts: dict[str, Verdict]) -> Item:
    """The item with its stored verdict: in `verdict`, or in `outdated` if the item has changed since."""
    current, outdated = match_verdict(item.candidate, verdicts.get(item.candidate.id))
    return structs.replace(item, verdict=current, outdated=outdated)


def _show_document(item: Item, documents: RunDocuments, doc_id: str) -> tuple[list[TextPart], bool]:
    """The document in pieces, the evidence marked if it is found verbatim; and whether the text was shortened."""
    text = documents.read(doc_id) if doc_id else ""
    evidence = item.candidate.evidence
    if not text or evidence is None or item.evidence_state != "verbatim":
        return ([TextPart(text[: 2 * _CONTEXT_CHARS])] if text else []), len(text) > 2 * _CONTEXT_CHARS
    first, last = max(0, evidence.start - _CONTEXT_CHARS), min(len(text), evidence.end + _CONTEXT_CHARS)
    parts = mark_part(text[first:last], evidence.start - first, evidence.end - first)
    return parts, first > 0 or last < len(text)


# -------------------------------------------------------------------------------------------------------------- facets


class Shelf:
    """The items of a run with their facet values (except verdicts) and searchable texts computed in advance."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = list(items)
        known: dict[tuple[object, ...], int] = {}
        self._kinds = [known.setdefault(_key_of(item), len(known)) for item in items]  # items with equal values
        example = dict(zip(self._kinds, self.items, strict=True))
        self._values = [_values_of(example[kind]) for kind in range(len(known))]  # by kind: there are far fewer
        self._texts = [
            "\n".join((one.question, *one.answers, one.gold_span, one.id)).casefold()
            for one in (item.candidate for item in items)
        ]

    def select(
        self, chosen: Mapping[str, str], text: str, verdicts: Mapping[str, str]
    ) -> tuple[list[Item], list[Facet]]:
        """The items with every chosen facet value and every word of the text; and all facets with counts.

        `verdicts` has the kind of verdict by item id. Facets with a single value are left out unless one is chosen.
        """
        words = text.casefold().split()
        admitted = [at for at, body in enumerate(self._texts) if all(word in body for word in words)]
        kinds = [(self._kinds[at], verdicts.get(self.items[at].candidate.id, "none")) for at in admitted]
        counts: dict[str, Counter[str]] = {name: Counter() for name in TITLES}
        wanted = set()
        for (kind, verdict), count in Counter(kinds).items():
            has = {**self._values[kind], "verdict": verdict}
            missed = [name for name, value in chosen.items() if has[name] != value]
            if not missed:
                wanted.add((kind, verdict))
            for name in has if not missed else missed if len(missed) == 1 else ():
                counts[name][has[name]] += count
        found = [self.items[at] for at, kind in zip(admitted, kinds, strict=True) if kind in wanted]
        facets = [_facet(name, counts[name], chosen.get(name, "")) for name in TITLES]
        return found, [facet for facet in facets if len(facet.values) > 1 or facet.name in chosen]


def _key_of(item: Item) -> tuple[object, ...]:
    """Every field of an item that `_values_of` reads: items with equal keys share their facet values."""
    one = item.candidate
    place = (one.iteration, one.cluster, one.hops, bool(one.episode_id), item.state)
    return (*place, one.num_right, one.num_attempts, one.support, one.refusals)


def _values_of(item: Item) -> dict[str, str]:
    candidate = item.candidate
    return {
        "state": item.state,
        "refused": ", ".join(candidate.refusals) or "none",
        "searches": str(candidate.facts) if candidate.facts else "unknown",
        "rate": _rate(candidate),
        "value": _value(candidate),
        "cluster": str(candidate.cluster) if candidate.cluster >= 0 else "none",
        "iteration": "every" if candidate.iteration == EVERY_ITERATION else str(candidate.iteration),
    }


def _rate(candidate: Candidate) -> str:
    num_right, num_attempts = max(0, candidate.num_right), candidate.num_attempts
    if num_attempts <= 0:
        return _RATES[0]
    return _RATES[5 if num_right >= num_attempts else 1 - (-3 * num_right // num_attempts)]  # in thirds, rounded up


def _value(candidate: Candidate) -> str:
    if candidate.support is None:
        return _VALUES[0]
    value = candidate.support.value
    return _VALUES[2 + min(3, int(min(value, 1.0) * 4)) if value >= 0 else 1]


def _facet(name: str, counts: Counter[str], chosen: str) -> Facet:
    values = [value for value, _ in counts.most_common()]
    if name in ("searches", "iteration"):
        values = sorted(counts, key=lambda value: (not value.isdecimal(), int(value) if value.isdecimal() else 0))
    elif name in _RANGES:
        values.sort(key=_RANGES[name].index)
    values += [chosen] if chosen and chosen not in counts else []
    return Facet(name, TITLES[name], [FacetValue(value, counts[value], value == chosen) for value in values])
