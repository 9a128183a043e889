"""Families of worlds: kinds of entities, relations between them, and their sentence templates, read from TOML files.

    load_family("evaluation")   # a river country of towns, guilds and ships, for worlds with gold questions
    load_family("warmup")       # an island country, for the demonstrations of warm-up
    load_family("village")      # records of three words about houses, for models made from nothing
    load_family("hamlet")       # the same with one record for each house, for the demonstrations to these models

A family is pure data, one folder of `families/`. `family.toml` lists its tables in the order in which worlds are
generated: seeds depend on it. A table has `[[kinds]]` and `[[relations]]`, and `[shared]` with fields of all its
kinds. An entry "@name" is replaced by the entries of that list or group in `family.toml`. A family with a `base` has
the tables and words of that family, and its own `facts_per_article`. To add a relation, add it to a table:

    [[relations]]
    name = "spans"
    subjects = ["bridge"]
    objects = ["river"]
    percent = 90
    sentences = ["{S} carries the road over {O}."]
    phrases = ["the river crossed by {X}"]
    questions = ["Which river does {X} cross?", "Which river runs beneath {X}?"]

Slots of a sentence:

    {S} {S's}          the subject: its name, a pronoun or "the bridge", whichever fits the context
    {he} {him} {his}   the subject's pronoun
    {O} {a:O}          the object of the fact ("a:" puts the right "a" or "an" before it)
    {other:town}       another, irrelevant entity, so that sentences have several names
    {trade} {a:trade}  an entry of the family's lexicon
    {later}            a year after the subject's own; {small} a number in words, {times} how often; {big} in digits
    {noun} {a:noun}    what the subject is ("town")
    {Name}             openings only: the full name, possibly followed by ", also called A,"
    {A}                alias sentences only: the alias
    [too noisy|damp]   not a slot: one of these alternatives is chosen

Slots of phrases and questions: `{X}` is a name or another phrase. Templates that end in `{X}` can be nested deeply.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Any

from msgspec import Struct, convert, structs

SAME = ("same",)
"""Value of `Relation.objects`: the object is of the subject's own kind (a cook learns from a cook)."""

_FORMS = re.compile(r"\[([^\[\]]+)\]")
_SLOT = re.compile(r"\{([^{}]+)\}")


class Naming(Struct, frozen=True):
    """Name patterns of a kind; every `{slot}` is an entry of the lexicon.

    Naming(names=("the {river}",), title="River {x}", also=("the River {x}",), namesakes=("the Little {x}",))
    """

    names: tuple[str, ...]  # as written within a sentence: "the {river}", "{town}"
    aliases: tuple[str, ...]
    namesakes: tuple[str, ...]  # built from the name {x} (without "the") of an earlier entity of the kind
    both_renamed: bool = False  # the earlier entity becomes a namesake too: "Venn the Tall" and "Venn the Quiet"
    title: str = "{x}"
    also: tuple[str, ...] = ()  # further forms in running text, not aliases: "the River {x}"


class Kind(Struct, frozen=True):
    """A kind of entity. `years` is the range of its entities' first year, unless a relation with an `age` sets it.

    Kind("town", "town", share=10, years=(700, 1050), timeless=True, ...)
    """

    name: str
    noun: str
    share: int  # share of the articles, relative to the other kinds
    naming: Naming
    openings: tuple[str, ...]
    colour: tuple[str, ...]  # sentences without question facts and without names
    asides: tuple[str, ...]  # sentences without question facts that name other entities
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
    age: tuple[int, int] | None = None  # sets the subject's year: this many years after the object's
    gap: tuple[int, int] | None = None  # range of years that the subject's year must be after the object's
    acyclic: bool = False  # has no cycles (a river flows into a river)
    sentences: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()  # descriptions of the object by its subject {X}; none for words and numbers
    questions: tuple[str, ...] = ()
    inverse_questions: tuple[str, ...] = ()  # questions for the subject, given the object {X}

    @property
    def is_literal(self) -> bool:
        """True if the object is a word, number or year rather than an entity."""
        return not self.objects

    def object_kinds(self, subject_kind: str) -> tuple[str, ...]:
        """The kinds that the object of a subject of this kind may have."""
        return (subject_kind,) if self.objects == SAME else self.objects


