"""What is to be asked: facts and the request that words them, before any model has written.

    single_drafts(pages, num=6000, seed=7)      # one fact each; first those whose pages are linked by a name
    chain_drafts(kept, dice)                    # two kept questions: the answer of one is what the other is about
    comparison_drafts(kept, dice)               # two kept questions that ask the same of two pages

Every draft becomes at most one question, and says by itself what that question must name and what it must hide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from quaere.chat.messages import Message
from quaere.records import Passage
from quaere.rewards.answers import normalise_answer
from quaere.training.warmup.documents.facts import Fact, draw_facts, find_facts
from quaere.training.warmup.documents.links import Pages
from quaere.training.warmup.documents.wording import word_agreement, word_chain, word_comparison, word_question
from quaere.worlds.dice import Dice

QuestionKind = Literal["single", "chain", "comparison", "agreement"]

_LINKED_SHARE = 0.7  # of the drafts are about pages that name each other: chains are made of these alone
_FACTS_OF_LINKED = 3  # asked of a page that another page names
_MAX_PAIRS = 2  # chains through one fact
_CHAIN_WORDINGS = 2  # tries to word a chain, of which one is kept: most of what can go wrong is the wording


class Draft(Struct, frozen=True):
    """A question to be worded: its facts, its answers, the names it must hold, and a name it must not.

    Draft(id="halm#0:16", kind="single", facts=(Fact(...),), answers=("Orsolya Venn",), names=("Halm bridge",),
          messages=[Message(...)])
    """

    id: str
    kind: QuestionKind
    facts: tuple[Fact, ...]
    answers: tuple[str, ...]
    names: tuple[str, ...]
    messages: list[Message]
    hidden: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The passages that answer it."""
        return tuple(fact.passage.titled_text for fact in self.facts)

    @property
    def is_choice(self) -> bool:
        """Is a guess right half of the time?"""
        return self.kind in ("comparison", "agreement")


class Worded(Struct, frozen=True):
    """A draft with the question that was written for it.

    Worded(draft=Draft(...), question="Who built the Halm bridge?", scores={"with_page": 0.8, "closed_book": 0.0})
    """

    draft: Draft
    question: str
    scores: dict[str, float] = {}

    @property
    def answers(self) -> tuple[str, ...]:
        """What is accepted as its answer, which may depend on how it is asked."""
        draft = self.draft
        return draft.answers if draft.is_choice else draft.facts[-1].accept(self.question)

    @property
    def template(self) -> str:
        """The question with its page's name left out: two of one template ask the same of two pages."""
        (fact,) = self.draft.facts
        return normalise_answer(self.question.replace(fact.name, "{}"))


# ------------------------------------------------------------------------------------------------------- single facts


def single_drafts(pages: Pages, num: int, seed: int) -> list[Draft]:
    """`num` facts at most. Most are of linked pages: a fact whose answer names a page, and facts of that page."""
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
    return Draft(fact.id, "single", (fact,), fact.accept(), (fact.name,), word_question(fact))


def _linked_facts(pages: Pages, order: Sequence[Passage], dice: Dice) -> Iterator[Fact]:
    """Of each passage that names another page: the fact whose span is that name, and facts of the page it leads to."""
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


# ---------------------------------------------------------------------------------------------------------- two facts


def chain_drafts(kept: Sequence[Worded], dice: Dice) -> list[Draft]:
    """Pairs in which the first question's answer is the page of the second, whose answer the first page does not tell.

    Each link has been checked by itself: the first question leads to the name, the second from the name to the answer.
    """
    by_page: dict[str, list[Worded]] = {}
    for worded in kept:
        by_page.setdefault(normalise_answer(worded.draft.facts[0].name), []).append(worded)
    drafts = []
    for first in kept:
        seconds = list(by_page.get(normalise_answer(first.draft.facts[0].answer), ()))
        dice.shuffle(seconds)
        drafts += [_chain(first, second) for second in seconds[:_MAX_PAIRS] if _can_be_chained(first, second)]
    return drafts * _CHAIN_WORDINGS


def _can_be_chained(first: Worded, second: Worded) -> bool:
    start, end = first.draft.facts[0], second.draft.facts[0]
    told = normalise_answer(start.passage.titled_text).split()
    words = normalise_answer(end.answer).split()
    return end.name != start.name and not set(words) <= set(told)


def _chain(first: Worded, second: Worded) -> Draft:
    start, end = first.draft.facts[0], second.draft.facts[0]
    return Draft(
        id=f"{start.id}>{end.id}",
        kind="chain",
        facts=(start, end),
        answers=second.answers,
        names=(start.name,),
        messages=word_chain(start, first.question, second.question),
        hidden=end.name,
    )


def comparison_drafts(kept: Sequence[Worded], dice: Dice) -> list[Draft]:
    """Pairs of questions of one template: which of two dates is earlier or later, or are two answers the same?"""
    by_template: dict[str, list[Worded]] = {}
    for worded in kept:
        by_template.setdefault(worded.template, []).append(worded)
    drafts: list[Draft] = []
    for group in by_template.values():
        dice.shuffle(group)
        for one, other in _pairs(group):
            drafts.append(_comparison(one, other, dice) if one.draft.facts[0].year else _agreement(one, other))
    return drafts


def _pairs(group: Sequence[Worded]) -> Iterator[tuple[Worded, Worded]]:
    """Neighbours of a group about different pages: dates of different years; of others, equal ones before unequal."""
    dated = [worded for worded in group if worded.draft.facts[0].year]
    for one, other in pairwise(dated):
        if one.draft.facts[0].year != other.draft.facts[0].year and one.draft.names != other.draft.names:
            yield one, other
    named = [worded for worded in group if not worded.draft.facts[0].year]
    by_answer: dict[str, list[Worded]] = {}
    for worded in named:
        by_answer.setdefault(normalise_answer(worded.draft.facts[0].answer), []).append(worded)
    equal = [pair for same in by_answer.values() for pair in zip(same[::2], same[1::2], strict=False)]
    unequal = [pair for pair in zip(named[::2], named[1::2], strict=False) if not _agree(*pair)]
    for one, other in [*equal, *unequal[: len(equal) or 1]]:
        if one.draft.names != other.draft.names:
            yield one, other


def _agree(one: Worded, other: Worded) -> bool:
    return normalise_answer(one.draft.facts[0].answer) == normalise_answer(other.draft.facts[0].answer)


def _comparison(one: Worded, other: Worded, dice: Dice) -> Draft:
    first = dice.chance(70)  # people ask for the earlier more often
    facts = (one.draft.facts[0], other.draft.facts[0])
    chosen = sorted(facts, key=lambda fact: fact.year or 0)[0 if first else -1]
    names = (facts[0].name, facts[1].name)
    asked = word_comparison(_without_name(one), names, first=first)
    return Draft(f"{facts[0].id}|{facts[1].id}", "comparison", facts, (chosen.name,), names, asked)


def _agreement(one: Worded, other: Worded) -> Draft:
    facts = (one.draft.facts[0], other.draft.facts[0])
    names = (facts[0].name, facts[1].name)
    answer = "yes" if _agree(one, other) else "no"
    asked = word_agreement(_without_name(one), names)
    return Draft(f"{facts[0].id}={facts[1].id}", "agreement", facts, (answer,), names, asked)


def _without_name(worded: Worded) -> str:
    return worded.question.replace(worded.draft.facts[0].name, "...")
