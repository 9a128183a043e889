"""The warm-up family: an archipelago of islands, operas and comets. What is practised here is not asked elsewhere."""

from __future__ import annotations

from quaere.worlds.schema import Family
from quaere.worlds.warmup import gardens, islands, people, press, sky, stage
from quaere.worlds.warmup.lexicon import LEXICON

_TABLES = (people, islands, gardens, stage, press, sky)

WARMUP = Family(
    name="warmup",
    kinds=tuple(kind for table in _TABLES for kind in table.KINDS),
    relations=tuple(relation for table in _TABLES for relation in table.RELATIONS),
    groups={"people": people.PEOPLE},
    lexicon=LEXICON,
    invented=("island", "old_island", "saint", "surname", "given_she", "given_he"),
    pools={"surname": 3, "given_she": 6, "given_he": 6},
    also_called=(", alias {A},", " (or {A})", " (in some sources {A})"),
)