class Family(Struct, frozen=True):
    """A family of worlds: kinds, relations, word lists and names.

    Family("evaluation", kinds=(...), relations=(...), groups={"people": ("writer", ...)}, lexicon={...}, ...)
    """

    name: str
    kinds: tuple[Kind, ...]
    relations: tuple[Relation, ...]
    groups: dict[str, tuple[str, ...]]  # names for several kinds at once, for {other:people}
    lexicon: dict[str, tuple[str, ...]]  # entries may contain slots of the lexicon; "^" makes a capital
    invented: tuple[str, ...]  # lexicon entries that must never yield a common English word
    pools: dict[str, int]  # entries whose values are shared: the number of people per different value
    also_called: tuple[str, ...]  # ", also called {A},"
    max_facts: int = 4  # the most facts that a question can combine
    max_articles: int = 100_000  # limited by the number of names


# ----------------------------------------------------------------------------------------------------- loading


@cache
def load_family(name: str) -> Family:
    """The family with this name, read from its folder at the first call."""
    about = _read(name, "family")
    if "base" in about:
        base, num = load_family(about["base"]), about["facts_per_article"]
        kinds = tuple(structs.replace(kind, min_facts=num, max_facts=num) for kind in base.kinds)
        return structs.replace(base, name=name, kinds=kinds)
    lists = about.pop("lists") | about["groups"]
    tables = [_expand(_read(name, table), lists) for table in about.pop("tables")]
    about["kinds"] = [_inherit(table.get("shared", {}), kind) for table in tables for kind in table["kinds"]]
    about["relations"] = [relation for table in tables for relation in table["relations"]]
    about["lexicon"] = _read(name, "lexicon")
    return convert(about, Family)


def _read(family: str, table: str) -> dict[str, Any]:
    return tomllib.loads((files("quaere.worlds") / "families" / family / f"{table}.toml").read_text(encoding="utf-8"))


def _expand(value: Any, lists: Mapping[str, Sequence[str]]) -> Any:
    """The value with every "@name" in a list replaced by the entries of `lists[name]`, at any depth."""
    if isinstance(value, dict):
        return {key: _expand(item, lists) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    entries = (lists[item[1:]] if str(item).startswith("@") else [_expand(item, lists)] for item in value)
    return list(chain.from_iterable(entries))


def _inherit(shared: Mapping[str, Any], kind: Mapping[str, Any]) -> dict[str, Any]:
    """The kind with the shared fields of its table; its own sentences come after the shared ones."""
    lists = {key: value for key, value in kind.items() if isinstance(value, list) and value}
    texts = {key: value for key, value in lists.items() if isinstance(value[0], str)}
    return {**shared, **kind, **{key: [*shared.get(key, []), *value] for key, value in texts.items()}}


# --------------------------------------------------------------------------------------------------- templates


@cache
def split_forms(template: str) -> tuple[str, ...]:
    """The template split into fixed text (even positions) and alternatives (odd positions).

    split_forms("{S} was [a|an only] child.") == ("{S} was ", "a|an only", " child.")
    """
    return tuple(_FORMS.split(template))


@cache
def split_slots(template: str) -> tuple[str, ...]:
    """The template split into literal text (even positions) and slots (odd positions).

    split_slots("{S} spans {O}.") == ("", "S", " spans ", "O", ".")
    """
    return tuple(_SLOT.split(template))


def ends_in_slot(template: str) -> bool:
    """True if {X} comes last in the template, so that it can be nested deeply.

    ends_in_slot("the author of {X}"), not ends_in_slot("the town where {X} was born")
    """
    return template.rstrip("?").endswith("{X}")
