"""Outline of an article: its sentences and their order, before slots are filled."""

from __future__ import annotations

from msgspec import Struct

from quaere.worlds.dice import Dice
from quaere.worlds.graph import Fact, Graph
from quaere.worlds.schema import Kind, split_forms

_TARGET_WORDS = (80, 136)  # counted in templates, where a slot is one word: articles are somewhat longer
_JOINED_MAX_WORDS = 30
_JOIN_PERCENT = 45
_APPOSITION_PERCENT = 40
_ASIDE_PERCENT = 45
_PARAGRAPH_PERCENT = 60


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


def draw_outline(graph: Graph, index: int, dice: Dice) -> list[Sentence]:
    """The outline: an opening, then facts, aliases and embellishments in mixed order.

    [Sentence("{Name} is a slow river."), Sentence("{S} rises in {O}.", fact=Fact(...)), ...]
    """
    kind = graph.kind(index)
    aliases = list(graph.entities[index].aliases)
    opening, body = _draw_opening(kind, aliases, dice), _draw_facts(graph, index, dice)
    templates = list(kind.alias_sentences)
    dice.shuffle(templates)
    for alias, template in zip(aliases, templates, strict=False):
        _insert(body, Sentence(choose_form(template, dice), alias=alias), dice)
    _embellish(kind, [opening, *body], body, _object_groups(graph, index), dice)
    outline = [opening, *body]
    if len(outline) > 5 and dice.chance(_PARAGRAPH_PERCENT):
        outline[dice.between(3, len(outline) - 2)].opens_paragraph = True
    return outline


def _draw_opening(kind: Kind, aliases: list[str], dice: Dice) -> Sentence:
    """The first sentence; it may include the first alias."""
    if aliases and dice.chance(_APPOSITION_PERCENT):
        with_name = [opening for opening in kind.openings if "{Name}" in opening]
        return Sentence(choose_form(dice.pick(with_name), dice), alias=aliases.pop(0))
    return Sentence(choose_form(dice.pick(kind.openings), dice))


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


def _embellish(kind: Kind, written: list[Sentence], body: list[Sentence], groups: tuple[str, ...], dice: Dice) -> None:
    """Add sentences without question facts, at least two, until a drawn target length is reached.

    Asides that name an entity of the same kind as a fact's object come first, so that the kind alone does not give the
    answer away.
    """
    asides, colour = list(kind.asides), list(kind.colour)
    dice.shuffle(asides)
    dice.shuffle(colour)
    asides.sort(key=lambda aside: any(f"{{other:{group}}}" in aside for group in groups))
    target = dice.between(*_TARGET_WORDS)
    num_words, num_added = sum(map(_count_words, written)), 0
    while (num_words < target or num_added < 2) and (asides or colour):
        wants_aside = num_added == 0 or dice.chance(_ASIDE_PERCENT)
        source = asides if (wants_aside and asides) or not colour else colour
        sentence = Sentence(choose_form(source.pop(), dice))
        _insert(body, sentence, dice)
        num_words += _count_words(sentence)
        num_added += 1


def _count_words(sentence: Sentence) -> int:
    """Minimum number of words of the sentence."""
    return len(sentence.template.split()) + (_count_words(sentence.tail) if sentence.tail else 0)


def _insert(body: list[Sentence], sentence: Sentence, dice: Dice) -> None:
    body.insert(dice.below(len(body) + 1), sentence)


def choose_form(template: str, dice: Dice) -> str:
    """The template with one form chosen for each alternative.

    choose_form("{S} was [a|an only] child.", dice) == "{S} was an only child."
    """
    parts = split_forms(template)
    if len(parts) == 1:
        return template
    return "".join(part if at % 2 == 0 else dice.pick(part.split("|")) for at, part in enumerate(parts))
