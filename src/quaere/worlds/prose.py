"""Articles: the facts of an entity told in 80 to 200 words, with the span of every fact.

An article is a function of the world's seed and the entity alone, so it can be written at any time, in any order, and
need not be kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from msgspec import Struct

from quaere.records import Evidence
from quaere.worlds.dice import Dice
from quaere.worlds.graph import Entity, Fact, Graph, number_text
from quaere.worlds.names import capitalise
from quaere.worlds.schema import Kind, split_forms, split_slots

MIN_WORDS = 80
MAX_WORDS = 200

_TARGET_WORDS = (88, 165)
_JOINED_MAX_WORDS = 30
_NEIGHBOURS = 12
_PRONOUNS = {
    "it": {"he": "it", "him": "it", "his": "its", "himself": "itself"},
    "she": {"he": "she", "him": "her", "his": "her", "himself": "herself"},
    "he": {"he": "he", "him": "him", "his": "his", "himself": "himself"},
}


class Support(Struct, frozen=True):
    """Where an article states a fact, and how it names the object there.

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
        """Where the fact of this relation is stated."""
        return next(support for support in self.supports if support.relation == relation)


class _Sentence(Struct):
    """A sentence to be written: its template, and the fact it states, if any."""

    template: str
    fact: Fact | None = None
    alias: str = ""
    is_spare: bool = False  # carries no fact and no alias, so it may be dropped
    opens_paragraph: bool = False
    joins_previous: bool = False


def write_article(graph: Graph, seed: int, index: int) -> Article:
    """The article about one entity.

    write_article(graph, 7, 12).title == "River Oss"
    """
    plan = _plan(graph, index, Dice(seed, graph.family.name, "plan", index))
    while True:
        article = _Writer(graph, seed, index).write(plan)
        num_words = len(article.text.split())
        spares = [position for position, sentence in enumerate(plan) if sentence.is_spare]
        if num_words <= MAX_WORDS or not spares:
            return article
        del plan[spares[-1]]  # too long: do without the last embellishment


def _plan(graph: Graph, index: int, dice: Dice) -> list[_Sentence]:
    """Choose the sentences and their order: an opening, then facts, aliases and embellishments mixed."""
    kind, entity = graph.kind(index), graph.entities[index]
    aliases = list(entity.aliases)
    appositive = aliases.pop(0) if aliases and dice.chance(40) else ""
    openings = [opening for opening in kind.openings if "{Name}" in opening] if appositive else kind.openings
    opening = _Sentence(choose_form(dice.pick(openings), dice), alias=appositive)
    body = [
        _Sentence(choose_form(dice.pick(graph.relations[fact.relation].sentences), dice), fact)
        for fact in graph.facts_of(index)
    ]
    dice.shuffle(body)
    for sentence, before in zip(body[1:], body, strict=False):
        fits = len((before.template + " " + sentence.template).split()) <= _JOINED_MAX_WORDS
        same_topic = _is_about_subject(before.template) and _is_about_subject(sentence.template)
        if fits and same_topic and ";" not in before.template and not before.joins_previous and dice.chance(45):
            sentence.joins_previous = True
    alias_templates = list(kind.alias_sentences)
    dice.shuffle(alias_templates)
    for alias, template in zip(aliases, alias_templates, strict=False):
        _insert(body, _Sentence(choose_form(template, dice), alias=alias), dice)
    _embellish(kind, opening, body, dice)
    plan = [opening, *body]
    if len(plan) > 5 and dice.chance(60):
        breaks = [at for at in range(3, len(plan) - 1) if not plan[at].joins_previous]
        if breaks:
            plan[dice.pick(breaks)].opens_paragraph = True
    return plan


def _embellish(kind: Kind, opening: _Sentence, body: list[_Sentence], dice: Dice) -> None:
    """Add sentences that carry no question facts until the article has the length that came up."""
    asides, colour = list(kind.asides), list(kind.colour)
    dice.shuffle(asides)
    dice.shuffle(colour)
    target = dice.between(*_TARGET_WORDS)
    num_words = sum(_estimate(sentence.template) for sentence in (opening, *body))
    num_added = 0
    while num_words < target or num_added < 2:
        source = asides if asides and (num_added == 0 or dice.chance(45)) else colour
        if not source:
            break
        template = choose_form(source.pop(), dice)
        _insert(body, _Sentence(template, is_spare=True), dice)
        num_words += _estimate(template)
        num_added += 1


