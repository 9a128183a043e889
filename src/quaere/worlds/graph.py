"""The fact graph of a world: kinds, years and relations of its entities, then their names, then facts between them.

Drawn facts are integers in arrays (the index of an object, an index in a word list, a count or a year), so a hundred
thousand entities take a few megabytes. Years keep the world consistent: a book is written in its author's working life,
and nobody attends a school that does not exist yet.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate, chain

from msgspec import Struct

from quaere.worlds.dice import Dice
from quaere.worlds.names import NameMaker, capitalise, strip_article
from quaere.worlds.schema import Family, Kind, Relation

NONE = -1
_OBJECT_DRAWS = 6
_NAMESAKE_PERCENT = 10
_ALIAS_PERCENT = 45
_SECOND_ALIAS_PERCENT = 20
_NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()


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
        """All names accepted as an answer, the title first."""
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
    """All entities and facts of a world, with lookup in both directions; `values` has the drawn facts by entity index.

    graph.entities[12].title == "River Oss"; graph.values["source"][12] == 40; graph.object_of(12, "source") == 40
    """

    def __init__(self, family: Family, seed: int, num_entities: int) -> None:
        self.family = family
        self.kinds = {kind.name: kind for kind in family.kinds}
        self.relations = {relation.name: relation for relation in family.relations}
        self.relations_of: dict[str, tuple[Relation, ...]] = {
            kind.name: tuple(relation for relation in family.relations if kind.name in relation.subjects)
            for kind in family.kinds
        }
        self.kind_of = _spread_kinds(family, Dice(seed, family.name, "kinds"), num_entities)
        self.members: dict[str, list[int]] = {kind.name: [] for kind in family.kinds}
        for index, kind in enumerate(self.kind_of):
            self.members[kind].append(index)
        self.years = array("i", [0]) * num_entities
        self.values = {relation.name: array("i", [NONE]) * num_entities for relation in family.relations}
        self._by_year: dict[tuple[str, ...], tuple[list[int], list[int]]] = {}
        self._subjects: dict[str, dict[int, list[int]]] = {}
        self._dice = Dice(seed, family.name, "facts")
        self._draw()
        called = _Christening(self, Dice(seed, family.name, "names")).called
        self.entities = [self._entity(index, seed, names) for index, names in enumerate(called)]

    def kind(self, index: int) -> Kind:
        """The kind (river, town, ...) of the entity with this index."""
        return self.kinds[self.kind_of[index]]

    def by_year(self, kinds: tuple[str, ...]) -> tuple[list[int], list[int]]:
        """The first years of all entities of these kinds, ascending, and in the same order the entities' indices."""
        if kinds not in self._by_year:
            pairs = sorted((self.years[index], index) for kind in kinds for index in self.members[kind])
            self._by_year[kinds] = [year for year, _ in pairs], [index for _, index in pairs]
        return self._by_year[kinds]

    def object_of(self, subject: int, relation: str) -> int | None:
        """The entity that is the subject's object by this relation; None if there is none or it is a literal."""
        value = self.values[relation][subject]
        return None if value == NONE or self.relations[relation].is_literal else value

    def subjects_of(self, object_index: int, relation: str) -> list[int]:
        """All entities with this object by this relation, in order."""
        if relation not in self._subjects:
            subjects = self._subjects[relation] = {}
            for subject, value in enumerate(self.values[relation]):
                if value != NONE:
                    subjects.setdefault(value, []).append(subject)
        return self._subjects[relation].get(object_index, [])

    def fact(self, subject: int, relation: str) -> Fact | None:
        """The subject's fact with this relation, or None."""
        value, known = self.values[relation][subject], self.relations[relation]
        if value == NONE:
            return None
        if not known.is_literal:
            return Fact(subject, relation, value, self.entities[value].title)
        number = str(value) if known.year else number_text(value)
        return Fact(subject, relation, None, self.family.lexicon[known.words][value] if known.words else number)

    def facts_of(self, subject: int) -> tuple[Fact, ...]:
        """All facts of the subject, in the order of the family's relations."""
        found = (self.fact(subject, relation.name) for relation in self.relations_of[self.kind_of[subject]])
        return tuple(fact for fact in found if fact is not None)

    def facts(self) -> Iterator[Fact]:
        """All facts of the world, subject by subject."""
        return chain.from_iterable(map(self.facts_of, range(len(self.entities))))

    def answers(self, fact: Fact) -> tuple[str, ...]:
        """All accepted forms of the object: all names of an entity; "nine" and "9"; "86" and "86 leagues"."""
        if fact.object is not None:
            return self.entities[fact.object].answers
        relation, forms = self.relations[fact.relation], [fact.value]
        if relation.number:
            forms.append(str(self.values[fact.relation][fact.subject]))
            forms += [f"{form} {relation.unit}" for form in forms] if relation.unit else []
        return tuple(dict.fromkeys(forms))

    # -------------------------------------------------------------------------------------------------- drawing

    def _draw(self) -> None:
        makers = {kind: relation for relation in self.family.relations if relation.age for kind in relation.subjects}
        # Makers are dated first, because the years of their works depend on them.
        for kind in self.family.kinds:
            for index in self.members[kind.name] if kind.name not in makers else ():
                self.years[index] = self._dice.between(*kind.years)
        for name in self.kinds:
            if name in makers:
                self._date(name, makers[name])
        for relation in self.family.relations:
            for kind_name in relation.subjects if not relation.age else ():
                for subject in self.members[kind_name]:
                    if self._dice.chance(relation.percent):
                        self.values[relation.name][subject] = self._draw_value(relation, subject)
        for kind in self.family.kinds:
            for subject in self.members[kind.name]:
                self._fill_up(kind, subject)
            for subject in self.members[kind.name]:
                self._thin_out(kind, subject)

    def _date(self, kind: str, relation: Relation) -> None:
        """Give every entity of the kind a maker, and a year in the maker's working life."""
        assert relation.age
        makers = self.by_year(relation.objects)[1]
        for subject in self.members[kind]:
            self.values[relation.name][subject] = maker = self._dice.pick(makers)
            self.years[subject] = self.years[maker] + self._dice.between(*relation.age)

    def _draw_value(self, relation: Relation, subject: int) -> int:
        if relation.words:
            return self._dice.below(len(self.family.lexicon[relation.words]))
        if relation.number:
            return self._dice.between(*relation.number)
        if relation.year:
            return self.years[subject]
        years, candidates = self.by_year(relation.object_kinds(self.kind_of[subject]))
        low, high = 0, len(candidates)
        if relation.gap:
            low = bisect_left(years, self.years[subject] - relation.gap[1])
            high = bisect_right(years, self.years[subject] - relation.gap[0])
        for _ in range(_OBJECT_DRAWS if high > low else 0):
            found = candidates[self._dice.between(low, high - 1)]
            if self._is_fit(relation, subject, found):
                return found
        return NONE

    def _is_fit(self, relation: Relation, subject: int, found: int) -> bool:
        """True if `found` can be the subject's object: another entity, not yet related to it, and closing no cycle."""
        if found == subject or (relation.acyclic and found > subject):
            return False
        others = self.relations_of[self.kind_of[subject]]
        return all(self.values[other.name][subject] != found for other in others if not other.is_literal)

    def _fill_up(self, kind: Kind, subject: int) -> None:
        """Add facts to an entity that has fewer than `min_facts`."""
        relations = self.relations_of[kind.name]
        missing = [relation for relation in relations if self.values[relation.name][subject] == NONE]
        num_held = len(relations) - len(missing)
        while missing and num_held < kind.min_facts:
            relation = missing.pop(self._dice.below(len(missing)))
            self.values[relation.name][subject] = value = self._draw_value(relation, subject)
            num_held += value != NONE

    def _thin_out(self, kind: Kind, subject: int) -> None:
        """Remove facts beyond `max_facts`, the most that an article holds; the fact that dates the entity is kept."""
        held = [one for one in self.relations_of[kind.name] if self.values[one.name][subject] != NONE]
        spare = [relation for relation in held if not relation.age]
        for _ in range(len(held) - kind.max_facts):
            self.values[spare.pop(self._dice.below(len(spare))).name][subject] = NONE

    def _entity(self, index: int, seed: int, called: _Called) -> Entity:
        kind, core = self.kind(index), strip_article(called.name)
        return Entity(
            index=index,
            id=f"{self.family.name[0]}{seed}-{index:06d}",
            kind=kind.name,
            title=capitalise(kind.naming.title.replace("{x}", core)),
            name=called.name,
            short=core.split()[1] if kind.pronoun == "person" else called.name,
            aliases=called.aliases,
            also=tuple(form.replace("{x}", core) for form in kind.naming.also),
            year=self.years[index],
            pronoun=called.pronoun,
        )


