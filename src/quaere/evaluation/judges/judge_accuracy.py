"""Accuracy of a support judge, measured on spans whose right decision is known.

    validation = await validate_judge(StringCheck(), num_questions=100)
    validation.balanced -> Interval(mean=0.92, low=0.91, high=0.93, num=100)

The spans come from a generated world of the evaluation family with a fixed seed. Every question is paired with its gold
span (the sentence that states the last fact) and with corrupted spans, one per kind of corruption.
"""

import random
import re
from collections.abc import Callable, Sequence
from functools import cache
from statistics import fmean
from typing import Generic, TypeVar

from msgspec import Struct

from quaere.evaluation.intervals import Interval, rate_interval
from quaere.evaluation.judges.judge import Citation, Judge, Verdict
from quaere.worlds.gold_questions import GoldQuestion, says
from quaere.worlds.graph import Entity, Fact
from quaere.worlds.names import strip_article
from quaere.worlds.prose import Support
from quaere.worlds.world import World, generate_world

T = TypeVar("T")

SEED = 4211
NUM_ARTICLES = 400
MAX_QUESTIONS = 400
CORRUPTIONS = (
    "another question's span",
    "answer swapped for another of its kind",
    "cut before or after the answer",
    "answer alone",
    "another sentence of the document",
    "answer in a statement about something else",
)


class Probe(Struct, Generic[T], frozen=True):
    """A test case for a judge: its input, the right decision, and the question or report it belongs to (`group`).

    The kind of a span is "gold, 2 facts" or one of `CORRUPTIONS`.

        Probe(group=3, kind="answer alone", asked=Citation(...), supports=False)
    """

    group: int
    kind: str
    asked: T
    supports: bool


class Agreement(Struct, frozen=True):
    """Accuracy of the judge on one kind of span.

    Agreement(kind="answer alone", right=Interval(mean=1.0, low=1.0, high=1.0, num=100))
    """

    kind: str
    right: Interval


class Accuracy(Struct, frozen=True):
    """How often a judge is right: on what is supported (sensitivity), on what is not (specificity), and their mean.

    Accuracy(sensitivity=Interval(...), specificity=Interval(...), balanced=Interval(...))
    """

    sensitivity: Interval
    specificity: Interval
    balanced: Interval  # 0.5 for a judge that always says the same


class Validation(Accuracy, frozen=True):
    """Accuracy of a judge on spans whose right decision is known: gold spans are supported, corrupted ones are not.

    Output that could not be parsed counts as "not supported", as in scoring.

        Validation(world="evaluation family, seed 4211, 400 articles", sensitivity=Interval(...),
                   specificity=Interval(...), balanced=Interval(...), by_kind=(Agreement(...),), num_unread=0)
    """

    world: str
    by_kind: tuple[Agreement, ...]
    num_unread: int


def find_right(
    probes: Sequence[Probe[T]], said: Sequence[bool]
) -> tuple[list[float], list[float], dict[str, list[float]]]:
    """Per group, the share of right decisions on supporting and on non-supporting probes; per kind, 1 if right, else 0.

    `said` has the judge's decision on each probe. Groups that lack one of the two kinds are left out of both lists.
    """
    right: dict[bool, dict[int, list[float]]] = {True: {}, False: {}}
    by_kind: dict[str, list[float]] = {}
    for probe, decision in zip(probes, said, strict=True):
        is_right = float(decision == probe.supports)
        right[probe.supports].setdefault(probe.group, []).append(is_right)
        by_kind.setdefault(probe.kind, []).append(is_right)
    groups = sorted(right[True].keys() & right[False].keys())
    true, false = ([fmean(right[supports][group]) for group in groups] for supports in (True, False))
    return true, false, by_kind


def measure_accuracy(
    true: Sequence[float], false: Sequence[float], interval: Callable[[list[float]], Interval]
) -> dict[str, Interval]:
    """Sensitivity, specificity and balanced accuracy, from per-group shares of right decisions (see `find_right`).

    `true` has the shares on supporting probes, `false` those on others; `interval` computes each interval.
    """
    balanced = [(one + other) / 2 for one, other in zip(true, false, strict=True)]
    found = {"sensitivity": true, "specificity": false, "balanced": balanced}
    return {name: interval(list(values)) for name, values in found.items()}


async def validate_judge(judge: Judge, num_questions: int = 100) -> Validation:
    """Accuracy of the judge on gold and corrupted spans of `num_questions` generated questions."""
    probes = make_probes(num_questions)
    return score_verdicts(probes, await judge.judge([probe.asked for probe in probes]))


def score_verdicts(probes: Sequence[Probe[Citation]], verdicts: Sequence[Verdict]) -> Validation:
    """Accuracy overall and per kind; intervals resample questions, since spans of one question are correlated.

    Specificity is the mean over questions of the share of their corrupted spans that were detected.
    """
    gold, corrupted, by_kind = find_right(probes, [bool(verdict) for verdict in verdicts])
    kinds = sorted(by_kind, key=lambda kind: (kind in CORRUPTIONS and 1 + CORRUPTIONS.index(kind), kind))
    return Validation(
        world=f"evaluation family, seed {SEED}, {NUM_ARTICLES} articles",
        by_kind=tuple(Agreement(kind, rate_interval(by_kind[kind])) for kind in kinds),
        num_unread=sum(verdict is None for verdict in verdicts),
        **measure_accuracy(gold, corrupted, rate_interval),
    )


