"""Articles: the facts of an entity in 80 to 200 words, with the span of every fact.

An article is a function of the world's seed and the entity only, so it can be written at any time, in any order, and
need not be stored; the last thousand are cached.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

from quaere.records import Evidence
from quaere.worlds.dice import Dice
from quaere.worlds.graph import Entity, Fact, Graph, number_text
from quaere.worlds.names import capitalise
from quaere.worlds.schema import Kind, split_forms, split_slots

T = TypeVar("T")

MIN_WORDS = 80
MAX_WORDS = 200

_TARGET_WORDS = (80, 136)  # counted in templates, where a slot is one word: articles are somewhat longer
_JOINED_MAX_WORDS = 30
_JOIN_PERCENT = 45
_APPOSITION_PERCENT = 40
_ASIDE_PERCENT = 45
_PARAGRAPH_PERCENT = 60
_OBJECT_ALIAS_PERCENT = 60
_OTHER_ALIAS_PERCENT = 25
_PRONOUN_PERCENT = 55
_NEIGHBOURS = 12
_FRESH_DRAWS = 12
_PRONOUNS = {
    "it": {"he": "it", "him": "it", "his": "its", "himself": "itself"},
    "she": {"he": "she", "him": "her", "his": "her", "himself": "herself"},
    "he": {"he": "he", "him": "him", "his": "his", "himself": "himself"},
}
_SUBJECT_SLOTS = frozenset({"S", "S's", "Name", *_PRONOUNS["it"]})
_NUMBERS = {"small": (2, 12), "big": (13, 480)}


class Support(Struct, frozen=True):
    """The sentence of an article that states a fact, and the object's name in it.

    Support(relation="birthplace", mention="Halmaster", evidence=Evidence(doc_id="e7-000012", ...))
    """

    relation: str
    mention: str
    evidence: Evidence


class Article(Struct, frozen=True):
    """One article of the encyclopedia.

    Article(id="e7-000012", title="River Oss", text="The Oss is a slow river ...", supports=(Support(...),))
    """

    id: str
    title: str
    text: str
    supports: tuple[Support, ...]

    def support(self, relation: str) -> Support:
        """The sentence that states this relation's fact; the article must have it."""
        return next(support for support in self.supports if support.relation == relation)


@lru_cache(maxsize=1024)  # demonstrations and questions read the same articles again and again
def write_article(graph: Graph, seed: int, index: int) -> Article:
    """The article about one entity.

    write_article(graph, 7, 12).title == "River Oss"
    """
    outline = _draw_outline(graph, index, Dice(seed, graph.family.name, "outline", index))
    while True:
        article = _Writer(graph, Dice(seed, graph.family.name, "article", index), index).write(outline)
        spares = [position for position, sentence in enumerate(outline) if position and sentence.is_spare]
        if len(article.text.split()) <= MAX_WORDS or not spares:
            return article
        del outline[spares[-1]]  # too long: omit the last embellishment


def with_article(text: str) -> str:
    """The text with the right indefinite article.

    with_article("old donkey") == "an old donkey"; with_article("one-eyed dog") == "a one-eyed dog"
    """
    sounds_open = text[0].lower() in "aeiou" and not text.lower().startswith(("one", "uni", "use", "eu"))
    return f"an {text}" if sounds_open else f"a {text}"


# ------------------------------------------------------------------------------------------------------ outline


class Sentence(Struct):
    """A planned sentence. It may be omitted if it has neither a fact nor an alias.

    Sentence(template="{S} rises in {O}.", fact=Fact(...), tail=Sentence(template="{S's} course is {O} leagues long."))
    """

    template: str
    fact: Fact | None = None
    alias: str = ""
    tail: Sentence | None = None  # joined to this one: "..., and its course is 86 leagues long."
    opens_paragraph: bool = False

    @property
    def is_spare(self) -> bool:
        """True if the article can omit the sentence."""
        return self.fact is None and not self.alias

    @property
    def begins_with_subject(self) -> bool:
        """True if the sentence begins with the subject, so that "it" in the next one is understood."""
        return self.template.startswith(("{S}", "{S's}", "{Name}"))


def _draw_outline(graph: Graph, index: int, dice: Dice) -> list[Sentence]:
    """The outline: an opening, then facts, aliases and embellishments in mixed order.

    [Sentence("{Name} is a slow river."), Sentence("{S} rises in {O}.", fact=Fact(...)), ...]
    """
    kind, aliases = graph.kind(index), list(graph.entities[index].aliases)
    opening, body = _draw_opening(kind, aliases, dice), _draw_facts(graph, index, dice)
    templates = list(kind.alias_sentences)
    dice.shuffle(templates)
    for alias, template in zip(aliases, templates, strict=False):
        sentence = Sentence(choose_form(template, dice), alias=alias)  # before its place: the order of draws is fixed
        body.insert(dice.below(len(body) + 1), sentence)
    _embellish(kind, sum(map(_count_words, (opening, *body))), body, _object_groups(graph, index), dice)
    outline = [opening, *body]
    if len(outline) > 5 and dice.chance(_PARAGRAPH_PERCENT):
        outline[dice.between(3, len(outline) - 2)].opens_paragraph = True
    return outline


