"""Accuracy of a support judge, measured on spans whose right decision is known.

    validation = await validate_judge(StringCheck(), num_questions=100)
    validation.balanced -> Interval(mean=0.92, low=0.91, high=0.93, num=100)

The spans come from a generated world of the evaluation family with a fixed seed. Every question is paired with its gold
span (the sentence that states the last fact) and with corrupted spans, one per kind of corruption.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache

from msgspec import Struct

from quaere.evaluation.intervals import Interval, rate_interval
from quaere.evaluation.judges.judge import Citation, Judge, Verdict
from quaere.records import Evidence
from quaere.worlds.gold_questions import GoldQuestion, says
from quaere.worlds.graph import Entity, Fact
from quaere.worlds.names import strip_article
from quaere.worlds.prose import Support
from quaere.worlds.world import World, generate_world

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


class Probe(Struct, frozen=True):
    """A span for the judge with the right decision. `kind` is "gold, 2 facts" or one of `CORRUPTIONS`.

    Probe(question=3, kind="answer alone", citation=Citation(...), supports=False)
    """

    question: int
    kind: str
    citation: Citation
    supports: bool


class Agreement(Struct, frozen=True):
    """Accuracy of the judge on one kind of span.

    Agreement(kind="answer alone", right=Interval(mean=1.0, low=1.0, high=1.0, num=100))
    """

    kind: str
    right: Interval


class Validation(Struct, frozen=True):
    """Accuracy of a judge.

    Sensitivity is the share of gold spans it calls supported, specificity the share of corrupted spans it does not.
    Output that could not be parsed counts as "not supported", as in scoring.

        Validation(world="evaluation family, seed 4211, 400 articles", sensitivity=Interval(...),
                   specificity=Interval(...), balanced=Interval(...), by_kind=(Agreement(...),), num_unread=0)
    """

    world: str
    sensitivity: Interval
    specificity: Interval
    balanced: Interval  # balanced accuracy: 0.5 for a judge that always says the same
    by_kind: tuple[Agreement, ...]
    num_unread: int


async def validate_judge(judge: Judge, num_questions: int = 100) -> Validation:
    """Measure the judge on gold and corrupted spans."""
    probes = make_probes(num_questions)
    verdicts = await judge.judge([probe.citation for probe in probes])
    return score_verdicts(probes, verdicts)


def score_verdicts(probes: Sequence[Probe], verdicts: Sequence[Verdict]) -> Validation:
    """Accuracy overall and per kind; intervals resample questions, since spans of one question are correlated.

    Specificity is the mean over questions of the share of their corrupted spans that were detected.
    """
    gold: dict[int, list[float]] = {}
    corrupted: dict[int, list[float]] = {}
    by_kind: dict[str, list[float]] = {}
    for probe, verdict in zip(probes, verdicts, strict=True):
        right = float(bool(verdict) == probe.supports)
        (gold if probe.supports else corrupted).setdefault(probe.question, []).append(right)
        by_kind.setdefault(probe.kind, []).append(right)
    found = [_mean(gold[question]) for question in sorted(gold)]
    seen_through = [_mean(corrupted[question]) for question in sorted(gold)]
    kinds = sorted(by_kind, key=lambda kind: (kind in CORRUPTIONS and 1 + CORRUPTIONS.index(kind), kind))
    return Validation(
        world=f"evaluation family, seed {SEED}, {NUM_ARTICLES} articles",
        sensitivity=rate_interval(found),
        specificity=rate_interval(seen_through),
        balanced=rate_interval([(one + other) / 2 for one, other in zip(found, seen_through, strict=True)]),
        by_kind=tuple(Agreement(kind, rate_interval(by_kind[kind])) for kind in kinds),
        num_unread=sum(verdict is None for verdict in verdicts),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# ------------------------------------------------------------------------------------------------------------ probes


@cache
def make_probes(num_questions: int) -> tuple[Probe, ...]:
    """Gold and corrupted spans of `num_questions` questions of one to four facts; deterministic.

    Questions whose gold sentence does not name the answer are skipped: their last step follows a relation backwards
    into the answer's own article, so no single sentence suffices.
    """
    world = generate_world(SEED, NUM_ARTICLES)
    asked = [question for question in world.questions(num_questions + MAX_QUESTIONS // 4) if _names_answer(question)]
    asked = asked[:num_questions]
    corrupter = _Corrupter(world, asked)
    probes: list[Probe] = []
    for number, question in enumerate(asked):
        gold = Citation(question.text, question.answers, question.chain[-1].evidence.text)
        plural = "" if question.facts == 1 else "s"
        probes.append(Probe(number, f"gold, {question.facts} fact{plural}", gold, True))
        for kind, span in zip(CORRUPTIONS, corrupter.corrupt(number), strict=True):
            if span is not None:
                probes.append(Probe(number, kind, Citation(question.text, question.answers, span), False))
    return tuple(probes)


def _names_answer(question: GoldQuestion) -> bool:
    last = question.chain[-1]
    return not last.inverse and says(last.evidence.text, last.said)


class _Stated(Struct, frozen=True):
    """A sentence of the world: its subject, the fact it states, and the type of the fact's object."""

    subject: Entity
    support: Support
    sort: str
    is_named: bool  # True if the sentence names its subject


