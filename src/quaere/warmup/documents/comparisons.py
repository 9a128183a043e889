"""Comparisons of two pages, put together by rules out of facts that were each checked by themselves.

    comparison_questions(pairs, {("when was born", "earlier"): ["Who was born earlier, {X} or {Y}?"]})
    -> [Worded(question="Who was born earlier, Orsolya Venn or Marta Oleen?", ...)]

A comparison is one wording, made once for all questions of a template ("When was ... born?"), filled with the names of
two pages. The model writes wordings and nothing else. It is not asked whether the answer is right: shown two pages, a
small model compares two dates no better than by chance, while each date was checked by itself and comparing them is a
rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise

from msgspec import Struct

from quaere.chat.question_wordings import fill_form
from quaere.records import Passage
from quaere.rewards.answers import normalise_answer
from quaere.warmup.documents.askable_facts import find_facts
from quaere.warmup.documents.chains import Link
from quaere.warmup.documents.checked_question import Draft, QuestionKind, Worded
from quaere.warmup.documents.prompt_examples import Form
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


# ------------------------------------------------------------------------------------------------------------- wordings


_YES_NO = re.compile(r"(?:Do|Does|Did|Are|Is|Was|Were|Have|Has)\b")
_WHICH = re.compile(r"(?:Who|Which|What|Whose)\b")
_EARLIER, _LATER = frozenset("earlier first before older sooner".split()), frozenset("later last after younger".split())
_COMPARING: dict[Form, tuple[frozenset[str], frozenset[str]]] = {  # words of which one must stand there, and none
    "earlier": (_EARLIER, _LATER),
    "later": (_LATER, _EARLIER),
    "same": (frozenset(["same"]), frozenset()),
}
_OF_PEOPLE = r"(?:was born|died|passed away)"
_ASKING = frozenset(
    "when where who whom what which how in on at of by to from is was are were do does did has have had year date "
    "place person".split()
)
_SMALL = _ASKING | frozenset("or and both two ones one people time as with for whose".split())


def asks_the_same(form: str, template: str, kind: Form, thing: str = "") -> bool:
    """Has it every word of weight of the template and no other, and the right comparison?

    `thing` is what the template calls its page ("film"): that may be left out.
    """
    begins = _YES_NO if kind == "same" else _WHICH
    is_choice = " or " in form or form.startswith("Which of {X} and {Y} ")
    if not begins.match(form) or not form.endswith("?") or is_choice != (kind != "same"):
        return False
    words = set(normalise_answer(form.replace("{X}", "").replace("{Y}", "")).split())
    asked = set(template.split())
    wanted, unwanted = _COMPARING[kind]
    if not words & wanted or words & unwanted - asked:
        return False
    added = words - _SMALL - wanted
    return _all_alike(added, asked) and _all_alike(asked - _ASKING - {thing}, words)


def _all_alike(words: set[str], others: set[str]) -> bool:
    return all(any(_alike(word, other) for other in others) for word in words)


def _alike(one: str, other: str) -> bool:
    """Two forms of a word, as far as beginnings tell: die and died, write and written."""
    shared = min(len(one), len(other), 4)
    return shared >= 3 and one[:shared] == other[:shared]


def find_thing(question: str, name: str) -> str:
    """What a question calls the page it names; "" if it says nothing.

    find_thing("Who directed the film Low Water?", "Low Water") == "film"
    """
    found = re.search(rf'\bthe (\w+) ["“]?{re.escape(name)}', question)
    return normalise_answer(found[1]) if found else ""


def mend_grammar(form: str, template: str) -> str:
    """The form with the verb in the right number and tense: a small model repeats the verb of the question about one.

    mend_grammar("Is {X} and {Y} located in the same country?", "in which country is located")
    == "Are {X} and {Y} located in the same country?"
    mend_grammar("Which was died earlier, {X} or {Y}?", "when did die") == "Who died earlier, {X} or {Y}?"
    """
    for single, plural in (("Is", "Are"), ("Was", "Were"), ("Does", "Do"), ("Has", "Have")):
        form = re.sub(rf"^{single} (?=(?:the )?{{X}} and )", f"{plural} ", form)
    if "did" in template.split():  # an active verb: "was died" is not English
        form = re.sub(r"^(Who|Which|What) (?:was|were) (?=\w+ed\b)", r"\1 ", form)
    return re.sub(rf"^Which (?={_OF_PEOPLE})", "Who ", form)


class Choice(Struct, frozen=True):
    """A choice between two people, as a choice between two things of which they are the director, the author ...

    Choice("film", "director", "was born earlier").question("Low Water", "Grey Coast")
    == "Which film has the director who was born earlier, Low Water or Grey Coast?"
    """

    thing: str
    role: str
    predicate: str

    def question(self, one: str, other: str) -> str:
        """The question about the two things."""
        kind = f"Which {self.thing}" if self.thing else "Which"
        return f"{kind} has the {self.role} who {self.predicate}, {one} or {other}?"


def read_choice(form: str, descriptions: tuple[str, str], names: tuple[str, str]) -> Choice | None:
    """The form as a choice between the named things, where both people are described by the same role in them.

    read_choice("Who died first, {X} or {Y}?", ("the director of the film Low Water", "the director of Grey Coast"),
                ("Low Water", "Grey Coast")) == Choice("", "director", "died first")
    """
    asked = re.fullmatch(rf"Who ({_OF_PEOPLE} \w+), {{X}} or {{Y}}\?", form)
    roles = [_read_role(description, name) for description, name in zip(descriptions, names, strict=True)]
    one, other = roles
    if not asked or not one or not other or one[0] != other[0]:
        return None
    return Choice(one[1] if one[1] == other[1] else "", one[0], asked[1])


def _read_role(description: str, name: str) -> tuple[str, str] | None:
    """The role and what the thing is called: "director" and "film" in "the director of the 1974 film Low Water"."""
    found = re.fullmatch(
        rf"the ([a-z]+(?: [a-z]+)?) of (?:(?:[\w-]+ )*?([a-z]+) )?[\"“]?{re.escape(name)}[\"”]?", description
    )
    return (found[1], "" if found[2] in (None, "the") else found[2]) if found else None


# -------------------------------------------------------------------------------------------------------------- choices


_YES_NO_OPENINGS = frozenset("Is Are Was Were Do Does Did Can Has Have Will Must Should May".split())
_OPENINGS = ("which ", "what ", "who ", "in which ", "where ", "when ", "how many ", "how much ", "how long ")


Variants = tuple[Worded, Worded]  # two variants of one question, of which one is kept


def find_wrong_answer(worded: Worded, document: Sequence[Passage], dice: Dice) -> str:
    """Another span of the answer's kind in its document, with no word of question or answer; "" if there is none."""
    used = set(normalise_answer(" ".join((worded.question, *worded.answers))).split())
    length = len(worded.fact.answer.split())
    others = {
        fact.answer
        for passage in document
        for fact in find_facts(passage)
        if fact.kind == worded.fact.kind and abs(len(fact.answer.split()) - length) <= 1
    }
    apart = sorted(other for other in others if not used & set(normalise_answer(other).split()))
    return dice.pick(apart) if apart else ""