def _draw_opening(kind: Kind, aliases: list[str], dice: Dice) -> Sentence:
    """The first sentence; it may include the first alias, which is then removed from `aliases`."""
    has_alias = bool(aliases) and dice.chance(_APPOSITION_PERCENT)
    openings = [opening for opening in kind.openings if "{Name}" in opening or not has_alias]
    return Sentence(choose_form(dice.pick(openings), dice), alias=aliases.pop(0) if has_alias else "")


def _draw_facts(graph: Graph, index: int, dice: Dice) -> list[Sentence]:
    """One sentence per fact, in random order; two short ones about the subject are sometimes joined."""
    sentences = [
        Sentence(choose_form(dice.pick(graph.relations[fact.relation].sentences), dice), fact)
        for fact in graph.facts_of(index)
    ]
    dice.shuffle(sentences)
    body: list[Sentence] = []
    for sentence in sentences:
        if body and _can_join(body[-1], sentence) and dice.chance(_JOIN_PERCENT):
            body[-1].tail = sentence
        else:
            body.append(sentence)
    return body


def _can_join(first: Sentence, second: Sentence) -> bool:
    is_short = _count_words(first) + _count_words(second) <= _JOINED_MAX_WORDS
    is_plain = first.tail is None and ";" not in first.template + second.template
    return is_short and is_plain and first.begins_with_subject and second.begins_with_subject


def _object_groups(graph: Graph, index: int) -> tuple[str, ...]:
    """The kinds and groups of the facts' objects, as named in `{other:...}`."""
    kinds = {graph.entities[fact.object].kind for fact in graph.facts_of(index) if fact.object is not None}
    groups = [group for group, members in graph.family.groups.items() if not kinds.isdisjoint(members)]
    return (*sorted(kinds), *groups)


def _embellish(kind: Kind, num_words: int, body: list[Sentence], groups: tuple[str, ...], dice: Dice) -> None:
    """Add sentences without question facts, at least two, until a drawn target length is reached.

    Asides that name an entity of the same kind as a fact's object come first, so that the kind alone does not give the
    answer away.
    """
    asides, colour = list(kind.asides), list(kind.colour)
    dice.shuffle(asides)
    dice.shuffle(colour)
    asides.sort(key=lambda aside: any(f"{{other:{group}}}" in aside for group in groups))
    target, num_planned = dice.between(*_TARGET_WORDS), len(body)
    while (num_words < target or len(body) < num_planned + 2) and (asides or colour):
        wants_aside = len(body) == num_planned or dice.chance(_ASIDE_PERCENT)
        source = asides if (wants_aside and asides) or not colour else colour
        sentence = Sentence(choose_form(source.pop(), dice))
        body.insert(dice.below(len(body) + 1), sentence)
        num_words += _count_words(sentence)


def _count_words(sentence: Sentence) -> int:
    return len(sentence.template.split()) + (_count_words(sentence.tail) if sentence.tail else 0)


def choose_form(template: str, dice: Dice) -> str:
    """The template with one form chosen for each alternative.

    choose_form("{S} was [a|an only] child.", dice) == "{S} was an only child."
    """
    parts = enumerate(split_forms(template))
    return "".join(part if at % 2 == 0 else dice.pick(part.split("|")) for at, part in parts)


# ------------------------------------------------------------------------------------------------------ writing


