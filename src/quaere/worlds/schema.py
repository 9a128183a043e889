"""The words in which a family of worlds is described: kinds of entity, relations between them, and how both are told.

A family is pure data (`families/`). To add a relation, add it to a table there:

    [[relations]]
    name = "spans"
    subjects = ["bridge"]
    objects = ["river"]
    percent = 90
    sentences = ["{S} carries the road over {O}."]
    phrases = ["the river crossed by {X}"]
    questions = ["Which river does {X} cross?", "Which river runs beneath {X}?"]

Slots of a sentence:

    {S} {S's}          the subject: its name, a pronoun or "the bridge", whichever reads well at that point
    {he} {him} {his}   the subject's pronoun
    {O} {a:O}          the object of the fact ("a:" puts the right "a" or "an" before it)
    {other:town}       another entity, of no importance: it makes the sentence carry several names
    {trade} {a:trade}  an entry of the family's lexicon
    {later}            a year after the subject's own; {small} a number in words, {times} how often; {big} in digits
    {noun} {a:noun}    what the subject is ("town")
    {Name}             openings only: the full name, possibly followed by ", also called A,"
    {A}                alias sentences only: the alias
    [too noisy|damp]   not a slot: one of these

Slots of phrases and questions: `{X}` is a name or another phrase. Those that end in `{X}` can be nested deeply.
"""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct

SAME = ("same",)
"""As `Relation.objects`: the object is of the subject's own kind (a cook learns from a cook)."""

_FORMS = re.compile(r"\[([^\[\]]+)\]")
_SLOT = re.compile(r"\{([^{}]+)\}")


class Naming(Struct, frozen=True):
    """How the entities of a kind are called; every `{slot}` is an entry of the lexicon.

    Naming(names=("the {river}",), title="River {x}", also=("the River {x}",), namesakes=("the Little {x}",))
    """

    names: tuple[str, ...]  # as written within a sentence: "the {river}", "{town}"
    aliases: tuple[str, ...]
    namesakes: tuple[str, ...]  # made from the name {x} of an earlier entity of the kind (without its "the")
    both_renamed: bool = False  # the earlier entity becomes a namesake too: "Venn the Tall" and "Venn the Quiet"
    title: str = "{x}"
    also: tuple[str, ...] = ()  # further forms in running text, not aliases: "the River {x}"


class Kind(Struct, frozen=True):
    """A kind of entity. `years` is when such entities begin, unless a relation with an `age` settles it.

    Kind("town", "town", share=10, years=(700, 1050), timeless=True, ...)
    """

    name: str
    noun: str
    share: int  # of the articles, relative to the other kinds
    naming: Naming
    openings: tuple[str, ...]
    colour: tuple[str, ...]  # sentences that carry no question facts and name nobody
    asides: tuple[str, ...]  # the same, but naming other entities
    alias_sentences: tuple[str, ...]
    years: tuple[int, int] = (0, 0)
    later: tuple[int, int] = (3, 80)
    timeless: bool = False  # so old that anything may refer to it
    pronoun: str = "it"  # "person": she or he
    min_facts: int = 3
    max_facts: int = 6


class Relation(Struct, frozen=True):
    """A functional relation: a subject has at most one object, which is an entity, a word, a number or a year.

    Relation("arches", ("bridge",), number=(3, 12), sentences=(...), questions=("How many arches has {X}?",))
    """

    name: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...] = ()  # kinds of the object, or
    words: str = ""  # an entry of the lexicon it is drawn from, or
    number: tuple[int, int] | None = None  # the range it is drawn from, or
    year: bool = False  # the subject's own year
    unit: str = ""  # of the number: "leagues"
    percent: int = 75  # of the subjects that have it
    age: tuple[int, int] | None = None  # settles the subject's year: so many years after the object's
    gap: tuple[int, int] | None = None  # allowed only when the subject's year is so many years after the object's
    acyclic: bool = False  # following it never leads back (a river flows into a river)
    sentences: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()  # the object, described by the subject {X}; none for words and numbers
    questions: tuple[str, ...] = ()
    inverse_questions: tuple[str, ...] = ()  # the subject, asked for by the object {X}

    @property
    def is_literal(self) -> bool:
        """Is the object a word, number or year rather than an entity?"""
        return not self.objects

    def object_kinds(self, subject_kind: str) -> tuple[str, ...]:
        """The kinds that the object of such a subject may be of."""
        return (subject_kind,) if self.objects == SAME else self.objects


class Family(Struct, frozen=True):
    """Everything that makes one family of worlds.

    Family("evaluation", kinds=(...), relations=(...), groups={"people": ("writer", ...)}, lexicon={...}, ...)
    """

    name: str
    kinds: tuple[Kind, ...]
    relations: tuple[Relation, ...]
    groups: dict[str, tuple[str, ...]]  # names for several kinds at once, for {other:people}
    lexicon: dict[str, tuple[str, ...]]  # entries may contain slots of the lexicon; "^" makes a capital
    invented: tuple[str, ...]  # lexicon entries that must never yield a common English word
    pools: dict[str, int]  # entries shared by several entities: one different value for every so many people
    also_called: tuple[str, ...]  # ", also called {A},"


@cache
def split_forms(template: str) -> tuple[str, ...]:
    """Fixed text at even positions, alternatives at odd ones.

    split_forms("{S} was [a|an only] child.") == ("{S} was ", "a|an only", " child.")
    """
    return tuple(_FORMS.split(template))


@cache
def split_slots(template: str) -> tuple[str, ...]:
    """Literal text at even positions, slots at odd ones.

    split_slots("{S} spans {O}.") == ("", "S", " spans ", "O", ".")
    """
    return tuple(_SLOT.split(template))


def words(text: str) -> tuple[str, ...]:
    """The entries of a list written as one line.

    words("spring summer") == ("spring", "summer")
    """
    return tuple(text.split())


def ends_in_slot(template: str) -> bool:
    """Can this phrase or question be nested deeply, because {X} comes last?

    ends_in_slot("the author of {X}"), not ends_in_slot("the town where {X} was born")
    """
    return template.rstrip("?").endswith("{X}")
