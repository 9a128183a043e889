"""The pages that audit a curriculum: its items by facets, one item with its document, and verdicts on them.

read_curriculum(run, "notes", CurriculumQuery(state="kept", text="bridge"), shelves).page.items[0].candidate.question

A verdict is written as `quaere curriculum` writes it, and training honours it: see `runs/verdicts.py`.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from quaere.api.run import Run, RunDocuments, open_documents
from quaere.errors import BadInput
from quaere.records.foreign_json import decode_json
from quaere.runs.curriculum_audit import Item, check_item, read_items
from quaere.runs.groups import EpisodeFilter
from quaere.runs.verdicts import Verdict, VerdictKind, give_verdicts, is_learned, judge
from quaere.viewer.item_facets import TITLES, Facet, Shelf
from quaere.viewer.page_settings import Page, PageNumber, cut_page
from quaere.viewer.run_folder import NotShown
from quaere.viewer.transcript import TextPart

PAGE_SIZE = 50
MAX_NOTE_CHARS = 2000
_CONTEXT_CHARS = 4000  # of a long document, on either side of the span


class CurriculumQuery(Struct, frozen=True):
    """Which items are listed: those with the chosen value of each facet, and with every word of the text.

    CurriculumQuery(state="kept", searches="2", text="bridge", page=2)
    """

    text: str = ""
    state: str = ""
    searches: str = ""
    rate: str = ""
    value: str = ""
    cluster: str = ""
    iteration: str = ""
    verdict: str = ""
    page: PageNumber = 1

    def chosen(self) -> dict[str, str]:
        """The facets with a chosen value."""
        return {name: getattr(self, name) for name in TITLES if getattr(self, name)}


class CurriculumPage(Struct, frozen=True):
    """One page of the items that a query selects; `num_learned` of all those found are trained on."""

    run: str
    query: CurriculumQuery
    num_items: int
    num_learned: int
    facets: list[Facet]
    page: Page[Item]


class ItemQuery(Struct, frozen=True):
    """An item by its id.

    ItemQuery(id="i0g-000003")
    """

    id: str = ""


class ItemPage(Struct, frozen=True):
    """An item with its evidence in its document, the reward of its proposer's episode, and its attempts.

    `document` is the document, or the part around the span; `said` tells why there is none. `value` is p+ - p-.
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
    """The verdict as it stands now, and whether training would learn from the item."""

    id: str
    kind: VerdictKind | Literal[""]
    is_learned: bool


class Shelves:
    """The items of the runs that were looked at last. They are read again when the candidates have changed."""

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._kept: dict[str, tuple[tuple[object, ...], Shelf]] = {}

    def of(self, run: Run) -> Shelf:
        """The items of a run; verdicts on them are not among what is kept."""
        key, mark = str(run.path), run.candidates_mark()
        kept = self._kept.pop(key, None)
        if kept is None or kept[0] != mark:
            kept = (mark, Shelf(read_items(run)))
        self._kept[key] = kept  # at the end: the first one is the one that was not asked for longest
        while len(self._kept) > self._most:
            self._kept.pop(next(iter(self._kept)))
        return kept[1]


def read_curriculum(run: Run, name: str, query: CurriculumQuery, shelves: Shelves) -> CurriculumPage:
    """One page of a run's items."""
    shelf, verdicts = shelves.of(run), run.verdicts()
    kinds = {
        item.candidate.id: verdict.kind
        for item in shelf.items
        if (verdict := verdicts.get(item.candidate.id)) is not None and verdict.is_about(item.candidate)
    }
    found, facets = shelf.select(query.chosen(), query.text, kinds)
    items = [shelf.items[at] for at in found]
    num_learned = sum(is_learned(item.candidate, verdicts.get(item.candidate.id)) for item in items)
    page = cut_page(items, query.page, PAGE_SIZE)
    shown = Page([_judged(item, verdicts) for item in page.items], page.number, page.num_pages, page.num_items)
    return CurriculumPage(name, query, len(shelf.items), num_learned, facets, shown)


def read_item(run: Run, name: str, query: ItemQuery, shelves: Shelves) -> ItemPage:
    """The page of one item; `NotShown` if the run has none of this id."""
    item = _judged(_find(shelves.of(run), name, query.id), run.verdicts())
    documents = open_documents(run)
    if documents.index is not None:
        item = check_item(item, documents.index.document)
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


def write_verdict(run: Run, name: str, body: bytes, shelves: Shelves) -> VerdictReply:
    """Give a verdict, or take it back, and say how it stands."""
    try:
        given = decode_json(body, VerdictBody)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInput(f"not a verdict: {error}", hint='{"id": "...", "kind": "accepted"}') from None
    if len(given.note) > MAX_NOTE_CHARS:
        raise BadInput(f"the note has more than {MAX_NOTE_CHARS} characters", hint="write less")
    candidate = _find(shelves.of(run), name, given.id).candidate
    verdict = judge(candidate, given.kind, given.note) if given.kind else None
    give_verdicts(run.path, [verdict] if verdict else [], clear=[] if verdict else [given.id])
    return VerdictReply(given.id, given.kind, is_learned(candidate, verdict))


# ------------------------------------------------------------------------------------------------------------- details


def _find(shelf: Shelf, name: str, id: str) -> Item:
    for item in shelf.items:
        if item.candidate.id == id:
            return item
    raise NotShown(f"run {name} has no candidate {id}", hint="its curriculum is listed")


def _judged(item: Item, verdicts: dict[str, Verdict]) -> Item:
    """The item with the verdict that stands on it now."""
    verdict = verdicts.get(item.candidate.id)
    holds = verdict is not None and verdict.is_about(item.candidate)
    return msgspec.structs.replace(item, verdict=verdict if holds else None, outdated=None if holds else verdict)


def _show_document(item: Item, documents: RunDocuments, doc_id: str) -> tuple[list[TextPart], bool]:
    """The document in pieces, of which the evidence is one if it stands there; and whether it was cut."""
    text = documents.read(doc_id) if doc_id else ""
    evidence = item.candidate.evidence
    if not text or evidence is None or item.evidence_state != "verbatim":
        return ([TextPart(text[: 2 * _CONTEXT_CHARS])] if text else []), len(text) > 2 * _CONTEXT_CHARS
    first, last = max(0, evidence.start - _CONTEXT_CHARS), min(len(text), evidence.end + _CONTEXT_CHARS)
    parts = [
        TextPart(text[first : evidence.start]),
        TextPart(text[evidence.start : evidence.end], is_quoted=True),
        TextPart(text[evidence.end : last]),
    ]
    return [part for part in parts if part.text], first > 0 or last < len(text)
