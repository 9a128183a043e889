"""The pages of evaluations: all results with their intervals, one of them, and two compared question by question.

compare_results(results, PairQuery(of=["warm", "base"])).rows[0] ->
MeasureRow("exact match", Interval(...), Interval(...), Interval(mean=0.06, low=0.02, high=0.1, num=500), 0.055)
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval, rate_interval
from quaere.evaluation.qa.answer_kinds import CLOSED
from quaere.evaluation.qa.differences import compare
from quaere.evaluation.qa.items import Item
from quaere.evaluation.qa.scores import AnsweringScore, Judging
from quaere.records import EndReason
from quaere.viewer.evaluation_results import EvaluationLine, EvaluationResults, Result
from quaere.viewer.page_formats import Page, PageNumber, copy_fields, cut_page

LIST_SIZE = 20  # results, whose intervals have to be computed
MEASURES = {
    "exact_match": "exact match",
    "f1": "F1",
    "present": "evidence given",
    "verbatim": "evidence verbatim",
    "supported": "evidence supports",
    "joint": "right and supported",
    "gold": "evidence of a gold passage",
    "gold_joint": "right and of a gold passage",
    "open_exact_match": "exact match without yes/no and choices",
}
_GOLD = ("gold", "gold_joint")
Change = Literal["", "gained", "lost", "both", "neither"]
# What became of a question, by whether the first and the second result are right.
_CHANGES: dict[tuple[bool, bool], Change] = {
    (True, False): "gained",
    (False, True): "lost",
    (True, True): "both",
    (False, False): "neither",
}


class EvaluationsQuery(Struct, frozen=True):
    """Which results are listed: those whose key has `text`.

    EvaluationsQuery(text="warm", page=2)
    """

    text: str = ""
    page: PageNumber = 1


class EvaluationsPage(Struct, frozen=True):
    """Results with their intervals, one page of them."""

    query: EvaluationsQuery
    page: Page[EvaluationLine]


class EvaluationQuery(Struct, frozen=True):
    """A result by its key, and which of its questions are listed.

    EvaluationQuery(of="eval-20250301-101500", right="no", text="bridge", page=2)
    """

    of: str = ""
    right: Literal["", "yes", "no"] = ""
    text: str = ""
    page: PageNumber = 1


class GroupRow(Struct, frozen=True):
    """Scores of some of the questions: "all", "2 facts", "set popqa".

    GroupRow("2 facts", 120, Interval(...), Interval(...))
    """

    name: str
    num: int
    exact_match: Interval
    f1: Interval


class ItemLine(Struct, frozen=True):
    """A question of a result; `question` is "" in results that have no texts, `episode` where there is no run.

    `present` and `verbatim` are whether a sentence was quoted, and as it was shown; None where none was asked for.
    """

    id: str
    question: str
    answer: str | None
    exact_match: float
    f1: float
    end: EndReason
    num_searches: int
    present: bool | None
    verbatim: bool | None
    episode: str


class EvaluationPage(Struct, frozen=True):
    """A result: scores of all questions and of groups of them with intervals, evidence, and its questions."""

    query: EvaluationQuery
    name: str
    model: str
    created: str
    run: str
    settings: dict[str, Any]
    score: AnsweringScore
    groups: list[GroupRow]
    evidence: dict[str, Interval]
    judging: Judging | None
    page: Page[ItemLine]


class PairQuery(Struct, frozen=True):
    """Two results by their keys, and which of their questions are listed.

    PairQuery(of=["warm", "base"], change="lost", text="bridge")
    """

    of: list[str] = []
    change: Change = ""
    text: str = ""
    page: PageNumber = 1


class MeasureRow(Struct, frozen=True):
    """A measure of both results and their paired difference; `smallest` is the smallest one that would be detected."""

    name: str
    ours: Interval
    theirs: Interval
    difference: Interval
    smallest: float

    @property
    def is_clear(self) -> bool:
        """True if the interval of the difference excludes zero."""
        return self.difference.low > 0 or self.difference.high < 0


class PairLine(Struct, frozen=True):
    """A question in both results; "gained" if only the first is right, "lost" if only the second is."""

    id: str
    question: str
    change: Change
    ours: ItemLine
    theirs: ItemLine


class PairPage(Struct, frozen=True):
    """The first result minus the second, over the questions they share, and what became of each question."""

    query: PairQuery
    names: list[str]
    runs: list[str]
    num_shared: int
    rows: list[MeasureRow]
    counts: dict[str, int]
    page: Page[PairLine]


def read_evaluations(results: EvaluationResults, query: EvaluationsQuery) -> EvaluationsPage:
    """One page of the results."""
    keys = [key for key in results.names() if query.text.casefold() in key.casefold()]
    return EvaluationsPage(query, cut_page(keys, query.page, LIST_SIZE).map(results.line))


def read_evaluation(results: EvaluationResults, query: EvaluationQuery) -> EvaluationPage:
    """The page of one result."""
    result = results.find(query.of)
    scored = result.scored
    wanted = {"": (True, False), "yes": (True,), "no": (False,)}[query.right]
    found = [item for item in scored.items if (item.exact_match == 1.0) in wanted and _has(result, item, query.text)]
    shares = {title: getattr(scored.score.evidence, name, None) for name, title in MEASURES.items()}
    return copy_fields(
        EvaluationPage,
        scored,
        query=query,
        model=result.model,
        created=result.created,
        run=result.run,
        groups=_group(scored.score, scored.items),
        evidence={name: share for name, share in shares.items() if share is not None},
        page=cut_page(found, query.page).map(lambda item: _line(result, item)),
    )


def compare_results(results: EvaluationResults, query: PairQuery) -> PairPage:
    """The page that compares two results."""
    if len(set(query.of)) != 2 or len(query.of) != 2:
        raise BadInput(f"{len(set(query.of))} results to compare: it takes two", hint="mark two at /evaluations")
    ours, theirs = (results.find(key) for key in query.of)
    known = {item.key: item for item in theirs.scored.items}
    pairs = [(item, known[item.key]) for item in ours.scored.items if item.key in known]
    changes = [_CHANGES[one.exact_match == 1.0, other.exact_match == 1.0] for one, other in pairs]
    found = [
        (change, one, other)
        for change, (one, other) in zip(changes, pairs, strict=True)
        if query.change in ("", change) and _has(ours, one, query.text)
    ]

    def view(found: tuple[Change, Item, Item]) -> PairLine:
        one, other = _line(ours, found[1]), _line(theirs, found[2])
        return PairLine(one.id, one.question or other.question, found[0], one, other)

    return PairPage(
        query=query,
        names=[ours.scored.name, theirs.scored.name],
        runs=[ours.run, theirs.run],
        num_shared=len(pairs),
        rows=_measure(ours, theirs),
        counts={kind: changes.count(kind) for kind in _CHANGES.values()},
        page=cut_page(found, query.page).map(view),
    )


# ------------------------------------------------------------------------------------------------------------- details


def _line(result: Result, item: Item) -> ItemLine:
    return copy_fields(ItemLine, item, question=result.texts.get(item.id, ""), episode=result.episodes.get(item.id, ""))


def _has(result: Result, item: Item, text: str) -> bool:
    wanted = text.casefold()
    return any(wanted in word.casefold() for word in (item.id, result.texts.get(item.id, ""), item.answer or ""))


def _group(score: AnsweringScore, items: tuple[Item, ...]) -> list[GroupRow]:
    """All questions; then by number of facts, by kind of answer and by set, where there are several."""
    groups = [("all", score.exact_match, score.f1)]
    if len(score.by_facts) > 1:
        names = {0: "facts unknown", 1: "1 fact"}
        groups += [(names.get(one.facts, f"{one.facts} facts"), one.exact_match, one.f1) for one in score.by_facts]
    if len(score.by_kind) > 1:
        groups += [(f"{one.name} answers", one.exact_match, one.f1) for one in score.by_kind]
    sets = sorted({item.set for item in items})
    for name in sets if len(sets) > 1 else []:
        rights, f1s = zip(*((item.exact_match, item.f1) for item in items if item.set == name), strict=True)
        groups.append((f"set {name or 'none'}", rate_interval(rights), rate_interval(f1s)))
    return [GroupRow(name, right.num, right, f1) for name, right, f1 in groups]


def _measure(ours: Result, theirs: Result) -> list[MeasureRow]:
    """The measures that both have, each over the questions they share."""
    difference = compare(ours.scored, theirs.scored)
    if difference is None:
        return []
    shared = {item.key for item in ours.scored.items} & {item.key for item in theirs.scored.items}
    closed = {item.key for result in (ours, theirs) for item in result.scored.items if item.kind in CLOSED}
    lacking = {item.key for result in (ours, theirs) for item in result.scored.items if item.gold is None}
    rows = []
    for name, smallest in difference.smallest.items():
        field = name.removeprefix("open_")
        keys = shared - (lacking if name in _GOLD else closed if field != name else set())
        mine, others = (
            rate_interval([float(getattr(item, field) or 0) for item in result.scored.items if item.key in keys])
            for result in (ours, theirs)
        )
        rows.append(MeasureRow(MEASURES[name], mine, others, getattr(difference, name), smallest))
    return rows
