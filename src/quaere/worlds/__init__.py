"""Generator of fictional encyclopedias with gold questions. See `generate_world` and `write_world`."""

from quaere.worlds.gold_questions import GoldQuestion, Hop
from quaere.worlds.graph import Entity, Fact
from quaere.worlds.prose import Article, Support
from quaere.worlds.world import FAMILIES, SMALL_FAMILIES, Manifest, World, generate_world, write_world
