"""The facts of a world before anything has a name: kinds, years, and the object of every relation.

Every value is an integer in an array (the index of an object, an index in a word list, a count or a year), so a hundred
thousand entities take a few megabytes. Years keep the world consistent: a book is written in its author's working life,
and nobody attends a school that does not exist yet.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from quaere.worlds.dice import Dice
from quaere.worlds.schema import Family, Kind, Relation

NONE = -1
_OBJECT_DRAWS = 6


class FactTable:
    """Kinds, years and relation values of all entities, by index.

    table.kind_of[12] == "river"; table.values["source"][12] == 40
    """

    def __init__(self, family: Family, seed: int, num_entities: int) -> None:
        self.family = family
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
        self._dice = Dice(seed, family.name, "facts")
        self._draw()

    def by_year(self, kinds: tuple[str, ...]) -> tuple[list[int], list[int]]:
        """Years in ascending order and their entities, for all entities of these kinds."""
        if kinds not in self._by_year:
            pairs = sorted((self.years[index], index) for kind in kinds for index in self.members[kind])
            self._by_year[kinds] = [year for year, _ in pairs], [index for _, index in pairs]
        return self._by_year[kinds]

    # -------------------------------------------------------------------------------------------------- drawing

    def _draw(self) -> None:
        makers = {kind: relation for relation in self.family.relations if relation.age for kind in relation.subjects}
        for kind in self.family.kinds:  # makers are dated first, because the years of their works depend on them
            if kind.name not in makers:
                for index in self.members[kind.name]:
                    self.years[index] = self._dice.between(*kind.years)
        for kind in self.family.kinds:
            if kind.name in makers:
                self._date(kind, makers[kind.name])
        for relation in self.family.relations:
            for kind_name in relation.subjects if not relation.age else ():
                for subject in self.members[kind_name]:
                    if self._dice.chance(relation.percent):
                        self.values[relation.name][subject] = self._draw_value(relation, subject)
        for kind in self.family.kinds:
            self._fill_up(kind)
            self._thin_out(kind)

    def _date(self, kind: Kind, relation: Relation) -> None:
        """Give every entity of the kind a maker, and a year in the maker's working life."""
        assert relation.age
        makers = self.by_year(relation.objects)[1]
        for subject in self.members[kind.name]:
            maker = self._dice.pick(makers)
            self.values[relation.name][subject] = maker
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
        """True if `found` is not the subject, not related to it yet, and closes no cycle of an acyclic relation."""
        if found == subject or (relation.acyclic and found > subject):
            return False
        others = self.relations_of[self.kind_of[subject]]
        return all(self.values[other.name][subject] != found for other in others if not other.is_literal)

    def _fill_up(self, kind: Kind) -> None:
        """Add facts to entities that have fewer than `min_facts`."""
        relations = self.relations_of[kind.name]
        for subject in self.members[kind.name]:
            missing = [relation for relation in relations if self.values[relation.name][subject] == NONE]
            num_held = len(relations) - len(missing)
            while missing and num_held < kind.min_facts:
                relation = missing.pop(self._dice.below(len(missing)))
                self.values[relation.name][subject] = value = self._draw_value(relation, subject)
                num_held += value != NONE

    def _thin_out(self, kind: Kind) -> None:
        """Remove facts beyond `max_facts`, the most that an article holds; the fact that dates the entity is kept."""
        relations = self.relations_of[kind.name]
        for subject in self.members[kind.name]:
            held = [relation for relation in relations if self.values[relation.name][subject] != NONE]
            spare = [relation for relation in held if not relation.age]
            for _ in range(len(held) - kind.max_facts):
                relation = spare.pop(self._dice.below(len(spare)))
                self.values[relation.name][subject] = NONE


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
