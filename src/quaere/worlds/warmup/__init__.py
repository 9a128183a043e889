"""The warm-up family: an archipelago of islands, operas and comets. What is practised here is not asked elsewhere."""

from __future__ import annotations

from quaere.worlds.schema import Family
from quaere.worlds.warmup import people, places, things
from quaere.worlds.warmup.lexicon import LEXICON

WARMUP = Family(
    name="warmup",
    kinds=people.KINDS + places.KINDS + things.KINDS,
    relations=people.RELATIONS + places.RELATIONS + things.RELATIONS,
    groups={"people": people.PEOPLE},
    lexicon=LEXICON,
    invented=("island", "old_island", "saint", "surname", "given_she", "given_he"),
    pools={"surname": 3, "given_she": 6, "given_he": 6},
    also_called=(", alias {A},", " (or {A})", " (in some sources {A})"),
)
