"""Questions composed by rules from checked facts: comparisons of two, and choice and yes/no questions about one.

    comparison_questions(pairs, {("when was born", "earlier"): ["Who was born earlier, {X} or {Y}?"]})
    -> [Worded(question="Who was born earlier, Orsolya Venn or Marta Oleen?", ...)]

A comparison is one wording, made once for all questions of a template ("When was ... born?"), filled with the names of
two pages. The model writes wordings and nothing else. It is not asked whether the answer is right: shown two pages, a
small model compares two dates no better than by chance, while each date was checked by itself and comparing them is a
rule. Whether a wording asks of two pages what the template asks of one is decided by its words alone (`asks_the_same`).

A choice has the right answer and a wrong one: a span of the same kind from the same document. The model must answer
both variants of a question (the other order; the wrong answer proposed): a model that always says "yes" or picks the
first option proves nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise

from msgspec import Struct

from quaere.chat.question_wordings import fill_form
from quaere.grouping import group_by
from quaere.records import Passage
from quaere.rewards.answers import normalise_answer
from quaere.warmup.documents.askable_facts import Fact, find_facts
from quaere.warmup.documents.chains import Bridge
from quaere.warmup.documents.checked_question import Draft, QuestionKind, Worded
from quaere.warmup.documents.prompt_examples import Form
from quaere.worlds.dice import Dice

_NEIGHBOURS = 2  # comparisons of one page with those after it
_EARLIER_PERCENT = 50  # of comparisons of dates ask which is earlier
_NAMED_PERCENT = 50  # of comparisons of four facts: their answer is a named thing, where that is possible
_YES_NO = re.compile(r"(?:Do|Does|Did|Are|Is|Was|Were|Have|Has)\b")
_WHICH = re.compile(r"(?:Who|Which|What|Whose)\b")
_EARLIER, _LATER = frozenset("earlier first before older sooner".split()), frozenset("later last after younger".split())
# By form: words of which a wording must have at least one, and words of which it must have none.
_COMPARING: dict[Form, tuple[frozenset[str], frozenset[str]]] = {
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
_YES_NO_OPENINGS = frozenset("Is Are Was Were Do Does Did Can Has Have Will Must Should May".split())
_OPENINGS = ("which ", "what ", "who ", "in which ", "where ", "when ", "how many ", "how much ", "how long ")

Variants = tuple[Worded, Worded]  # two variants of one question, of which one is kept


class Pair(Struct, frozen=True):
    """Two questions with the same template about two pages, how they are compared, and the comparison's answer.

    Pair(one=Worded(...), other=Worded(...), form="earlier", answers=("Orsolya Venn",))
    """

    one: Worded
    other: Worded
    form: Form
    answers: tuple[str, ...]

    @property
    def key(self) -> tuple[str, Form]:
        """Template and form; pairs with the same key share their wordings."""
        return self.one.template, self.form

    @property
    def scores(self) -> dict[str, float]:
        """The scores of the comparison: the lower one of its two questions, because comparing is done by rules."""
        return {"with_page": min(part.scores.get("with_page", 0.0) for part in (self.one, self.other))}


def comparable_pairs(kept: Sequence[Worded], dice: Dice) -> list[Pair]:
    """Pairs of questions with the same template: which date is earlier or later, or whether two answers are equal."""
    templated = [worded for worded in kept if worded.template]
    pairs: list[Pair] = []
    for group in group_by(templated, lambda worded: worded.template).values():
        dice.shuffle(group)
        dated = [worded for worded in group if worded.fact.year]
        pairs += [_compare(one, other, dice) for one, other in _neighbours(dated) if _year(one) != _year(other)]
        pairs += _agreements([worded for worded in group if not worded.fact.year])
    return pairs


def _neighbours(group: Sequence[Worded]) -> Iterator[tuple[Worded, Worded]]:
    """Pairs of each question with the next few in the list, if they are about different pages."""
    pairs = chain.from_iterable(zip(group, group[gap:], strict=False) for gap in range(1, _NEIGHBOURS + 1))
    return ((one, other) for one, other in pairs if one.fact.name != other.fact.name)


def _compare(one: Worded, other: Worded, dice: Dice) -> Pair:
    form: Form = "earlier" if dice.chance(_EARLIER_PERCENT) else "later"
    chosen = sorted((one, other), key=_year)[0 if form == "earlier" else 1]
    return Pair(one, other, form, (chosen.fact.name,))


def _agreements(group: Sequence[Worded]) -> list[Pair]:
    """Pairs for "are they the same?": as many with equal answers as with different ones."""
    by_answer = group_by(group, lambda worded: normalise_answer(worded.fact.answer))
    alike = chain.from_iterable(pairwise(members) for members in by_answer.values())
    same = [(one, other) for one, other in alike if one.fact.name != other.fact.name]
    apart = [pair for pair in _neighbours(group) if not _words(pair[0]) & _words(pair[1])]
    num = min(len(same), len(apart))
    agreeing = [Pair(one, other, "same", ("yes",)) for one, other in same[:num]]
    return agreeing + [Pair(one, other, "same", ("no",)) for one, other in apart[:num]]


def _words(worded: Worded) -> set[str]:
    """The words of the answer; answers that share a word may mean the same thing ("New York", "New York City")."""
    return set(normalise_answer(worded.fact.answer).split())


def read_wording(line: str, pair: Pair) -> str:
    """The comparison as a template for all pairs of its key; "" if it lacks the pair's names or asks something else.

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
    """A question for every pair whose key has wordings; the wordings of a key are used in turn."""
    worded = [(pair, wordings.get(pair.key, ())) for pair in pairs]
    return [_fill(pair, forms[number % len(forms)]) for number, (pair, forms) in enumerate(worded) if forms]