class _Writer:
    """Writer of one article; it tracks whether a pronoun would be ambiguous."""

    def __init__(self, graph: Graph, dice: Dice, index: int) -> None:
        self.graph, self.dice = graph, dice
        self.entity, self.kind = graph.entities[index], graph.kind(index)
        facts = graph.facts_of(index)
        self.mentioned = {index, *(fact.object for fact in facts if fact.object is not None)}
        self.literals = frozenset(fact.value for fact in facts if fact.object is None)
        self.used_words = set(self.literals)
        self.mentions: dict[str, str] = {}  # name used for the object of each relation
        self.has_rival = False  # True if the sentence before named another entity that a pronoun could refer to
        self.is_understood = False  # True if the sentence before began with the subject
        self.last_called = "name"  # "name", "noun", or "" for a pronoun

    def write(self, outline: list[Sentence]) -> Article:
        text, supports = "", list[Support]()
        for sentence in outline:
            if text:
                text += "\n\n" if sentence.opens_paragraph else " "
            start, said = len(text), self._visible(sentence, is_first=not text)
            text += said
            for part in (sentence, sentence.tail):
                if part and part.fact:
                    evidence = Evidence(self.entity.id, start, len(text), said)
                    supports.append(Support(part.fact.relation, self.mentions[part.fact.relation], evidence))
        return Article(self.entity.id, self.entity.title, text, tuple(supports))

    def _visible(self, sentence: Sentence, is_first: bool) -> str:
        """The text of a planned sentence, and of the `tail` joined to it if there is one."""
        style = "full" if is_first else "name" if sentence.opens_paragraph or self.has_rival else "free"
        self.has_rival = False
        text = capitalise(self._fill(sentence, style))
        if sentence.tail:
            text = text[:-1] + self.dice.pick((", and ", ", and ", "; ")) + self._fill(sentence.tail, "pronoun")
        self.is_understood = sentence.begins_with_subject
        return text

    def _fill(self, sentence: Sentence, style: str) -> str:
        """The sentence with its slots filled; `style` is the form of the subject's first mention, pronouns follow."""
        parts = list(split_slots(sentence.template))
        used_numbers = set(self.literals)
        for at in range(1, len(parts), 2):
            slot = parts[at]
            if slot in _SUBJECT_SLOTS:
                parts[at] = self._subject(slot, style)
                if slot == "Name" and sentence.alias:
                    parts[at] += self.dice.pick(self.graph.family.also_called).replace("{A}", sentence.alias)
                style = "pronoun"
            else:
                parts[at] = sentence.alias if slot == "A" else self._filling(slot, sentence.fact, used_numbers)
        return "".join(parts)

    # -------------------------------------------------------------------------------------------------- subject

    def _subject(self, slot: str, style: str) -> str:
        forms, is_person = _PRONOUNS[self.entity.pronoun], self.kind.pronoun == "person"
        is_possessive = slot in ("S's", "his")
        pronoun = forms[slot] if slot in forms else forms["his" if is_possessive else "he"]
        if style == "free":
            style = "pronoun" if slot in forms else self._draw_style(is_person or is_possessive)
        if style == "pronoun" or (slot in forms and not is_person):
            return pronoun
        names = {"noun": f"the {self.kind.noun}", "name": self.entity.short}
        name = names.get(style, self.entity.name)
        if is_possessive and (len(name.split()) > 3 or name.endswith("s")):
            name = names["noun"]
        return f"{name}'s" if is_possessive else name

    def _draw_style(self, is_clear: bool) -> str:
        """How to refer to the subject: a pronoun (if it is clear), a noun or its name; seldom the same twice."""
        if (is_clear or self.is_understood) and self.dice.chance(_PRONOUN_PERCENT if self.last_called else 85):
            self.last_called = ""
            return "pronoun"
        self.last_called = "noun" if self.last_called != "noun" and self.dice.chance(50) else "name"
        return self.last_called

    # ---------------------------------------------------------------------------------------------- other slots

    def _filling(self, slot: str, fact: Fact | None, used_numbers: set[str]) -> str:
        if slot.startswith("other:"):
            return self._other(slot[6:])
        if slot.startswith("a:"):
            return with_article(self._filling(slot[2:], fact, used_numbers))
        if slot == "O":
            assert fact is not None  # only sentences that state a fact have this slot
            entity = None if fact.object is None else self.graph.entities[fact.object]
            self.mentions[fact.relation] = text = self._call(entity, _OBJECT_ALIAS_PERCENT) if entity else fact.value
            return text
        if slot == "noun":
            return self.kind.noun
        if slot == "later":
            return str(self.entity.year + self.dice.between(*self.kind.later))
        if slot == "times":
            number = self.dice.between(2, 9)
            return "twice" if number == 2 else f"{number_text(number)} times"
        if slot in _NUMBERS:
            return _draw_fresh(used_numbers, lambda: number_text(self.dice.between(*_NUMBERS[slot])))
        return _draw_fresh(self.used_words, lambda: self.dice.pick(self.graph.family.lexicon[slot]))

    def _other(self, group: str) -> str:
        """The name of an irrelevant entity of this group; for people and their works, one of about the same time."""
        kinds = self.graph.family.groups.get(group, (group,))
        years, candidates = self.graph.by_year(kinds)
        low, high = 0, len(candidates) - 1
        if not self.kind.timeless and not self.graph.kinds[kinds[0]].timeless:
            middle = min(high, bisect_left(years, self.entity.year))
            low, high = max(0, middle - _NEIGHBOURS), min(high, middle + _NEIGHBOURS)
        index = _draw_fresh(self.mentioned, lambda: candidates[self.dice.between(low, high)])
        return self._call(self.graph.entities[index], _OTHER_ALIAS_PERCENT)

    def _call(self, entity: Entity, alias_percent: int) -> str:
        """One of the entity's names; sets `has_rival` if a pronoun could refer to the entity."""
        same_pronoun = entity.pronoun == self.entity.pronoun and entity.pronoun != "it"
        self.has_rival = self.has_rival or same_pronoun or entity.kind == self.entity.kind
        if entity.aliases and self.dice.chance(alias_percent):
            return self.dice.pick(entity.aliases)
        return self.dice.pick((entity.name, *entity.also))


def _draw_fresh(used: set[T], draw: Callable[[], T]) -> T:
    """Draw an item that is not in `used`, if a few draws find one, and add it to `used`."""
    for _ in range(1 + _FRESH_DRAWS):
        item = draw()
        if item not in used:
            break
    used.add(item)
    return item