def _spread_kinds(family: Family, dice: Dice, num_entities: int) -> list[str]:
    """A kind for every entity, in the family's proportions and in shuffled order."""
    shares = list(accumulate(kind.share for kind in family.kinds))
    spread: list[str] = []
    for kind, share in zip(family.kinds, shares, strict=True):
        spread += [kind.name] * (num_entities * share // shares[-1] - len(spread))
    dice.shuffle(spread)
    return spread


# ------------------------------------------------------------------------------------------------------- naming


class _Called(Struct):
    """The names of one entity before it becomes an `Entity`."""

    name: str = ""
    pronoun: str = ""
    aliases: tuple[str, ...] = ()


class _Christening:
    """Names all entities of a graph; no two share a name or an alias.

    Facts are drawn before names, because a name may refer to a fact: Halmgate-on-Oss lies on the Oss.
    """

    def __init__(self, graph: Graph, dice: Dice) -> None:
        self.graph, self.dice = graph, dice
        people = (kind for kind in graph.family.kinds if kind.pronoun == "person")
        self.maker = NameMaker(graph.family, dice, sum(len(graph.members[kind.name]) for kind in people))
        self.called = [_Called() for _ in graph.kind_of]
        # Kinds whose names refer to other entities (a town to its river) come after those.
        for kind in sorted(graph.family.kinds, key=lambda kind: bool(self._told(kind))):
            self._name_kind(kind)
        for index, called in enumerate(self.called):
            aliases = graph.kind(index).naming.aliases
            if aliases and dice.chance(_ALIAS_PERCENT):
                num, patterns = 2 if dice.chance(_SECOND_ALIAS_PERCENT) else 1, _with_gender(aliases, called.pronoun)
                called.aliases = tuple(self.maker.unique(patterns) for _ in range(num))

    def _told(self, kind: Kind) -> list[str]:
        """The relations that the name patterns of this kind's namesakes refer to, as in "Halmgate-on-Oss"."""
        relations = self.graph.relations_of[kind.name]
        return [r.name for r in relations if any("{" + r.name + "}" in form for form in kind.naming.namesakes)]

    def _name_kind(self, kind: Kind) -> None:
        plain: list[int] = []  # entities that have no namesake yet
        for index in self.graph.members[kind.name]:
            called = self.called[index]
            called.pronoun = self.dice.pick(("she", "he")) if kind.pronoun == "person" else kind.pronoun
            if plain and kind.naming.namesakes and self.dice.chance(_NAMESAKE_PERCENT):
                position = self.dice.below(len(plain))
                if self._name_after(kind, index, plain[position]):
                    plain[position] = plain[-1]
                    plain.pop()
                    continue
            called.name = self.maker.unique(_with_gender(kind.naming.names, called.pronoun))
            plain.append(index)

    def _name_after(self, kind: Kind, index: int, earlier: int) -> bool:
        """Name entity `index` after the entity `earlier`; False if the drawn name is taken or cannot be formed."""
        older, newer = self.called[earlier], self.called[index]
        name = self._namesake(kind, index, older.name)
        if name and kind.naming.both_renamed:
            renamed = self._namesake(kind, earlier, older.name)
            if not renamed:
                return False
            older.name, newer.pronoun = renamed, older.pronoun
        newer.name = name
        return bool(name)

    def _namesake(self, kind: Kind, index: int, old: str) -> str:
        pattern = self.dice.pick(kind.naming.namesakes).replace("{x}", strip_article(old))
        if old.startswith("the ") and not pattern.startswith("the "):
            pattern = f"the {pattern}"
        for relation in self._told(kind):
            slot, told = "{" + relation + "}", self.graph.values[relation][index]
            if slot in pattern:
                if told == NONE:
                    return ""
                pattern = pattern.replace(slot, strip_article(self.called[told].name))
        name = self.maker.expand(pattern)
        return name if self.maker.claim(name) else ""


def _with_gender(patterns: tuple[str, ...], pronoun: str) -> tuple[str, ...]:
    """The patterns with `{given}` replaced by `{given_she}` or `{given_he}`, the slot for a woman's or a man's name."""
    return tuple(pattern.replace("{given}", "{given_" + pronoun + "}") for pattern in patterns)