def _fill(pair: Pair, form: str) -> Worded:
    one, other = pair.one.fact, pair.other.fact
    kind: QuestionKind = "agreement" if pair.form == "same" else "comparison"
    draft = Draft(f"{one.id}|{other.id}", kind, (one, other), pair.answers, (one.name, other.name))
    return Worded(draft, fill_form(form, X=one.name, Y=other.name), pair.scores)


def chained_comparisons(
    bridges: Sequence[Bridge],
    descriptions: Mapping[str, str],
    wordings: Mapping[tuple[str, Form], Sequence[str]],
    dice: Dice,
) -> list[Worded]:
    """Comparisons of two people who are described and not named: four facts in one question.

    "Who was born earlier, the builder of the Halm bridge or the painter of Ferrin Hall?"
    "Which film has the director who was born earlier, Low Water or Grey Coast?"
    """
    dated = [
        bridge
        for bridge in bridges
        if bridge.fact.id in descriptions and bridge.fact.name and bridge.second.template and bridge.second.fact.year
    ]
    made = []
    for group in group_by(dated, lambda bridge: bridge.second.template).values():
        dice.shuffle(group)
        for one, other in chain(pairwise(group), zip(group, group[2:], strict=False)):
            if _year(one.second) != _year(other.second) and one.second.fact.name != other.second.fact.name:
                pair = _compare(one.second, other.second, dice)
                described = (descriptions[one.fact.id], descriptions[other.fact.id])
                forms = wordings.get(pair.key, ())[:1]
                made += [_chained(pair, (one.fact, other.fact), described, form, dice) for form in forms]
    return made


def _chained(pair: Pair, firsts: tuple[Fact, Fact], described: tuple[str, str], form: str, dice: Dice) -> Worded:
    """The comparison of two described people; sometimes as a choice between the things that describe them.

    Its answer is the person, or the thing in the second case.
    """
    people, names = (pair.one.fact, pair.other.fact), (firsts[0].name, firsts[1].name)
    place = 0 if pair.answers == (people[0].name,) else 1
    answers, question = (*pair.answers, described[place]), fill_form(form, X=described[0], Y=described[1])
    choice = read_choice(form, described, names)
    if choice and dice.chance(_NAMED_PERCENT):
        answers, question = (names[place],), choice
    facts = (firsts[0], people[0], firsts[1], people[1])
    draft_id, hidden = "|".join(fact.id for fact in facts), f"{people[0].name} {people[1].name}"
    return Worded(Draft(draft_id, "comparison", facts, answers, names, hidden), question, pair.scores)


def _year(worded: Worded) -> int:
    return worded.fact.year or 0


# ------------------------------------------------------------------------------------------------------------- wordings


def asks_the_same(form: str, template: str, kind: Form, thing: str) -> bool:
    """True if the form has exactly the content words of the template, and the words of the right comparison.

    `thing` is what the template calls its page ("film"), which may be left out.

        asks_the_same("Who was born earlier, {X} or {Y}?", "when was born", "earlier", "") -> True
        asks_the_same("Which book was released earlier, {X} or {Y}?", "when was released", "earlier", "") -> False
    """
    begins = _YES_NO if kind == "same" else _WHICH
    is_choice = " or " in form or form.startswith("Which of {X} and {Y} ")
    is_question = begins.match(form) and form.endswith("?") and is_choice == (kind != "same")
    words, asked = set(normalise_answer(form.replace("{X}", "").replace("{Y}", "")).split()), set(template.split())
    wanted, unwanted = _COMPARING[kind]
    if not is_question or not words & wanted or words & unwanted - asked:
        return False
    return _all_alike(words - _SMALL - wanted, asked) and _all_alike(asked - _ASKING - {thing}, words)


