"""The fact graph of a world: which entities there are, what they are called, and what is true of them.

Facts come before names, because a name may tell of a fact ("Halmgate-on-Oss"). Facts are held as one array of whole
numbers per relation, so that a hundred thousand entities take a few megabytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from msgspec import Struct

from quaere.worlds.dice import Dice
from quaere.worlds.names import NameMaker, capitalise, strip_article, with_gender
from quaere.worlds.schema import SAME, Family, Kind, Relation

NONE = -1
_NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
_NAMESAKE_PERCENT = 10
_ALIAS_PERCENT = 45
_SECOND_ALIAS_PERCENT = 20
_OBJECT_DRAWS = 6


class Entity(Struct, frozen=True):
    """Something an article is about. `name` is how a sentence calls it, `title` how its article is headed.

    Entity(index=12, id="e7-000012", kind="river", title="River Oss", name="the Oss", short="the Oss",
           aliases=("the Grey Water",), also=("the River Oss",), year=1204, pronoun="it")
    """

    index: int
    id: str
    kind: str
    title: str
    name: str
    short: str
    aliases: tuple[str, ...]
    also: tuple[str, ...]
    year: int
    pronoun: str

    @property
    def answers(self) -> tuple[str, ...]:
        """Every accepted way to name it, the title first."""
        return tuple(dict.fromkeys((self.title, strip_article(self.name), *map(strip_article, self.aliases))))


class Fact(Struct, frozen=True):
    """One thing that is true: the subject has this object, which is an entity or a literal.

    Fact(subject=12, relation="source", object=40, value="Korrin Vale")
    Fact(subject=12, relation="river_length", object=None, value="86")
    """

    subject: int
    relation: str
    object: int | None
    value: str


def number_text(number: int) -> str:
    """A number as prose writes it.

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
        self.relations_of: dict[str, tuple[Relation, ...]] = {
            kind: tuple(relation for relation in family.relations if kind in relation.subjects) for kind in self.kinds
        }
        self._kind_of = _spread_kinds(family, Dice(seed, family.name, "kinds"), num_entities)
        self.members: dict[str, list[int]] = {kind: [] for kind in self.kinds}
        for index, kind in enumerate(self._kind_of):
            self.members[kind].append(index)
        self._years = array("i", bytes(4 * num_entities))
        self._values = {name: array("i", [NONE]) * num_entities for name in self.relations}
        self._by_year: dict[tuple[str, ...], tuple[list[int], list[int]]] = {}
        self._draw_facts(Dice(seed, family.name, "facts"))
        self.entities = self._name_all(Dice(seed, family.name, "names"), seed)
        self._inverse: dict[str, dict[int, list[int]]] = {}

    # -------------------------------------------------------------------------------------------------- reading

    def kind(self, index: int) -> Kind:
        """What the entity is."""
        return self.kinds[self._kind_of[index]]

    def object_of(self, subject: int, relation: str) -> int | None:
        """The entity that the subject has by this relation, if any (never a literal)."""
        value = self._values[relation][subject]
        return None if value == NONE or self.relations[relation].is_literal else value

    def subjects_of(self, object_index: int, relation: str) -> list[int]:
        """Every entity that has this object by this relation, in order."""
        if relation not in self._inverse:
            subjects: dict[int, list[int]] = {}
            for subject, value in enumerate(self._values[relation]):
                if value != NONE:
                    subjects.setdefault(value, []).append(subject)
            self._inverse[relation] = subjects
        return self._inverse[relation].get(object_index, [])

    def fact(self, subject: int, relation: str) -> Fact | None:
        """What the subject has by this relation, if anything."""
        value = self._values[relation][subject]
        if value == NONE:
            return None
        if self.relations[relation].is_literal:
            return Fact(subject, relation, None, self._literal_text(self.relations[relation], value))
        return Fact(subject, relation, value, self.entities[value].title)

    def facts_of(self, subject: int) -> tuple[Fact, ...]:
        """Everything that is true of the subject, in the order of the family's table."""
        found = (self.fact(subject, relation.name) for relation in self.relations_of[self._kind_of[subject]])
        return tuple(fact for fact in found if fact is not None)

    def facts(self) -> Iterator[Fact]:
        """Every fact of the world, subject by subject."""
        for subject in range(len(self.entities)):
            yield from self.facts_of(subject)

    def literal_answers(self, fact: Fact) -> tuple[str, ...]:
        """Accepted ways to write a literal: "nine" and "9", "86" and "86 leagues"."""
        relation = self.relations[fact.relation]
        value = self._values[fact.relation][fact.subject]
        forms = [fact.value]
        if relation.number:
            forms.append(str(value))
            forms += [f"{form} {relation.unit}" for form in forms] if relation.unit else []
        return tuple(dict.fromkeys(forms))

    def _literal_text(self, relation: Relation, value: int) -> str:
        if relation.words:
            return self.family.lexicon[relation.words][value]
        return str(value) if relation.year else number_text(value)

    def by_year(self, kinds: tuple[str, ...]) -> tuple[list[int], list[int]]:
        """Years in rising order and the entities they belong to, for all entities of these kinds."""
        if kinds not in self._by_year:
            pairs = sorted((self._years[index], index) for kind in kinds for index in self.members[kind])
            self._by_year[kinds] = [year for year, _ in pairs], [index for _, index in pairs]
        return self._by_year[kinds]

    # ------------------------------------------------------------------------------------------------- building

    def _draw_facts(self, dice: Dice) -> None:
        dated_by = {kind: relation for relation in self.family.relations if relation.age for kind in relation.subjects}
        for kind in self.family.kinds:
            if kind.name not in dated_by:
                for index in self.members[kind.name]:
                    self._years[index] = dice.between(*kind.years)
        for kind in self.family.kinds:
            if relation := dated_by.get(kind.name):
                self._date(kind, relation, dice)
        for relation in self.family.relations:
            if not relation.age:
                for kind_name in relation.subjects:
                    for subject in self.members[kind_name]:
                        if dice.chance(relation.percent):
                            self._values[relation.name][subject] = self._draw_value(relation, subject, dice)
        for kind in self.family.kinds:
            self._fill_up(kind, dice)
            self._thin_out(kind, dice)

    def _date(self, kind: Kind, relation: Relation, dice: Dice) -> None:
        """Give every entity of the kind its maker, and a year within the maker's working life."""
        assert relation.age
        makers = self.by_year(relation.objects)[1]
        for subject in self.members[kind.name]:
            maker = dice.pick(makers)
            self._values[relation.name][subject] = maker
            self._years[subject] = self._years[maker] + dice.between(*relation.age)

    def _draw_value(self, relation: Relation, subject: int, dice: Dice) -> int:
        if relation.words:
            return dice.below(len(self.family.lexicon[relation.words]))
        if relation.number:
            return dice.between(*relation.number)
        if relation.year:
            return self._years[subject]
        kinds = (self._kind_of[subject],) if relation.objects == SAME else relation.objects
        years, candidates = self.by_year(kinds)
        low, high = 0, len(candidates)
        if relation.gap:
            low = bisect_left(years, self._years[subject] - relation.gap[1])
            high = bisect_right(years, self._years[subject] - relation.gap[0])
        for _ in range(_OBJECT_DRAWS if high > low else 0):
            found = candidates[dice.between(low, high - 1)]
            if self._is_fit(relation, subject, found):
                return found
        return NONE

    def _is_fit(self, relation: Relation, subject: int, found: int) -> bool:
        if found == subject or (relation.acyclic and found > subject):
            return False
        others = self.relations_of[self._kind_of[subject]]
        return all(self._values[other.name][subject] != found for other in others if not other.is_literal)

    def _fill_up(self, kind: Kind, dice: Dice) -> None:
        """Give those of whom too little is known the facts that chance has left out."""
        relations = self.relations_of[kind.name]
        for subject in self.members[kind.name]:
            missing = [relation for relation in relations if self._values[relation.name][subject] == NONE]
            num_held = len(relations) - len(missing)
            while missing and num_held < kind.min_facts:
                relation = missing.pop(dice.below(len(missing)))
                value = self._values[relation.name][subject] = self._draw_value(relation, subject, dice)
                num_held += value != NONE

    def _thin_out(self, kind: Kind, dice: Dice) -> None:
        """Drop facts beyond what one article can hold; the one that dates the entity stays."""
        relations = self.relations_of[kind.name]
        for subject in self.members[kind.name]:
            held = [relation for relation in relations if self._values[relation.name][subject] != NONE]
            spare = [relation for relation in held if not relation.age]
            for _ in range(len(held) - kind.max_facts):
                relation = spare.pop(dice.below(len(spare)))
                self._values[relation.name][subject] = NONE

    def _name_all(self, dice: Dice, seed: int) -> list[Entity]:
        people = sum(len(self.members[kind.name]) for kind in self.family.kinds if kind.pronoun == "person")
        maker = NameMaker(self.family, dice, people)
        names: list[str] = [""] * len(self._kind_of)
        pronouns: list[str] = [""] * len(self._kind_of)
        # Objects a name may tell of (rivers) are named first; the order is otherwise free.
        for kind in sorted(self.family.kinds, key=lambda kind: any("-on-" in form for form in kind.naming.namesakes)):
            self._name_kind(kind, maker, dice, names, pronouns)
        return [self._entity(index, seed, names, pronouns, maker, dice) for index in range(len(names))]

    def _name_kind(
        self, kind: Kind, maker: NameMaker, dice: Dice, names: list[str], pronouns: list[str]
    ) -> None:
        plain: list[int] = []  # entities a namesake can be made from
        for index in self.members[kind.name]:
            pronouns[index] = dice.pick(("she", "he")) if kind.pronoun == "person" else kind.pronoun
            if plain and dice.chance(_NAMESAKE_PERCENT):
                position = dice.below(len(plain))
                if self._name_after(kind, index, plain[position], maker, dice, names):
                    if kind.naming.both_renamed:
                        pronouns[index] = pronouns[plain[position]]
                    plain[position] = plain[-1]
                    plain.pop()
                    continue
            names[index] = maker.unique(with_gender(kind.naming, pronouns[index])[0])
            plain.append(index)

    def _name_after(
        self, kind: Kind, index: int, earlier: int, maker: NameMaker, dice: Dice, names: list[str]
    ) -> bool:
        """Make the entity a namesake of an earlier one; False when the name that came up cannot be had."""
        old = renamed = names[earlier]
        name = self._namesake(kind, index, old, maker, dice, names)
        if kind.naming.both_renamed:
            renamed = self._namesake(kind, earlier, old, maker, dice, names)
        if name is None or renamed is None:
            return False
        names[index], names[earlier] = name, renamed
        return True

    def _namesake(
        self, kind: Kind, index: int, old: str, maker: NameMaker, dice: Dice, names: list[str]
    ) -> str | None:
        core, has_article = strip_article(old), old.startswith("the ")
        pattern = dice.pick(kind.naming.namesakes).replace("{x}", core)
        if has_article and not pattern.startswith("the "):
            pattern = f"the {pattern}"
        for relation in self.relations_of[kind.name]:
            slot = "{" + relation.name + "}"
            if slot in pattern:
                told = self._values[relation.name][index]
                if told == NONE:
                    return None
                pattern = pattern.replace(slot, strip_article(names[told]))
        return maker.try_unique(pattern)

    def _entity(
        self, index: int, seed: int, names: list[str], pronouns: list[str], maker: NameMaker, dice: Dice
    ) -> Entity:
        kind, name = self.kind(index), names[index]
        core = strip_article(name)
        aliases = []
        if dice.chance(_ALIAS_PERCENT):
            patterns = with_gender(kind.naming, pronouns[index])[1]
            aliases = [maker.unique(patterns) for _ in range(2 if dice.chance(_SECOND_ALIAS_PERCENT) else 1)]
        is_person = kind.pronoun == "person"
        return Entity(
            index=index,
            id=f"{self.family.name[0]}{seed}-{index:06d}",
            kind=kind.name,
            title=capitalise(kind.naming.title.replace("{x}", core)),
            name=name,
            short=core.split(" ")[1] if is_person else name,
            aliases=tuple(aliases),
            also=tuple(form.replace("{x}", core) for form in kind.naming.also),
            year=self._years[index],
            pronoun=pronouns[index],
        )


def _spread_kinds(family: Family, dice: Dice, num_entities: int) -> list[str]:
    """A kind for every entity, in the family's proportions and in shuffled order."""
    total = sum(kind.share for kind in family.kinds)
    spread: list[str] = []
    passed = 0
    for kind in family.kinds:
        passed += kind.share
        spread += [kind.name] * (num_entities * passed // total - len(spread))
    dice.shuffle(spread)
    return spread