def choose_form(template: str, dice: Dice) -> str:
    """Settle every alternative of a template.

    choose_form("{S} was [a|an only] child.", dice) == "{S} was an only child."
    """
    parts = split_forms(template)
    if len(parts) == 1:
        return template
    return "".join(part if at % 2 == 0 else dice.pick(part.split("|")) for at, part in enumerate(parts))


def _is_about_subject(template: str) -> bool:
    """Does the sentence begin with its subject, so that "it" in the next one is understood?"""
    return template.startswith(("{S}", "{S's}", "{Name}"))


def _estimate(template: str) -> int:
    """Roughly how many words the sentence will have; a name has about one more than its slot."""
    return len(template.split()) + template.count("{other") + template.count("{O")


def _insert(body: list[_Sentence], sentence: _Sentence, dice: Dice) -> None:
    """Put the sentence anywhere, except between two that will be joined."""
    places = [at for at in range(len(body) + 1) if at == len(body) or not body[at].joins_previous]
    body.insert(dice.pick(places), sentence)


def with_article(text: str) -> str:
    """The text after the right indefinite article.

    with_article("old donkey") == "an old donkey"; with_article("one-eyed dog") == "a one-eyed dog"
    """
    sounds_open = text[0].lower() in "aeiou" and not text.lower().startswith(("one", "uni", "use", "eu"))
    return ("an " if sounds_open else "a ") + text


