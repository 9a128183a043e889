"""Drafts: facts to ask about, and what a question about them must name and hide, before the model words it.

single_drafts(pages, num=6000, seed=7)      # one fact each; most are of pages that are linked by a name
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from quaere.records import Passage
from quaere.rewards.answers import normalise_answer
from quaere.warmup.documents.askable_facts import Fact, draw_facts, find_facts
from quaere.warmup.documents.links import Pages
from quaere.worlds.dice import Dice

QuestionKind = Literal["single", "description", "chain", "comparison", "agreement"]
"""Kinds of draft. A description is not kept as a question: it replaces a name in chains and comparisons."""


def is_choice(kind: QuestionKind) -> bool:
    """True if a question of this kind names two answers, so that a guess is right half of the time."""
    return kind in ("comparison", "agreement")


_LINKED_SHARE = 0.7  # share of drafts about pages that name each other: only these can form chains
_FACTS_OF_LINKED = 3  # facts drafted of a page that another page names


class Draft(Struct, frozen=True):
    """A question to be worded: its facts, its answers, the names it must contain, and a name it must not contain.

    Draft(id="halm#0:16", kind="single", facts=(Fact(...),), answers=("Orsolya Venn",), names=("Halm bridge",))
    """

    id: str
    kind: QuestionKind
    facts: tuple[Fact, ...]
    answers: tuple[str, ...]
    names: tuple[str, ...]
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
    def answers(self) -> tuple[str, ...]:
        """The accepted answers, which may depend on the wording (a year is accepted if the question asks for one)."""
        draft = self.draft
        return draft.answers if draft.is_choice else draft.facts[-1].accept(self.question)

    @property
    def template(self) -> str:
        """The normalised question without its page's name: equal templates ask the same of two pages."""
        (fact,) = self.draft.facts
        return normalise_answer(self.question.replace(fact.name, "{}"))


# ------------------------------------------------------------------------------------------------------- single facts


def single_drafts(pages: Pages, num: int, seed: int) -> list[Draft]:
    """At most `num` drafts of single facts, most of them of linked pages.

    A link gives the fact whose answer names another page, and facts of that page.
    """
    dice = Dice(seed, "drafts")
    order = list(pages.passages)
    dice.shuffle(order)
    chosen: dict[str, Fact] = {}
    for fact in _linked_facts(pages, order, dice):
        if len(chosen) >= _LINKED_SHARE * num:
            break
        chosen[fact.id] = fact
    for passage in order:
        if len(chosen) >= num:
            break
        chosen |= {fact.id: fact for fact in draw_facts(passage, dice, 1)}
    return [_single(fact) for fact in chosen.values()]


def _single(fact: Fact) -> Draft:
    return Draft(fact.id, "single", (fact,), fact.accept(), (fact.name,))


def _linked_facts(pages: Pages, order: Sequence[Passage], dice: Dice) -> Iterator[Fact]:
    """For each passage that names another page: the fact whose span is that name, and facts of the named page."""
    asked: set[str] = set()
    for passage in order:
        named = {(link.start, link.end): link.page for link in pages.links(passage)}
        spans = [fact for fact in find_facts(passage) if (fact.start, fact.end) in named]
        if not spans:
            continue
        fact = dice.pick(spans)
        page = named[fact.start, fact.end]
        yield fact
        if page not in asked:
            asked.add(page)
            yield from draw_facts(pages.of(page)[0], dice, _FACTS_OF_LINKED)
