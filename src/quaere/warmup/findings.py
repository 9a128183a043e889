"""Facts of a world that passages state, and the numbers under which the passages can be cited.

    found = find_facts(world, numbered_sources(turns))     # [Finding(fact=Fact(...), said="Ilse Varn", number=2), ...]

A fact counts only if the whole sentence that states it was shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from quaere.records import Passage, Source
from quaere.worlds import Fact, World


class Finding(Struct, frozen=True):
    """A fact that was shown: its object as the passage names it, and the passage's number.

    Finding(fact=Fact(12, "opera_composer", 40, "Ilse Varn"), said="Ilse Varn", number=2)
    """

    fact: Fact
    said: str
    number: int

    @property
    def key(self) -> tuple[int, str]:
        """The fact's identity: subject and relation."""
        return self.fact.subject, self.fact.relation


def find_facts(world: World, sources: Mapping[int, Source]) -> list[Finding]:
    """Every fact these passages state, in order of the passages, without duplicates."""
    found: dict[tuple[int, str], Finding] = {}
    for number, source in sorted(sources.items()):
        for fact, said in facts_in(world, source.passage):
            found.setdefault((fact.subject, fact.relation), Finding(fact, said, number))
    return list(found.values())


def facts_in(world: World, passage: Passage) -> Iterable[tuple[Fact, str]]:
    """The facts whose sentences lie within this passage, with their objects as the passage names them."""
    entity = world.entity(passage.doc_id)
    for support in world.article(entity).supports:
        if passage.start <= support.evidence.start and support.evidence.end <= passage.end:
            fact = world.graph.fact(entity.index, support.relation)
            assert fact is not None  # the article has just stated it
            yield fact, support.mention


def is_shown(world: World, passages: Iterable[Passage], key: tuple[int, str]) -> bool:
    """True if one of these passages states this fact."""
    return any((fact.subject, fact.relation) == key for passage in passages for fact, _ in facts_in(world, passage))
