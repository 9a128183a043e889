"""Facets of a curriculum: which values items have, how many of each, and which items a choice of values leaves.

shelf = Shelf(items)
found, facets = shelf.select({"state": "kept", "searches": "2"}, text="bridge", verdicts={})

A facet's counts are of the items that all other choices leave, so that a person sees what another value would give.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from quaere.records import Candidate
from quaere.runs.curriculum_audit import Item
from quaere.runs.review import EVERY_ITERATION

TITLES = {
    "state": "Kept, or why not",
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


class FacetValue(Struct, frozen=True):
    """A value of a facet and the number of items that have it.

    FacetValue("never solved", 6, is_chosen=False)
    """

    value: str
    count: int
    is_chosen: bool


class Facet(Struct, frozen=True):
    """A facet with its values, the most frequent first or in their natural order."""

    name: str
    title: str
    values: list[FacetValue]


class Shelf:
    """Items, prepared for selecting: the facets that no verdict changes, and the text in which words are searched."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = list(items)
        known: dict[tuple[object, ...], int] = {}
        self._kinds = [known.setdefault(_key_of(item), len(known)) for item in items]  # items with equal values
        example = dict(zip(self._kinds, self.items, strict=True))
        self._values = [_values_of(example[kind]) for kind in range(len(known))]  # by kind: there are far fewer
        self._texts = [_text_of(item.candidate) for item in items]

    def select(
        self, chosen: Mapping[str, str], text: str, verdicts: Mapping[str, str]
    ) -> tuple[list[int], list[Facet]]:
        """Positions of the items that have every chosen value and every word of the text, and the facets."""
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
        found = [at for at, kind in zip(admitted, kinds, strict=True) if kind in wanted]
        facets = [_facet(name, counts[name], chosen.get(name, "")) for name in TITLES]
        return found, [facet for facet in facets if len(facet.values) > 1 or chosen.get(facet.name)]


def _key_of(item: Item) -> tuple[object, ...]:
    """All that `_values_of` depends on."""
    one = item.candidate
    is_written = bool(one.episode_id)
    place = (one.iteration, one.cluster, one.hops, is_written)
    return (*place, one.num_right, one.num_attempts, one.support, item.state)


def _values_of(item: Item) -> dict[str, str]:
    candidate = item.candidate
    iteration = "every" if candidate.iteration == EVERY_ITERATION else str(candidate.iteration)
    return {
        "state": item.state,
        "searches": str(candidate.facts) if candidate.facts else "unknown",
        "rate": _rate(candidate),
        "value": _value(candidate),
        "cluster": str(candidate.cluster) if candidate.cluster >= 0 else "none",
        "iteration": iteration,
    }


def _text_of(candidate: Candidate) -> str:
    return "\n".join((candidate.question, *candidate.answers, candidate.gold_span, candidate.id)).casefold()


def _rate(candidate: Candidate) -> str:
    num_right, num_attempts = candidate.num_right, candidate.num_attempts
    if num_attempts <= 0:
        return _RATES[0]
    if num_right <= 0 or num_right >= num_attempts:
        return _RATES[1] if num_right <= 0 else _RATES[5]
    return _RATES[1 + -(-3 * num_right // num_attempts)]  # in thirds, rounded up


def _value(candidate: Candidate) -> str:
    if candidate.support is None:
        return _VALUES[0]
    value = candidate.support.value
    return _VALUES[1] if not value >= 0 else _VALUES[2 + min(3, int(min(value, 1.0) * 4))]


def _facet(name: str, counts: Counter[str], chosen: str) -> Facet:
    ordered = {"rate": _RATES, "value": _VALUES}.get(name)
    if ordered:
        values = [value for value in ordered if value in counts]
    elif name in ("searches", "iteration"):
        values = sorted(counts, key=lambda value: (not value.isdecimal(), int(value) if value.isdecimal() else 0))
    else:
        values = [value for value, _ in counts.most_common()]
    if chosen and chosen not in counts:
        values.append(chosen)
    return Facet(name, TITLES[name], [FacetValue(value, counts[value], value == chosen) for value in values])
