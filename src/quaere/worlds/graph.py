"""The fact graph of a world: named entities, and facts between them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from quaere.worlds.entity_names import Called, name_entities
from quaere.worlds.facts import NONE, FactTable
from quaere.worlds.names import capitalise, strip_article
from quaere.worlds.schema import Family, Kind, Relation, words

_NUMBER_WORDS = words("zero one two three four five six seven eight nine ten eleven twelve")


class Entity(Struct, frozen=True):
    """The subject of an article. `name` is its name in a sentence, `title` the title of its article.

    Entity(index=12, id="e7-000012", kind="river", title="River Oss", name="the Oss", short="the Oss",
           aliases=("the Grey Water",), also=("the River Oss",), year=1204, pronoun="it")
    """

    index: int
    id: str
    kind: str
    title: str
    name: str
    short: str  # a person's surname; for others the name
    aliases: tuple[str, ...]
    also: tuple[str, ...]  # further forms of the name in running text
    year: int
    pronoun: str

    @property
    def names(self) -> tuple[str, ...]:
        """All names that text may use for the entity."""
        return (self.name, *self.also, *self.aliases)

    @property
    def answers(self) -> tuple[str, ...]:
        """All accepted names as an answer, the title first."""
        forms = (self.title, strip_article(self.name), *map(strip_article, self.aliases))
        return tuple({form.lower(): form for form in reversed(forms)}.values())[::-1]


class Fact(Struct, frozen=True):
    """A fact: the subject's object by a relation, which is an entity or a literal.

    Fact(subject=12, relation="source", object=40, value="Korrin Vale")
    Fact(subject=12, relation="river_length", object=None, value="86")
    """

    subject: int
    relation: str
    object: int | None
    value: str


def number_text(number: int) -> str:
    """A number as written in prose.

    number_text(9) == "nine"; number_text(86) == "86"; number_text(1240) == "1,240"
    """
    return _NUMBER_WORDS[number] if number < len(_NUMBER_WORDS) else f"{number:,}"


class Graph:
    """All entities and facts of a world.

    graph.entities[12].title == "River Oss"; graph.object_of(12, "source") == 40
    """

    def __init__(self, family: Family, seed: int, num_entities: int) -> None:
        self.family = family
        self.kinds = {kind.name: kind for kind in family.kinds}
        self.relations = {relation.name: relation for relation in family.relations}
        self._table = FactTable(family, seed, num_entities)
        self.relations_of = self._table.relations_of
        self.members = self._table.members
        self.by_year = self._table.by_year
        prefix = f"{family.name[0]}{seed}"
        called = name_entities(self._table, seed)
        self.entities = [self._entity(index, prefix, names) for index, names in enumerate(called)]
        self._subjects: dict[str, dict[int, list[int]]] = {}

    def _entity(self, index: int, prefix: str, called: Called) -> Entity:
        kind, core = self.kind(index), strip_article(called.name)
        return Entity(
            index=index,
            id=f"{prefix}-{index:06d}",
            kind=kind.name,
            title=capitalise(kind.naming.title.replace("{x}", core)),
            name=called.name,
            short=core.split()[1] if kind.pronoun == "person" else called.name,
            aliases=called.aliases,
            also=tuple(form.replace("{x}", core) for form in kind.naming.also),
            year=self._table.years[index],
            pronoun=called.pronoun,
        )

    def kind(self, index: int) -> Kind:
        """The kind of an entity."""
        return self.kinds[self._table.kind_of[index]]

    def object_of(self, subject: int, relation: str) -> int | None:
        """The entity that is the subject's object by this relation; None if there is none or it is a literal."""
        value = self._table.values[relation][subject]
        return None if value == NONE or self.relations[relation].is_literal else value

    def subjects_of(self, object_index: int, relation: str) -> list[int]:
        """All entities with this object by this relation, in order."""
        if relation not in self._subjects:
            subjects = self._subjects[relation] = {}
            for subject, value in enumerate(self._table.values[relation]):
                if value != NONE:
                    subjects.setdefault(value, []).append(subject)
        return self._subjects[relation].get(object_index, [])

    def fact(self, subject: int, relation: str) -> Fact | None:
        """The subject's fact with this relation, or None."""
        value = self._table.values[relation][subject]
        if value == NONE:
            return None
        if self.relations[relation].is_literal:
            return Fact(subject, relation, None, self._literal(self.relations[relation], value))
        return Fact(subject, relation, value, self.entities[value].title)

    def facts_of(self, subject: int) -> tuple[Fact, ...]:
        """All facts of the subject, in the order of the family's relations."""
        found = (self.fact(subject, relation.name) for relation in self.relations_of[self.kind(subject).name])
        return tuple(fact for fact in found if fact is not None)

    def facts(self) -> Iterator[Fact]:
        """All facts of the world, subject by subject."""
        for subject in range(len(self.entities)):
            yield from self.facts_of(subject)

    def answers(self, fact: Fact) -> tuple[str, ...]:
        """All accepted forms of the object: all names of an entity; "nine" and "9"; "86" and "86 leagues"."""
        if fact.object is not None:
            return self.entities[fact.object].answers
        relation = self.relations[fact.relation]
        forms = [fact.value]
        if relation.number:
            forms.append(str(self._table.values[fact.relation][fact.subject]))
            forms += [f"{form} {relation.unit}" for form in forms] if relation.unit else []
        return tuple(dict.fromkeys(forms))

    def _literal(self, relation: Relation, value: int) -> str:
        if relation.words:
            return self.family.lexicon[relation.words][value]
        return str(value) if relation.year else number_text(value)
