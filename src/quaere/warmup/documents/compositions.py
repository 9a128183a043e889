"""Two checked facts in one question, put together by rules out of pieces that were each checked by themselves.

    chain_questions(pairs, {"halm#0:16": "the builder of the Halm bridge"})
    -> [Worded(question="Where was the builder of the Halm bridge born?", ...)]

A chain is a question in which a name is replaced by a description that leads to it. A comparison is one wording, made
once for all questions of a template ("When was ... born?"), filled with the names of two pages. The model writes
descriptions and wordings and nothing else: asked to rewrite whole questions, a small one mostly spoils them. Nor is
it asked whether the answer is right: shown two pages, a small model compares two dates no better than by chance, while
each date was checked by itself and comparing them is a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise

from msgspec import Struct

from quaere.chat.question_wordings import fill_form
from quaere.rewards.answers import normalise_answer
from quaere.warmup.documents.askable_facts import Fact
from quaere.warmup.documents.drafts import Draft, QuestionKind, Worded
from quaere.warmup.documents.prompts import Form
from quaere.warmup.documents.templates import asks_the_same, find_thing, mend_grammar, read_choice
from quaere.worlds.dice import Dice

_MAX_PAIRS = 2  # chains through one fact
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


# -------------------------------------------------------------------------------------------------------------- chains


def linked_pairs(kept: Sequence[Worded], dice: Dice) -> list[tuple[Worded, Worded]]:
    """Pairs in which the first question's answer is the second one's page, and the first page tells not all."""
    by_page: dict[str, list[Worded]] = {}
    for worded in kept:
        by_page.setdefault(normalise_answer(_fact(worded).name), []).append(worded)
    pairs = []
    for first in kept:
        seconds = [second for second in by_page.get(normalise_answer(_fact(first).answer), ()) if _leads(first, second)]
        dice.shuffle(seconds)
        pairs += [(first, second) for second in seconds[:_MAX_PAIRS]]
    return pairs


def _leads(first: Worded, second: Worded) -> bool:
    told = set(normalise_answer(_fact(first).passage.titled_text).split())
    return _fact(first).name != _fact(second).name and not set(normalise_answer(_fact(second).answer).split()) <= told


def chain_questions(pairs: Iterable[tuple[Worded, Worded]], descriptions: Mapping[str, str]) -> list[Worded]:
    """The second question of each pair with its page's name described; pairs without a description are left out."""
    made = []
    for first, second in pairs:
        described = descriptions.get(first.draft.id)
        question = _describe(second, described) if described else ""
        if question:
            facts = (_fact(first), _fact(second))
            draft = Draft(
                id=f"{facts[0].id}>{facts[1].id}",
                kind="chain",
                facts=facts,
                answers=second.answers,
                names=(facts[0].name,),
                hidden=facts[1].name,
            )
            made.append(Worded(draft, question))
    return made


def _describe(worded: Worded, description: str) -> str:
    """The question with the name replaced by the description; "" where the name does not stand there just once."""
    name = re.compile(rf"(?<!\w)(?:[Tt]he )?{re.escape(_fact(worded).name)}(?!\w)")  # a description has its article
    question, count = name.subn(lambda found: description, worded.question)
    return question[0].upper() + question[1:] if count == 1 else ""


def find_description_fault(description: str) -> str:
    """Why a line cannot stand for a name inside a question, in a few words; "" if it can.

    find_description_fault("Orsolya Venn") == "is no description"
    """
    words = description.split()
    if not 3 <= len(words) <= 20 or words[0] not in ("the", "a", "an") or re.search(r"[?!:;]", description):
        return "is no description"
    return "is no description" if description.count('"') % 2 else ""


def clean_description(line: str) -> str:
    """A description as it stands inside a question: with a small letter, without a full stop.

    clean_description("The builder of Halm.") == "the builder of Halm"
    """
    line = line.rstrip(".").strip()
    return line[:1].lower() + line[1:] if line.startswith(("The ", "A ", "An ")) else line


# --------------------------------------------------------------------------------------------------------- comparisons


def comparable_pairs(kept: Sequence[Worded], dice: Dice) -> list[Pair]:
    """Questions of one template, two by two: which date is earlier or later, or whether two answers are the same."""
    by_template: dict[str, list[Worded]] = {}
    for worded in kept:
        by_template.setdefault(worded.template, []).append(worded)
    pairs: list[Pair] = []
    for group in by_template.values():
        dice.shuffle(group)
        dated = [worded for worded in group if _fact(worded).year]
        pairs += [_compare(one, other, dice) for one, other in _neighbours(dated) if _year(one) != _year(other)]
        pairs += _agreements([worded for worded in group if not _fact(worded).year])
    return pairs


