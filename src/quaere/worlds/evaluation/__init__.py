"""The evaluation family: a river country of towns, guilds and ships. Gold questions are asked of these worlds."""

from __future__ import annotations

from quaere.worlds.evaluation import people, places, things
from quaere.worlds.evaluation.lexicon import LEXICON
from quaere.worlds.schema import Family

EVALUATION = Family(
    name="evaluation",
    kinds=people.KINDS + places.KINDS + things.KINDS,
    relations=people.RELATIONS + places.RELATIONS + things.RELATIONS,
    groups={"people": people.PEOPLE},
    lexicon=LEXICON,
    invented=("root", "river", "valley", "surname", "given_she", "given_he", "sound", "food"),
    pools={"surname": 3, "given_she": 6, "given_he": 6},
    also_called=(", also called {A},", ", known to some as {A},", ", or {A},"),
)