def ask_choice(worded: Worded, one: str, other: str) -> str:
    """The question with two answers to choose from; "" if it does not ask for a thing.

    ask_choice(Worded(..., "Who built Halm?"), "Venn", "Oleen") == "Who built Halm, Venn or Oleen?"
    """
    if not worded.question.lower().startswith(_OPENINGS):
        return ""
    return f"{worded.question.removesuffix('?')}, {one} or {other}?"


def make_choice(worded: Worded, wrong: str) -> Variants | None:
    """The question as a choice, with the right answer first and second."""
    right = worded.fact.answer
    if not wrong or not ask_choice(worded, right, wrong):
        return None
    first, second = ask_choice(worded, right, wrong), ask_choice(worded, wrong, right)
    return (_variant(worded, "choice", first, worded.answers), _variant(worded, "choice", second, worded.answers))


def make_yes_no(worded: Worded, yes: str, no: str) -> Variants | None:
    """The yes/no questions that a model worded for the right and the wrong answer; None if one is no such question."""
    if not (_is_yes_no(yes) and _is_yes_no(no)) or yes == no:
        return None
    return (_variant(worded, "yes-no", yes, ("yes",)), _variant(worded, "yes-no", no, ("no",)))


def _is_yes_no(line: str) -> bool:
    return line.endswith("?") and line.split(" ")[0] in _YES_NO_OPENINGS


def _variant(worded: Worded, kind: QuestionKind, question: str, answers: tuple[str, ...]) -> Worded:
    draft = Draft(f"{worded.draft.id}:{kind}", kind, worded.draft.facts, answers)
    return Worded(draft, question, worded.scores)


def balance(pairs: Iterable[Variants]) -> list[Worded]:
    """One of each pair, in turns."""
    return [pair[number % 2] for number, pair in enumerate(pairs)]