# ------------------------------------------------------------------------------------------------------------ probes


@cache
def make_probes(num_questions: int) -> tuple[Probe[Citation], ...]:
    """Gold and corrupted spans of `num_questions` questions of one to four facts; deterministic.

    Questions whose gold sentence does not name the answer are skipped: their last step follows a relation backwards
    into the answer's own article, so no single sentence suffices.
    """
    world = generate_world(SEED, NUM_ARTICLES)
    last = [(question, question.chain[-1]) for question in world.questions(num_questions + MAX_QUESTIONS // 4)]
    asked = [item for item, fact in last if not fact.inverse and says(fact.evidence.text, fact.said)][:num_questions]
    corrupter = _Corrupter(world, asked)
    probes: list[Probe[Citation]] = []
    for number, question in enumerate(asked):
        gold = Citation(question.text, question.answers, question.chain[-1].evidence.text)
        probes.append(Probe(number, f"gold, {question.facts} fact{'' if question.facts == 1 else 's'}", gold, True))
        probes += [
            Probe(number, kind, Citation(question.text, question.answers, span), False)
            for kind, span in zip(CORRUPTIONS, corrupter.corrupt(number), strict=True)
            if span is not None
        ]
    return tuple(probes)


class _Stated(Struct, frozen=True):
    """A sentence of the world: its subject, the fact it states, and the type of the fact's object."""

    subject: Entity
    support: Support
    sort: str
    is_named: bool  # True if the sentence names its subject


class _Corrupter:
    """Builds spans that do not support the answer, from the world of the questions."""

    def __init__(self, world: World, asked: Sequence[GoldQuestion]) -> None:
        self._world, self._asked, self._dice = world, asked, random.Random(SEED)
        self._stated = [
            _Stated(
                entity,
                support,
                sort=self._sort(world.graph.fact(entity.index, support.relation)),
                is_named=any(says(support.evidence.text, name) for name in entity.names),
            )
            for entity in world.entities
            for support in world.article(entity).supports
        ]

    def corrupt(self, number: int) -> tuple[str | None, ...]:
        """One span per entry of `CORRUPTIONS`; None if the world has none for this question."""
        question = self._asked[number]
        last = question.chain[-1]
        others = [other.chain[-1].evidence for place, other in enumerate(self._asked) if place != number]
        near = [one.support.evidence for one in self._stated if one.subject.id == last.evidence.doc_id]
        return (
            self._pick([one.text for one in others if not _says_any(one.text, question)]),
            self._swapped(question),
            # the longer part of the gold sentence before or after the answer
            max((piece.strip(" ,;") for piece in _pattern(last.said).split(last.evidence.text)), key=len) or None,
            last.said,
            self._pick([one.text for one in near if one != last.evidence and not _says_any(one.text, question)]),
            self._elsewhere(question),
        )

    def _pick(self, spans: Sequence[str]) -> str | None:
        return self._dice.choice(spans) if spans else None

    def _swapped(self, question: GoldQuestion) -> str | None:
        last = question.chain[-1]
        graph = self._world.graph
        if last.answer_id is not None:
            names = [graph.entities[index].name for index in graph.members[self._world.entity(last.answer_id).kind]]
        else:
            facts = (graph.fact(entity.index, last.relation) for entity in graph.entities)
            names = sorted({fact.value for fact in facts if fact is not None})
        spans = [_replace(last.evidence.text, last.said, name) for name in names]
        return self._pick([span for span in spans if not _says_any(span, question)])

    def _elsewhere(self, question: GoldQuestion) -> str | None:
        """A sentence about another subject and relation, in which the answer replaces an object of the same type.

        The sentence names its subject, so that it cannot be read as the next step of the question.
        """
        last = question.chain[-1]
        gold = self._world.graph.fact(self._world.entity(last.entity).index, last.relation)
        spans = [
            _replace(stated.support.evidence.text, stated.support.mention, last.said)
            for stated in self._stated
            if stated.sort == self._sort(gold) and stated.support.relation != last.relation
            if stated.subject.id != last.evidence.doc_id and stated.is_named
        ]
        return self._pick([span for span in spans if not says(span, last.mention)])

    def _sort(self, fact: Fact | None) -> str:
        """Type of a fact's object: an entity kind, "year", "number" or "words"; objects of one type can be swapped."""
        if fact is None:
            return ""
        if fact.object is not None:
            return self._world.graph.entities[fact.object].kind
        relation = self._world.graph.relations[fact.relation]
        return "year" if relation.year else "words" if relation.words else "number"


def _says_any(text: str, question: GoldQuestion) -> bool:
    return any(says(text, answer) for answer in question.answers)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(strip_article(name))}(?!\w)", re.IGNORECASE)


def _replace(text: str, name: str, other: str) -> str:
    return _pattern(name).sub(lambda _: strip_article(other), text)
