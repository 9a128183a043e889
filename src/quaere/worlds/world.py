"""A world: a seeded fictional encyclopedia. No model can have memorised it, so it measures search.

world = generate_world(seed=7, num_articles=500)
for article in world.articles(): ...            # streamed: no text is kept
for question in world.questions(100): ...       # one to four facts, each with its proof
world.facts_of(world.entities[12])              # the graph behind them
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quaere.errors import BadInput
from quaere.worlds.families import load_family
from quaere.worlds.gold_questions import GoldQuestion, ask_questions
from quaere.worlds.graph import Entity, Fact, Graph
from quaere.worlds.prose import Article, write_article

FAMILIES = ("evaluation", "warmup")
SMALL_FAMILIES = ("village", "hamlet")  # no encyclopedias: for models made from nothing
MIN_ARTICLES = 200
MAX_DEFAULT_QUESTIONS = 1000


class World:
    """An encyclopedia and its fact graph: a function of seed, size and family.

    World("evaluation", seed=7, num_articles=500).article(world.entities[12]).title == "River Oss"
    """

    def __init__(self, family: str, seed: int, num_articles: int) -> None:
        self.family = load_family(family)
        self.seed = seed
        self.graph = Graph(self.family, seed, num_articles)

    @property
    def entities(self) -> Sequence[Entity]:
        """The subjects of the articles, in the order of their ids."""
        return self.graph.entities

    def entity(self, entity_id: str) -> Entity:
        """The entity with this id, which is also the id of its article."""
        return self.graph.entities[int(entity_id.rpartition("-")[2])]

    def facts(self) -> Iterator[Fact]:
        """All facts; each is stated in its subject's article and nowhere else."""
        return self.graph.facts()

    def facts_of(self, entity: Entity) -> tuple[Fact, ...]:
        """All facts of this entity."""
        return self.graph.facts_of(entity.index)

    def article(self, entity: Entity) -> Article:
        """The article about this entity, with the span of every fact."""
        return write_article(self.graph, self.seed, entity.index)

    def articles(self) -> Iterator[Article]:
        """All articles, written one at a time."""
        return map(self.article, self.graph.entities)

    def questions(self, num: int | None = None, facts: Sequence[int] | None = None) -> Iterator[GoldQuestion]:
        """Gold questions whose numbers of facts cycle through `facts`; by default one per article, up to 1,000.

        Without `facts` they cycle through all numbers that the family has: 1 to 4, in a village only 1. In a hamlet
        there are by default half as many: it has one fact per article, and the last ones are not found by drawing.
        """
        most = self.family.max_facts
        facts = range(1, most + 1) if facts is None else facts
        if num is None:
            is_sparse = all(kind.max_facts == 1 for kind in self.family.kinds)
            num = min(len(self.entities) // (2 if is_sparse else 1), MAX_DEFAULT_QUESTIONS)
        if num < 0:
            raise BadInput(f"the number of questions must be 0 or more, not {num}")
        if not facts or not all(1 <= number <= most for number in facts):
            raise BadInput(f"every number of facts must be from 1 to {most}, not {list(facts)}")
        return ask_questions(self.graph, self.seed, num, facts)


def generate_world(seed: int, num_articles: int, family: str = "evaluation") -> World:
    """The world of this seed, size and family; the same arguments give the same bytes on every machine.

    generate_world(7, 500).entities[12].title == "River Oss"
    """
    if family not in (*FAMILIES, *SMALL_FAMILIES):
        raise BadInput(f"there is no family {family!r}; the families are {', '.join((*FAMILIES, *SMALL_FAMILIES))}")
    most = load_family(family).max_articles
    if not MIN_ARTICLES <= num_articles <= most:
        raise BadInput(
            f"a world of the {family} family must have {MIN_ARTICLES} to {most} articles, not {num_articles}",
            hint=f"quaere world --articles {min(max(num_articles, MIN_ARTICLES), most)}",
        )
    if seed < 0:
        raise BadInput(f"the seed must be 0 or more, not {seed}")
    return World(family, seed, num_articles)
