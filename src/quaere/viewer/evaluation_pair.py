"""The page of two results, compared question by question: the first minus the second.

compare_results(results, PairQuery(of=["warm", "base"])).rows[0] ->
MeasureRow("exact match", Interval(...), Interval(...), Interval(mean=0.06, low=0.02, high=0.1, num=500), 0.055)
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval, clustered_difference, rate_interval, smallest_difference
from quaere.evaluation.qa.differences import compare, pair_by_metric, pair_up
from quaere.evaluation.qa.items import Item
from quaere.evaluation.qa.scores import has_other_index
from quaere.rewards.abstention import HIDDEN_SUFFIX
from quaere.viewer.evaluation_pages import MEASURES, EvaluationResults, ItemLine, Result, describe_item, has_text
from quaere.viewer.page_formats import Listed, ListPage, cut_page
from quaere.viewer.run_folder import MEASUREMENTS, NotShown

REFUSED = "unanswerable refused"
_DETECTED = 2.80 / 1.96  # times half an interval: the difference shown with a power of 80 % (`smallest_difference`)
Change = Literal["", "gained", "lost", "both", "neither"]
# What became of a question, by whether the first and the second result are right.
_CHANGES: dict[tuple[bool, bool], Change] = {
    (True, False): "gained",
    (False, True): "lost",
    (True, True): "both",
    (False, False): "neither",
}


class PairQuery(Listed, frozen=True):
    """Two results by their keys, and which of their questions are listed.

    PairQuery(of=["warm", "base"], change="lost", text="bridge")
    """

    of: list[str] = field(default_factory=list)
    change: Change = ""


class MeasureRow(Struct, frozen=True):
    """A metric of both results and their paired difference; `smallest` is the minimum detectable difference."""

    name: str
    ours: Interval
    theirs: Interval
    difference: Interval
    smallest: float


class PairLine(Struct, frozen=True):
    """A question in both results; "gained" if only the first is right, "lost" if only the second is."""

    id: str
    question: str
    change: Change
    ours: ItemLine
    theirs: ItemLine


class PairPage(ListPage[PairQuery, PairLine], frozen=True):
    """The page that compares two results: the first minus the second, over shared questions, and each question."""

    names: list[str]
    runs: list[str]
    num_shared: int
    rows: list[MeasureRow]
    is_clustered: bool  # the intervals of differences are over documents
    counts: dict[str, int]
    other_index: bool

    @property
    def refused(self) -> MeasureRow | None:
        """The row of the unanswerable questions; None if there are none."""
        return next((row for row in self.rows if row.name == REFUSED), None)


def compare_results(results: EvaluationResults, query: PairQuery) -> PairPage:
    """The page that compares two results; `BadInput` unless the query names exactly two different ones."""
    if len(set(query.of)) != 2 or len(query.of) != 2:
        raise BadInput(f"{len(set(query.of))} results to compare: it takes two", hint="mark two at /evaluations")
    ours, theirs = (results.find(key) for key in query.of)
    clusters = _find_clusters(results, query.of)
    pairs = pair_up(ours.scored, theirs.scored)
    changes = [_CHANGES[one.right, other.right] for one, other in pairs]
    found = [
        (change, one, other)
        for change, (one, other) in zip(changes, pairs, strict=True)
        if query.change in ("", change) and has_text(ours, one, query.text)
    ]

    def view(change: Change, item: Item, other: Item) -> PairLine:
        lines = describe_item(ours, item), describe_item(theirs, other)
        return PairLine(item.id, lines[0].question or lines[1].question, change, *lines)

    return PairPage(
        query=query,
        names=[ours.scored.name, theirs.scored.name],
        runs=[ours.run, theirs.run],
        num_shared=len(pairs),
        rows=list(_measure(ours, theirs, clusters)),
        is_clustered=bool(clusters),
        counts={kind: changes.count(kind) for kind in _CHANGES.values()},
        other_index=has_other_index(ours.scored, theirs.scored),
        page=cut_page(found, query.page).map(lambda each: view(*each)),
    )


def find_gain(results: EvaluationResults, ours: str, theirs: str) -> Interval | None:
    """The first minus the second in exact match, as on the page of both; None unless both exist and share questions."""
    if not {ours, theirs} <= {*results.names()}:
        return None
    try:
        rows = _measure(results.find(ours), results.find(theirs), _find_clusters(results, (ours, theirs)))
    except NotShown:  # one has no scored question yet
        return None
    return next((row.difference for row in rows), None)


def _find_clusters(results: EvaluationResults, of: Sequence[str]) -> dict[str, Hashable]:
    return results.find_clusters() if set(of) == set(MEASUREMENTS) else {}


def _measure(ours: Result, theirs: Result, clusters: Mapping[str, Hashable]) -> Iterator[MeasureRow]:
    """The metrics that both results have, each over the questions they share; none if they share none.

    Intervals of differences are over clusters of questions where these are known.
    """
    difference = compare(ours.scored, theirs.scored)
    if difference is None:
        return
    shared, both = pair_up(ours.scored, theirs.scored), (ours.scored.items, theirs.scored.items)
    for name, compared in pair_by_metric(ours.scored, theirs.scored).items():
        measure, keys = name.removeprefix("open_"), {item.key for item, _ in compared}
        mine, others = (
            rate_interval([float(getattr(item, measure) or 0) for item in items if item.key in keys]) for items in both
        )
        shown, smallest = getattr(difference, name), difference.smallest[name]
        if clusters:
            shown, smallest = _differ([pair for pair in shared if pair[0].key in keys], measure, clusters)
        yield MeasureRow(MEASURES[name], mine, others, shown, smallest)
    if difference.refused:
        pairs = [pair for pair in shared if not pair[0].answerable]
        sides = [[float(item.right) for item in side] for side in zip(*pairs, strict=True)]
        mine, others = map(rate_interval, sides)
        shown, smallest = difference.refused, smallest_difference(*sides)
        if clusters:
            shown, smallest = _differ(pairs, "right", clusters)
        yield MeasureRow(REFUSED, mine, others, shown, smallest)


def _differ(
    pairs: Sequence[tuple[Item, Item]], measure: str, clusters: Mapping[str, Hashable]
) -> tuple[Interval, float]:
    """The difference with its interval over clusters, and the minimum detectable difference by the interval's width."""
    values = [[float(getattr(item, measure) or 0) for item in side] for side in zip(*pairs, strict=True)]
    places = [clusters.get(item.id.removesuffix(HIDDEN_SUFFIX), item.id) for item, _ in pairs]
    found = clustered_difference(values[0], values[1], places)
    return found, (found.high - found.low) / 2 * _DETECTED