def _all_alike(words: set[str], others: set[str]) -> bool:
    return all(any(_alike(word, other) for other in others) for word in words)


def _alike(one: str, other: str) -> bool:
    """True if two words begin alike and so may be forms of one word: die and died, write and written."""
    shared = min(len(one), len(other), 4)
    return shared >= 3 and one[:shared] == other[:shared]


def find_thing(question: str, name: str) -> str:
    """The noun that a question puts before the page's name; "" if there is none.

    find_thing("Who directed the film Low Water?", "Low Water") == "film"
    """
    found = re.search(rf'\bthe (\w+) ["“]?{re.escape(name)}', question)
    return normalise_answer(found[1]) if found else ""


def mend_grammar(form: str, template: str) -> str:
    """The form with its verb in the right number and tense: a small model copies the verb of the single question.

    mend_grammar("Is {X} and {Y} located in the same country?", "in which country is located")
    == "Are {X} and {Y} located in the same country?"
    mend_grammar("Which was died earlier, {X} or {Y}?", "when did die") == "Who died earlier, {X} or {Y}?"
    """
    for single, plural in (("Is", "Are"), ("Was", "Were"), ("Does", "Do"), ("Has", "Have")):
        form = re.sub(rf"^{single} (?=(?:the )?{{X}} and )", f"{plural} ", form)
    if "did" in template.split():  # an active verb: "was died" is not English
        form = re.sub(r"^(Who|Which|What) (?:was|were) (?=\w+ed\b)", r"\1 ", form)
    return re.sub(rf"^Which (?={_OF_PEOPLE})", "Who ", form)


def read_choice(form: str, descriptions: tuple[str, str], names: tuple[str, str]) -> str | None:
    """The form as a choice between two things, if the descriptions give both people the same role; else None.

    read_choice("Who died first, {X} or {Y}?", ("the director of the film Low Water", "the director of Grey Coast"),
                ("Low Water", "Grey Coast")) == "Which has the director who died first, Low Water or Grey Coast?"
    """
    asked = re.fullmatch(rf"Who ({_OF_PEOPLE} \w+), {{X}} or {{Y}}\?", form)
    one, other = _read_role(descriptions[0], names[0]), _read_role(descriptions[1], names[1])
    if not asked or not one or not other or one[0] != other[0]:
        return None
    thing = f"Which {one[1]}" if one[1] and one[1] == other[1] else "Which"
    return f"{thing} has the {one[0]} who {asked[1]}, {names[0]} or {names[1]}?"


def _read_role(description: str, name: str) -> tuple[str, str] | None:
    """The role and the thing's noun in a description: "director" and "film" in "the director of the film Low Water"."""
    found = re.fullmatch(
        rf"the ([a-z]+(?: [a-z]+)?) of (?:(?:[\w-]+ )*?([a-z]+) )?[\"“]?{re.escape(name)}[\"”]?", description
    )
    return (found[1], "" if found[2] in (None, "the") else found[2]) if found else None


# -------------------------------------------------------------------------------------------------------------- choices


def find_wrong_answer(worded: Worded, document: Sequence[Passage], dice: Dice) -> str:
    """A wrong answer: a span of the same kind from the document, without words of question or answer; "" if none."""
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


def make_choice(worded: Worded, wrong: str) -> Variants | None:
    """Two choice questions, with the right answer first and second; None if the question does not ask for a thing.

    make_choice(Worded(..., "Who built Halm?"), "Oleen")[0].question == "Who built Halm, Venn or Oleen?"
    """
    if not worded.question.lower().startswith(_OPENINGS):
        return None
    stem, right = worded.question.removesuffix("?"), worded.fact.answer
    first, second = f"{stem}, {right} or {wrong}?", f"{stem}, {wrong} or {right}?"
    return (_variant(worded, "choice", first, worded.answers), _variant(worded, "choice", second, worded.answers))


def make_yes_no(worded: Worded, yes: str, no: str) -> Variants | None:
    """The model's yes/no questions for the right and the wrong answer; None if one is not a yes/no question."""
    are_both = all(line.endswith("?") and line.split(" ")[0] in _YES_NO_OPENINGS for line in (yes, no))
    if not are_both or yes == no:
        return None
    return (_variant(worded, "yes-no", yes, ("yes",)), _variant(worded, "yes-no", no, ("no",)))


def _variant(worded: Worded, kind: QuestionKind, question: str, answers: tuple[str, ...]) -> Worded:
    draft = Draft(f"{worded.draft.id}:{kind}", kind, worded.draft.facts, answers)
    return Worded(draft, question, worded.scores)
