"""The evaluation family: a river country of towns, guilds and ships. Gold questions are asked of these worlds."""

from __future__ import annotations

from quaere.worlds.evaluation import arts, buildings, country, feasts, people, towns, trades
from quaere.worlds.evaluation.lexicon import LEXICON
from quaere.worlds.schema import Family

_TABLES = (people, towns, country, buildings, trades, arts, feasts)

EVALUATION = Family(
    name="evaluation",
    kinds=tuple(kind for table in _TABLES for kind in table.KINDS),
    relations=tuple(relation for table in _TABLES for relation in table.RELATIONS),
    groups={"people": people.PEOPLE},
    lexicon=LEXICON,
    invented=("root", "river", "valley", "surname", "given_she", "given_he", "sound", "food"),
    pools={"surname": 3, "given_she": 6, "given_he": 6},
    also_called=(", also called {A},", ", known to some as {A},", ", or {A},"),
)
