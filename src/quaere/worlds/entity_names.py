"""Assigns names to entities: a name of its own or a namesake's, and aliases for some.

Facts are drawn before names, because a name may refer to a fact: Halmgate-on-Oss lies on the Oss.
"""

from __future__ import annotations

from msgspec import Struct

from quaere.worlds.dice import Dice
from quaere.worlds.facts import NONE, FactTable
from quaere.worlds.names import NameMaker, strip_article
from quaere.worlds.schema import Kind

_NAMESAKE_PERCENT = 10
_ALIAS_PERCENT = 45
_SECOND_ALIAS_PERCENT = 20


class Called(Struct):
    """The names of one entity.

    Called(name="the Oss", pronoun="it", aliases=("the Grey Water",))
    """

    name: str
    pronoun: str
    aliases: tuple[str, ...] = ()


def name_entities(table: FactTable, seed: int) -> list[Called]:
    """Names for all entities of the table; no two entities share a name or an alias."""
    return _Christening(table, Dice(seed, table.family.name, "names")).called


class _Christening:
    def __init__(self, table: FactTable, dice: Dice) -> None:
        self.table = table
        self.dice = dice
        people = (kind for kind in table.family.kinds if kind.pronoun == "person")
        self.maker = NameMaker(table.family, dice, sum(len(table.members[kind.name]) for kind in people))
        self.called = [Called("", "") for _ in table.kind_of]
        # Kinds whose names refer to other entities (a town to its river) come after those.
        for kind in sorted(table.family.kinds, key=lambda kind: bool(self._told(kind))):
            self._name_kind(kind)
        kinds = {kind.name: kind for kind in table.family.kinds}
        for kind_name, called in zip(table.kind_of, self.called, strict=True):
            if kinds[kind_name].naming.aliases and dice.chance(_ALIAS_PERCENT):
                num = 2 if dice.chance(_SECOND_ALIAS_PERCENT) else 1
                patterns = with_gender(kinds[kind_name].naming.aliases, called.pronoun)
                called.aliases = tuple(self.maker.unique(patterns) for _ in range(num))

    def _told(self, kind: Kind) -> list[str]:
        """The relations that a namesake's name may refer to."""
        relations = self.table.relations_of[kind.name]
        return [r.name for r in relations if any("{" + r.name + "}" in form for form in kind.naming.namesakes)]

    def _name_kind(self, kind: Kind) -> None:
        plain: list[int] = []  # entities that have no namesake yet
        for index in self.table.members[kind.name]:
            called = self.called[index]
            called.pronoun = self.dice.pick(("she", "he")) if kind.pronoun == "person" else kind.pronoun
            if plain and kind.naming.namesakes and self.dice.chance(_NAMESAKE_PERCENT):
                position = self.dice.below(len(plain))
                if self._name_after(kind, index, plain[position]):
                    plain[position] = plain[-1]
                    plain.pop()
                    continue
            called.name = self.maker.unique(with_gender(kind.naming.names, called.pronoun))
            plain.append(index)

    def _name_after(self, kind: Kind, index: int, earlier: int) -> bool:
        """Make the entity a namesake of an earlier one; False if the drawn name is taken or cannot be formed."""
        older, newer = self.called[earlier], self.called[index]
        name = self._namesake(kind, index, older.name)
        if name is None:
            return False
        if kind.naming.both_renamed:
            renamed = self._namesake(kind, earlier, older.name)
            if renamed is None:
                return False
            older.name, newer.pronoun = renamed, older.pronoun
        newer.name = name
        return True

    def _namesake(self, kind: Kind, index: int, old: str) -> str | None:
        pattern = self.dice.pick(kind.naming.namesakes).replace("{x}", strip_article(old))
        if old.startswith("the ") and not pattern.startswith("the "):
            pattern = f"the {pattern}"
        for relation in self._told(kind):
            slot = "{" + relation + "}"
            if slot in pattern:
                told = self.table.values[relation][index]
                if told == NONE:
                    return None
                pattern = pattern.replace(slot, strip_article(self.called[told].name))
        return self.maker.try_unique(pattern)


def with_gender(patterns: tuple[str, ...], pronoun: str) -> tuple[str, ...]:
    """The patterns with `{given}` replaced by the slot for a woman's or a man's name.

    with_gender(("{given} {surname}",), "she") == ("{given_she} {surname}",)
    """
    given = "{given_" + pronoun + "}"
    return tuple(pattern.replace("{given}", given) for pattern in patterns)
