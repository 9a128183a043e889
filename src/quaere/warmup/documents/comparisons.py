"""Comparisons of two pages, put together by rules out of facts that were each checked by themselves.

    comparison_questions(pairs, {("when was born", "earlier"): ["Who was born earlier, {X} or {Y}?"]})
    -> [Worded(question="Who was born earlier, Orsolya Venn or Marta Oleen?", ...)]

A comparison is one wording, made once for all questions of a template ("When was ... born?"), filled with the names of
two pages. The model writes wordings and nothing else. It is not asked whether the answer is right: shown two pages, a
small model compares two dates no better than by chance, while each date was checked by itself and comparing them is a
rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise

from msgspec import Struct

from quaere.chat.question_wordings import fill_form
from quaere.rewards.answers import normalise_answer
from quaere.warmup.documents.chains import Link
from quaere.warmup.documents.drafts import Draft, QuestionKind, Worded
from quaere.warmup.documents.prompt_examples import Form
from quaere.warmup.documents.templates import asks_the_same, find_thing, mend_grammar, read_choice
from quaere.worlds.dice import Dice

_NEIGHBOURS = 2  # comparisons of one page with those after it
_EARLIER_PERCENT = 50  # of comparisons of dates
_NAMED_PERCENT = 50  # of comparisons of four facts, where it can be done: the answer is a named thing


class Pair(Struct, frozen=True):
    """Two questions of one template about two pages, what is asked of both, and the answer.

    Pair(one=Worded(...), other=Worded(...), form="earlier", answers=("Orsolya Venn",))
    """

    one: Worded
    other: Worded
    form: Form
    answers: tuple[str, ...]

    @property
    def key(self) -> tuple[str, Form]:
        """Pairs of one key are asked in the same words."""
        return self.one.template, self.form


def comparable_pairs(kept: Sequence[Worded], dice: Dice) -> list[Pair]:
    """Questions of one template, two by two: which date is earlier or later, or whether two answers are the same."""
    by_template: dict[str, list[Worded]] = {}
    for worded in kept:
        if worded.template:
            by_template.setdefault(worded.template, []).append(worded)
    pairs: list[Pair] = []
    for group in by_template.values():
        dice.shuffle(group)
        dated = [worded for worded in group if worded.fact.year]
        pairs += [_compare(one, other, dice) for one, other in _neighbours(dated) if _year(one) != _year(other)]
        pairs += _agreements([worded for worded in group if not worded.fact.year])
    return pairs


def _neighbours(group: Sequence[Worded]) -> Iterator[tuple[Worded, Worded]]:
    """Each with the few after it, if they are about other pages."""
    pairs = chain.from_iterable(zip(group, group[gap:], strict=False) for gap in range(1, _NEIGHBOURS + 1))
    return ((one, other) for one, other in pairs if one.fact.name != other.fact.name)


def _compare(one: Worded, other: Worded, dice: Dice) -> Pair:
    form: Form = "earlier" if dice.chance(_EARLIER_PERCENT) else "later"
    chosen = sorted((one, other), key=_year)[0 if form == "earlier" else 1]
    return Pair(one, other, form, (chosen.fact.name,))


def _agreements(group: Sequence[Worded]) -> list[Pair]:
    """As many pairs that agree as pairs that do not, as far as there are."""
    by_answer: dict[str, list[Worded]] = {}
    for worded in group:
        by_answer.setdefault(normalise_answer(worded.fact.answer), []).append(worded)
    same = [pair for members in by_answer.values() for pair in pairwise(members)]
    same = [(one, other) for one, other in same if one.fact.name != other.fact.name]
    apart = [pair for pair in _neighbours(group) if not _words(pair[0]) & _words(pair[1])]
    num = min(len(same), len(apart))
    agreeing = [Pair(one, other, "same", ("yes",)) for one, other in same[:num]]
    return agreeing + [Pair(one, other, "same", ("no",)) for one, other in apart[:num]]


def _words(worded: Worded) -> set[str]:
    """Of an answer: two that share one may be two names of one thing ("New York", "New York City")."""
    return set(normalise_answer(worded.fact.answer).split())


def read_wording(line: str, pair: Pair) -> str:
    """A comparison that was worded for this pair as a form for all of its key; "" where it will not do.

    read_wording("Who was born first, Venn or Oleen?", pair) == "Who was born first, {X} or {Y}?"
    """
    form = line
    for name, slot in ((pair.one.fact.name, "{X}"), (pair.other.fact.name, "{Y}")):
        if "{" in name or form.count(name) != 1:
            return ""
        form = form.replace(f'"{name}"', slot).replace(name, slot)
    form = mend_grammar(form, pair.one.template)
    thing = find_thing(pair.one.question, pair.one.fact.name)
    return form if asks_the_same(form, pair.one.template, pair.form, thing) else ""


def comparison_questions(pairs: Iterable[Pair], wordings: Mapping[tuple[str, Form], Sequence[str]]) -> list[Worded]:
    """Every pair whose key has wordings, in one of them: they take turns."""
    made = []
    for number, pair in enumerate(pairs):
        forms = wordings.get(pair.key, ())
        if not forms:
            continue
        facts = (pair.one.fact, pair.other.fact)
        names = (facts[0].name, facts[1].name)
        kind: QuestionKind = "agreement" if pair.form == "same" else "comparison"
        draft = Draft(f"{facts[0].id}|{facts[1].id}", kind, facts, pair.answers, names)
        question = fill_form(forms[number % len(forms)], X=names[0], Y=names[1])
        made.append(Worded(draft, question, _weakest(pair.one, pair.other)))
    return made


def _weakest(*parts: Worded) -> dict[str, float]:
    """What was checked of a question that is put together by rules: the least of what its parts had."""
    return {"with_page": min(part.scores.get("with_page", 0.0) for part in parts)}


def chained_comparisons(
    links: Sequence[Link],
    descriptions: Mapping[str, str],
    wordings: Mapping[tuple[str, Form], Sequence[str]],
    dice: Dice,
) -> list[Worded]:
    """Comparisons of two people who are described and not named: four facts in one question.

    "Who was born earlier, the builder of the Halm bridge or the painter of Ferrin Hall?"
    "Which film has the director who was born earlier, Low Water or Grey Coast?"
    """
    by_template: dict[str, list[Link]] = {}
    for link in links:
        if link.fact.id in descriptions and link.fact.name and link.second.template and link.second.fact.year:
            by_template.setdefault(link.second.template, []).append(link)
    made = []
    for group in by_template.values():
        dice.shuffle(group)
        for one, other in chain(pairwise(group), zip(group, group[2:], strict=False)):
            if _year(one.second) == _year(other.second) or one.second.fact.name == other.second.fact.name:
                continue
            pair = _compare(one.second, other.second, dice)
            for form in wordings.get(pair.key, ())[:1]:
                described = (descriptions[one.fact.id], descriptions[other.fact.id])
                made.append(_chained(pair, (one, other), described, form, dice))
    return made


def _chained(pair: Pair, links: tuple[Link, Link], described: tuple[str, str], form: str, dice: Dice) -> Worded:
    """The comparison of a pair whose pages are reached from two others; answered by a person, or by what was named."""
    second, fourth = pair.one.fact, pair.other.fact
    first, third = links[0].fact, links[1].fact
    names = (first.name, third.name)
    place = 0 if pair.answers == (second.name,) else 1
    answers, question = (*pair.answers, described[place]), fill_form(form, X=described[0], Y=described[1])
    choice = read_choice(form, described, names)
    if choice and dice.chance(_NAMED_PERCENT):
        answers, question = (names[place],), choice.question(*names)
    draft = Draft(
        id="|".join(fact.id for fact in (first, second, third, fourth)),
        kind="comparison",
        facts=(first, second, third, fourth),
        answers=answers,
        names=names,
        hidden=f"{second.name} {fourth.name}",
    )
    return Worded(draft, question, _weakest(pair.one, pair.other))


def _year(worded: Worded) -> int:
    return worded.fact.year or 0