class _Corrupter:
    """Builds spans that do not support the answer, from the world of the questions."""

    def __init__(self, world: World, asked: Sequence[GoldQuestion]) -> None:
        self._world = world
        self._asked = asked
        self._dice = random.Random(SEED)
        self._stated = [
            self._state(entity, support) for entity in world.entities for support in world.article(entity).supports
        ]

    def corrupt(self, number: int) -> tuple[str | None, ...]:
        """One span per entry of `CORRUPTIONS`; None if the world has none for this question."""
        question = self._asked[number]
        return (
            self._of_another(number),
            self._swapped(question),
            self._cut(question),
            question.chain[-1].said,
            self._beside(question),
            self._elsewhere(question),
        )

    def _pick(self, spans: Sequence[str]) -> str | None:
        return self._dice.choice(spans) if spans else None

    def _of_another(self, number: int) -> str | None:
        question = self._asked[number]
        others = [other.chain[-1].evidence for place, other in enumerate(self._asked) if place != number]
        return self._pick([evidence.text for evidence in others if not _says_any(evidence, question)])

    def _swapped(self, question: GoldQuestion) -> str | None:
        last = question.chain[-1]
        graph = self._world.graph
        if last.answer_id is not None:
            kind = self._world.entity(last.answer_id).kind
            names = [graph.entities[index].name for index in graph.members[kind]]
        else:
            facts = (graph.fact(entity.index, last.relation) for entity in graph.entities)
            names = sorted({fact.value for fact in facts if fact is not None})
        spans = [_replace(last.evidence.text, last.said, name) for name in names]
        return self._pick([span for span in spans if not any(says(span, answer) for answer in question.answers)])

    def _cut(self, question: GoldQuestion) -> str | None:
        """The longer part of the gold sentence before or after the answer."""
        last = question.chain[-1]
        pieces = _pattern(last.said).split(last.evidence.text)
        return max((piece.strip(" ,;") for piece in pieces), key=len) or None

    def _beside(self, question: GoldQuestion) -> str | None:
        gold = question.chain[-1].evidence
        near = [stated.support.evidence for stated in self._stated if stated.subject.id == gold.doc_id]
        return self._pick([one.text for one in near if one != gold and not _says_any(one, question)])

    def _elsewhere(self, question: GoldQuestion) -> str | None:
        """A sentence about something else in which the answer replaces an object of the same type.

        The sentence names its subject, so that it cannot be read as the next step of the question.
        """
        last = question.chain[-1]
        gold = self._world.graph.fact(self._world.entity(last.entity).index, last.relation)
        fitting = [
            stated
            for stated in self._stated
            if stated.sort == self._sort(gold)
            and stated.support.relation != last.relation
            and stated.subject.id != last.evidence.doc_id
            and stated.is_named
        ]
        spans = [_replace(stated.support.evidence.text, stated.support.mention, last.said) for stated in fitting]
        return self._pick([span for span in spans if not says(span, last.mention)])

    def _state(self, subject: Entity, support: Support) -> _Stated:
        sort = self._sort(self._world.graph.fact(subject.index, support.relation))
        return _Stated(subject, support, sort, any(says(support.evidence.text, name) for name in subject.names))

    def _sort(self, fact: Fact | None) -> str:
        """Type of a fact's object: an entity kind, "year", "number" or "words"; objects of one type can be swapped."""
        if fact is None:
            return ""
        if fact.object is not None:
            return self._world.graph.entities[fact.object].kind
        relation = self._world.graph.relations[fact.relation]
        return "year" if relation.year else "words" if relation.words else "number"


def _says_any(evidence: Evidence, question: GoldQuestion) -> bool:
    return any(says(evidence.text, answer) for answer in question.answers)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(strip_article(name))}(?!\w)", re.IGNORECASE)


def _replace(text: str, name: str, other: str) -> str:
    return _pattern(name).sub(lambda _: strip_article(other), text)