def _neighbours(group: Sequence[Worded]) -> Iterator[tuple[Worded, Worded]]:
    """Each with the few after it, if they are about other pages."""
    pairs = chain.from_iterable(zip(group, group[gap:], strict=False) for gap in range(1, _NEIGHBOURS + 1))
    return ((one, other) for one, other in pairs if _fact(one).name != _fact(other).name)


def _compare(one: Worded, other: Worded, dice: Dice) -> Pair:
    form: Form = "earlier" if dice.chance(_EARLIER_PERCENT) else "later"
    chosen = sorted((one, other), key=_year)[0 if form == "earlier" else 1]
    return Pair(one, other, form, (_fact(chosen).name,))


def _agreements(group: Sequence[Worded]) -> list[Pair]:
    """As many pairs that agree as pairs that do not, as far as there are."""
    by_answer: dict[str, list[Worded]] = {}
    for worded in group:
        by_answer.setdefault(normalise_answer(_fact(worded).answer), []).append(worded)
    same = [pair for members in by_answer.values() for pair in pairwise(members)]
    same = [(one, other) for one, other in same if _fact(one).name != _fact(other).name]
    apart = [pair for pair in _neighbours(group) if not _words(pair[0]) & _words(pair[1])]
    num = min(len(same), len(apart))
    agreeing = [Pair(one, other, "same", ("yes",)) for one, other in same[:num]]
    return agreeing + [Pair(one, other, "same", ("no",)) for one, other in apart[:num]]


def _words(worded: Worded) -> set[str]:
    """Of an answer: two that share one may be two names of one thing ("New York", "New York City")."""
    return set(normalise_answer(_fact(worded).answer).split())


def read_wording(line: str, pair: Pair) -> str:
    """A comparison that was worded for this pair as a form for all of its key; "" where it will not do.

    read_wording("Who was born first, Venn or Oleen?", pair) == "Who was born first, {X} or {Y}?"
    """
    form = line
    for name, slot in ((_fact(pair.one).name, "{X}"), (_fact(pair.other).name, "{Y}")):
        if "{" in name or form.count(name) != 1:
            return ""
        form = form.replace(f'"{name}"', slot).replace(name, slot)
    form = mend_grammar(form, pair.one.template)
    thing = find_thing(pair.one.question, _fact(pair.one).name)
    return form if asks_the_same(form, pair.one.template, pair.form, thing) else ""


def comparison_questions(pairs: Iterable[Pair], wordings: Mapping[tuple[str, Form], Sequence[str]]) -> list[Worded]:
    """Every pair whose key has wordings, in one of them: they take turns."""
    made = []
    for number, pair in enumerate(pairs):
        forms = wordings.get(pair.key, ())
        if not forms:
            continue
        facts = (_fact(pair.one), _fact(pair.other))
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
    pairs: Sequence[tuple[Worded, Worded]],
    descriptions: Mapping[str, str],
    wordings: Mapping[tuple[str, Form], Sequence[str]],
    dice: Dice,
) -> list[Worded]:
    """Comparisons of two people who are described and not named: four facts in one question.

    "Who was born earlier, the builder of the Halm bridge or the painter of Ferrin Hall?"
    "Which film has the director who was born earlier, Low Water or Grey Coast?"
    """
    by_template: dict[str, list[tuple[Worded, Worded]]] = {}
    for first, second in pairs:
        if first.draft.id in descriptions and _fact(second).year:
            by_template.setdefault(second.template, []).append((first, second))
    made = []
    for group in by_template.values():
        dice.shuffle(group)
        for (first, second), (third, fourth) in chain(pairwise(group), zip(group, group[2:], strict=False)):
            if _year(second) == _year(fourth) or _fact(second).name == _fact(fourth).name:
                continue
            pair = _compare(second, fourth, dice)
            for form in wordings.get(pair.key, ())[:1]:
                described = (descriptions[first.draft.id], descriptions[third.draft.id])
                made.append(_chained(pair, (first, third), described, form, dice))
    return made


def _chained(pair: Pair, leading: tuple[Worded, Worded], described: tuple[str, str], form: str, dice: Dice) -> Worded:
    """The comparison of a pair whose pages are reached from two others; answered by a person, or by what was named."""
    second, fourth = _fact(pair.one), _fact(pair.other)
    first, third = _fact(leading[0]), _fact(leading[1])
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
    return Worded(draft, question, _weakest(*leading, pair.one, pair.other))


def _fact(worded: Worded) -> Fact:
    return worded.draft.facts[0]


def _year(worded: Worded) -> int:
    return _fact(worded).year or 0
