"""Articles: the facts of an entity in 80 to 200 words, with the span of every fact.

An article is a function of the world's seed and the entity only, so it can be written at any time, in any order, and
need not be stored; the last thousand are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct

from quaere.records import Evidence
from quaere.worlds.dice import Dice
from quaere.worlds.graph import Entity, Fact, Graph, number_text
from quaere.worlds.names import capitalise
from quaere.worlds.outline import Sentence, draw_outline
from quaere.worlds.schema import split_slots

MIN_WORDS = 80
MAX_WORDS = 200

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
        """The support of this relation's fact."""
        return next(support for support in self.supports if support.relation == relation)


@lru_cache(maxsize=1024)  # whoever demonstrates or asks reads the same articles again and again
def write_article(graph: Graph, seed: int, index: int) -> Article:
    """The article about one entity.

    write_article(graph, 7, 12).title == "River Oss"
    """
    outline = draw_outline(graph, index, Dice(seed, graph.family.name, "outline", index))
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


class _Writer:
    """Writer of one article; it tracks whether a pronoun would be ambiguous."""

    def __init__(self, graph: Graph, dice: Dice, index: int) -> None:
        self.graph = graph
        self.dice = dice
        self.entity = graph.entities[index]
        self.kind = graph.kind(index)
        facts = graph.facts_of(index)
        self.mentioned = {index, *(fact.object for fact in facts if fact.object is not None)}
        self.literals = frozenset(fact.value for fact in facts if fact.object is None)
        self.used_words = set(self.literals)
        self.mentions: dict[str, str] = {}  # name used for the object of each relation
        self.has_rival = False  # True if the sentence before named another entity that a pronoun could refer to
        self.is_understood = False  # True if the sentence before began with the subject
        self.last_called = "name"  # "name", "noun", or "" for a pronoun

    def write(self, outline: list[Sentence]) -> Article:
        text = ""
        spans: list[tuple[int, int]] = []
        for sentence in outline:
            if text:
                text += "\n\n" if sentence.opens_paragraph else " "
            start = len(text)
            text += self._visible(sentence, is_first=not spans)
            spans.append((start, len(text)))
        supports = []
        for sentence, (start, end) in zip(outline, spans, strict=True):
            for part in (sentence, sentence.tail):
                if part and part.fact:
                    evidence = Evidence(self.entity.id, start, end, text[start:end])
                    supports.append(Support(part.fact.relation, self.mentions[part.fact.relation], evidence))
        return Article(self.entity.id, self.entity.title, text, tuple(supports))

    def _visible(self, sentence: Sentence, is_first: bool) -> str:
        """The text of the sentence with the one joined to it."""
        must_name = is_first or sentence.opens_paragraph or self.has_rival
        self.has_rival = False
        text = capitalise(self._fill(sentence, "full" if is_first else "name" if must_name else "free"))
        if sentence.tail:
            link = self.dice.pick((", and ", ", and ", "; "))
            text = text[:-1] + link + self._fill(sentence.tail, "pronoun")
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
            elif slot == "A":
                parts[at] = sentence.alias
            else:
                parts[at] = self._filling(slot, sentence.fact, used_numbers)
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
        if style == "noun":
            name = f"the {self.kind.noun}"
        else:
            name = self.entity.short if style == "name" else self.entity.name
        if not is_possessive:
            return name
        return f"{name}'s" if len(name.split()) < 4 and not name.endswith("s") else f"the {self.kind.noun}'s"

    def _draw_style(self, is_clear: bool) -> str:
        """A random form of the subject where any is possible; seldom the same twice in a row."""
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
            self.mentions[fact.relation] = text = self._object(fact)
            return text
        if slot == "noun":
            return self.kind.noun
        if slot == "later":
            return str(self.entity.year + self.dice.between(*self.kind.later))
        if slot == "times":
            number = self.dice.between(2, 9)
            return "twice" if number == 2 else f"{number_text(number)} times"
        if slot in ("small", "big"):
            low, high = (2, 12) if slot == "small" else (13, 480)
            return self._fresh(used_numbers, lambda: number_text(self.dice.between(low, high)))
        return self._fresh(self.used_words, lambda: self.dice.pick(self.graph.family.lexicon[slot]))

    def _fresh(self, used: set[str], draw: Callable[[], str]) -> str:
        """A word or number that was not used yet, if there is one."""
        text = draw()
        for _ in range(_FRESH_DRAWS):
            if text not in used:
                break
            text = draw()
        used.add(text)
        return text

    def _object(self, fact: Fact) -> str:
        if fact.object is None:
            return fact.value
        return self._call(self.graph.entities[fact.object], _OBJECT_ALIAS_PERCENT)

    def _other(self, group: str) -> str:
        """The name of an entity that is in no fact of this one; for people and their works, one of the same time."""
        kinds = self.graph.family.groups.get(group, (group,))
        years, candidates = self.graph.by_year(kinds)
        low, high = 0, len(candidates) - 1
        if not self.kind.timeless and not self.graph.kinds[kinds[0]].timeless:
            middle = min(high, bisect_left(years, self.entity.year))
            low, high = max(0, middle - _NEIGHBOURS), min(high, middle + _NEIGHBOURS)
        index = candidates[self.dice.between(low, high)]
        for _ in range(_FRESH_DRAWS):
            if index not in self.mentioned:
                break
            index = candidates[self.dice.between(low, high)]
        self.mentioned.add(index)
        return self._call(self.graph.entities[index], _OTHER_ALIAS_PERCENT)

    def _call(self, entity: Entity, alias_percent: int) -> str:
        """One of the entity's names; sets `has_rival` if a pronoun could refer to the entity."""
        same_pronoun = entity.pronoun == self.entity.pronoun and entity.pronoun != "it"
        self.has_rival = self.has_rival or same_pronoun or entity.kind == self.entity.kind
        if entity.aliases and self.dice.chance(alias_percent):
            return self.dice.pick(entity.aliases)
        return self.dice.pick((entity.name, *entity.also))
