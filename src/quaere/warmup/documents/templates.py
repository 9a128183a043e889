"""Does a comparison ask of two pages what a template asks of one? By words alone, so that no model has to be trusted.

    asks_the_same("Who was born earlier, {X} or {Y}?", "when was born", "earlier") -> True
    asks_the_same("Which book was released earlier, {X} or {Y}?", "when was released", "earlier") -> False

The second says of every page that it is a book.
"""

from __future__ import annotations

import re

from msgspec import Struct

from quaere.rewards.answers import normalise_answer
from quaere.warmup.documents.prompt_examples import Form

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
