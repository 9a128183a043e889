"""Drafts: facts to ask about, and what a question about them must name and hide, before the model words it.

draw_drafts(passages, num=6000, seed=7)     # one fact each, every passage in turn
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from quaere.records import Passage
from quaere.rewards.answers import normalise_answer
from quaere.rewards.format import contains
from quaere.warmup.documents.askable_facts import Fact, draw_facts
from quaere.worlds.dice import Dice

QuestionKind = Literal["single", "chain", "comparison", "agreement", "choice", "yes-no"]
"""Kinds of question: one fact; two facts in a row; two facts compared (a name, or yes/no); one fact with two answers to
choose from; one fact with an answer to confirm."""

_MAX_FOLDERS = 50
_MAX_ROUNDS = 4  # facts of one passage


def is_choice(kind: QuestionKind) -> bool:
    """True if a question of this kind names two answers, so that a guess is right half of the time."""
    return kind not in ("single", "chain")


class Draft(Struct, frozen=True):
    """A question to be worded: its facts, its answers, the names it must contain, and a name it must not contain.

    Draft(id="halm#0:16", kind="single", facts=(Fact(...),), answers=("Orsolya Venn",))
    """

    id: str
    kind: QuestionKind
    facts: tuple[Fact, ...]
    answers: tuple[str, ...]
    names: tuple[str, ...] = ()
    hidden: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The passages that answer the question."""
        return tuple(fact.passage.titled_text for fact in self.facts)

    @property
    def told_by(self) -> tuple[Fact, ...]:
        """The facts that must be read to answer: of a chain the last one, which states the answer; else all."""
        return self.facts[-1:] if self.kind == "chain" else self.facts

    @property
    def is_choice(self) -> bool:
        """True if a guess is right half of the time."""
        return is_choice(self.kind)


class Worded(Struct, frozen=True):
    """A draft with the question that the model wrote for it.

    Worded(draft=Draft(...), question="Who built the Halm bridge?", scores={"with_page": 0.8, "closed_book": 0.0})
    """

    draft: Draft
    question: str
    scores: dict[str, float] = {}

    @property
    def fact(self) -> Fact:
        """The fact that states the answer."""
        return self.draft.facts[-1]

    @property
    def answers(self) -> tuple[str, ...]:
        """The accepted answers, which may depend on the wording (a year is accepted if the question asks for one)."""
        draft = self.draft
        return draft.answers if draft.is_choice else self.fact.accept(self.question)

    @property
    def template(self) -> str:
        """The normalised question without its page's name; "" without one. Equal ones ask the same of two pages."""
        if not self.fact.name or not contains(self.question, self.fact.name):
            return ""
        return normalise_answer(self.question.replace(self.fact.name, "{}"))


class Dropped(Struct, frozen=True):
    """A question that was not kept, and the check that it failed.

    Dropped(id="halm#0:16", question="Who built it?", answer="Orsolya Venn", reason="single: its passage is not found")
    """

    id: str
    question: str
    answer: str
    reason: str


def draw_drafts(passages: Sequence[Passage], num: int, seed: int) -> list[Draft]:
    """At most `num` drafts of single facts; the folders take turns.

    Without turns a folder of change logs would be asked about most. In a folder, one fact of every passage in random
    order, then a second one of each, and so on. Folders too many for turns are taken as one.
    """
    dice = Dice(seed, "drafts")
    order = list(passages)
    dice.shuffle(order)
    facts = itertools.zip_longest(*(_iterate_facts(folder, dice) for folder in _split_by_folder(order)))
    found = (fact for turn in facts for fact in turn if fact is not None)
    return [Draft(fact.id, "single", (fact,), fact.accept()) for fact in itertools.islice(found, num)]


def _split_by_folder(passages: Sequence[Passage]) -> list[list[Passage]]:
    by_folder: dict[str, list[Passage]] = {}
    for passage in passages:
        by_folder.setdefault(passage.doc_id.partition("/")[0] if "/" in passage.doc_id else "", []).append(passage)
    return list(by_folder.values()) if len(by_folder) <= _MAX_FOLDERS else [list(passages)]


def _iterate_facts(passages: Sequence[Passage], dice: Dice) -> Iterator[Fact]:
    """The first fact of each passage, then the second of each, ...; none is looked for before it is needed."""
    left: list[list[Fact]] = []
    for passage in passages:
        facts = draw_facts(passage, dice, _MAX_ROUNDS)
        yield from facts[:1]
        left.append(facts[1:])
    for later in itertools.zip_longest(*left):
        yield from (fact for fact in later if fact is not None)