class _Writer:
    """Turns a plan into text, keeping track of who was mentioned last."""

    def __init__(self, graph: Graph, seed: int, index: int) -> None:
        self.graph = graph
        self.entity = graph.entities[index]
        self.kind = graph.kind(index)
        self.dice = Dice(seed, graph.family.name, "article", index)
        facts = graph.facts_of(index)
        self.used = {index, *(fact.object for fact in facts if fact.object is not None)}
        self.taken_words = {fact.value for fact in facts if fact.object is None}
        self.rivals_before = False  # did the sentence before mention somebody a pronoun could be taken for?
        self.rivals_now = False
        self.called = "name"  # how the subject was last called: "name", "noun", or "" for a pronoun
        self.topic_kept = False  # did the sentence before begin with the subject?
        self.mention = ""

    def write(self, plan: list[_Sentence]) -> Article:
        pieces: list[str] = []
        spans: list[tuple[int, int]] = []
        mentions: list[str] = []
        length = 0
        for position, sentence in enumerate(plan):
            self.rivals_before, self.rivals_now = self.rivals_now, False
            text = self._sentence(sentence, is_first=position == 0)
            self.topic_kept = _is_about_subject(sentence.template)
            mentions.append(self.mention)
            if sentence.joins_previous:
                link = self.dice.pick((", and ", "; ", ", and "))
                pieces[-1] = pieces[-1][:-1] + link + text
                length += len(link) + len(text) - 1
                spans[-1] = (spans[-1][0], length)
            else:
                gap = "" if position == 0 else "\n\n" if sentence.opens_paragraph else " "
                pieces.append(gap + text)
                length += len(gap) + len(text)
                spans.append((length - len(text), length))
            if sentence.joins_previous:
                spans.append(spans[-1])
        whole = "".join(pieces)
        return Article(self.entity.id, self.entity.title, whole, self._supports(plan, whole, spans, mentions))

    def _supports(
        self, plan: list[_Sentence], whole: str, spans: list[tuple[int, int]], mentions: list[str]
    ) -> tuple[Support, ...]:
        supports = []
        for position, sentence in enumerate(plan):
            if sentence.fact is None:
                continue
            # A sentence that the next one joined has grown; all of it is the evidence.
            joined = position + 1 < len(plan) and plan[position + 1].joins_previous
            start, end = spans[position + 1] if joined else spans[position]
            evidence = Evidence(self.entity.id, start, end, whole[start:end])
            supports.append(Support(sentence.fact.relation, mentions[position], evidence))
        return tuple(supports)

    # ------------------------------------------------------------------------------------------------ sentences

    def _sentence(self, sentence: _Sentence, is_first: bool) -> str:
        parts = list(split_slots(sentence.template))
        must_name = is_first or sentence.opens_paragraph or self.rivals_before
        referred = False
        words: set[str] = set(self.taken_words)
        for at in range(1, len(parts), 2):
            slot = parts[at]
            if slot in ("S", "S's", "Name") or slot in _PRONOUNS["it"]:
                style = "pronoun" if referred or sentence.joins_previous else "name" if must_name else "free"
                parts[at] = self._subject(slot, style, is_first)
                if slot == "Name" and sentence.alias:
                    parts[at] += self.dice.pick(self.graph.family.also_called).replace("{A}", sentence.alias)
                referred = True
            elif slot == "A":
                parts[at] = sentence.alias
            else:
                parts[at] = self._filling(slot, sentence.fact, words)
        text = "".join(parts)
        return text if sentence.joins_previous else capitalise(text)

    def _subject(self, slot: str, style: str, is_first: bool) -> str:
        entity, is_person = self.entity, self.kind.pronoun == "person"
        forms = _PRONOUNS[entity.pronoun]
        if slot in forms:  # a pronoun, unless the reader could take it for somebody else
            if style != "name" or not is_person:
                return forms[slot]
            return entity.short + ("'s" if slot == "his" else "")
        if style == "pronoun":
            return forms["his" if slot == "S's" else "he"]
        name = entity.short if is_person and not is_first else entity.name
        if style == "free":
            understood = is_person or self.topic_kept or slot == "S's"
            if understood and self.dice.chance(55 if self.called else 85):
                self.called = ""
                return forms["his" if slot == "S's" else "he"]
            by_noun = self.called != "noun" and self.dice.chance(50)
            self.called = "noun" if by_noun else "name"
            name = f"the {self.kind.noun}" if by_noun else name
        if slot != "S's":
            return name
        return f"{name}'s" if len(name.split()) < 4 and not name.endswith("s") else f"the {self.kind.noun}'s"

    def _filling(self, slot: str, fact: Fact | None, words: set[str]) -> str:
        """What a slot other than the subject becomes."""
        if slot.startswith("other:"):
            return self._other(slot[6:])
        wants_article = slot.startswith("a:")
        slot = slot.removeprefix("a:")
        if slot in ("O", "O's"):
            assert fact is not None
            text = self.mention = self._object(fact)
            text += "'s" if slot == "O's" else ""
        elif slot == "noun":
            text = self.kind.noun
        elif slot == "later":
            text = str(self.entity.year + self.dice.between(*self.kind.later))
        elif slot == "small":
            text = self._fresh(words, lambda: number_text(self.dice.between(2, 12)))
        elif slot == "times":
            text = self._fresh(words, lambda: number_text(self.dice.between(2, 9)))
            text = "twice" if text == "two" else f"{text} times"
        elif slot == "big":
            text = self._fresh(words, lambda: number_text(self.dice.between(13, 480)))
        else:
            text = self._fresh(words, lambda: self.dice.pick(self.graph.family.lexicon[slot]))
        if wants_article:
            return with_article(text)
        return text

    def _fresh(self, words: set[str], draw: Callable[[], str]) -> str:
        """A word that neither a fact of the article nor this sentence uses already."""
        for _ in range(12):
            text = draw()
            if text not in words:
                break
        words.add(text)
        return text

    def _object(self, fact: Fact) -> str:
        if fact.object is None:
            return fact.value
        return self._call(self.graph.entities[fact.object], alias_percent=60)

    def _other(self, group: str) -> str:
        """Another entity, not one the facts are about; among people and their works, somebody of the time."""
        kinds = self.graph.family.groups.get(group, (group,))
        years, candidates = self.graph.by_year(kinds)
        low, high = 0, len(candidates) - 1
        if not self.kind.timeless and not self.graph.kinds[kinds[0]].timeless:
            middle = bisect_left(years, self.entity.year)
            low, high = max(0, min(middle, high) - _NEIGHBOURS), min(high, middle + _NEIGHBOURS)
        for _ in range(12):
            index = candidates[self.dice.between(low, high)]
            if index not in self.used:
                break
        self.used.add(index)
        return self._call(self.graph.entities[index], alias_percent=25)

    def _call(self, entity: Entity, alias_percent: int) -> str:
        """One of the entity's names."""
        if entity.kind == self.entity.kind or (entity.pronoun == self.entity.pronoun and entity.pronoun != "it"):
            self.rivals_now = True
        if entity.aliases and self.dice.chance(alias_percent):
            return self.dice.pick(entity.aliases)
        return self.dice.pick((entity.name, *entity.also))
