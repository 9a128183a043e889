"""Gold questions: a path of one to four facts, asked in one sentence, with the evidence for each fact.

A path goes from subject to object ("the author of The Salt Ledger") any number of times, and may end with one inverse
step from object to subject ("Which book is dedicated to ...?") where exactly one entity fits. So every fact is proved
by another article, and the answer is unique. The question names the first entity and none of the others.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec import Struct

from quaere.errors import BadInput
from quaere.records import Evidence, Question
from quaere.worlds.dice import Dice
from quaere.worlds.graph import Graph
from quaere.worlds.names import capitalise, strip_article
from quaere.worlds.prose import Article, write_article
from quaere.worlds.schema import Relation, ends_in_slot

MAX_FACTS = 4

_MAX_TRIES = 4000
_ALIAS_PERCENT = 20
_INVERSE_PERCENT = 20
_EMBEDDED_MAX_WORDS = 6


class Hop(Struct, frozen=True):
    """One fact of a question: the entity to look up, the relation, the answer, and the sentence that proves it.

    `mention` is the entity's name where the searcher finds it: in the question, or in the evidence of the hop before.
    `said` is the answer as written in the evidence. With `inverse` the evidence is in the answer's own article.

        Hop(entity="e7-000012", mention="the Grey Water", relation="source", inverse=False,
            answer="Korrin Vale", answer_id="e7-000040", said="Korrin Vale", evidence=Evidence(...))
    """

    entity: str
    mention: str
    relation: str
    inverse: bool
    answer: str
    answer_id: str | None
    said: str
    evidence: Evidence


class GoldQuestion(Struct, frozen=True):
    """A question with its known chain of facts.

    GoldQuestion(id="e7-q00003", text="In which valley does ... rise?", answers=("Korrin Vale",), chain=(Hop(...),))
    """

    id: str
    text: str
    answers: tuple[str, ...]
    chain: tuple[Hop, ...]
    family: str

    @property
    def facts(self) -> int:
        """Number of facts the question combines; each is in another article, so this is also the number of searches."""
        return len(self.chain)

    @property
    def gold_ids(self) -> tuple[str, ...]:
        """Ids of the articles that prove the answer, in the order of the facts; all different."""
        return tuple(hop.evidence.doc_id for hop in self.chain)

    def to_question(self) -> Question:
        """The question as a `Question` record."""
        evidence = tuple(hop.evidence for hop in self.chain)
        return Question(self.id, self.text, self.answers, self.facts, evidence, facts=self.facts, searches=self.facts)


class _Step(Struct):
    """One step of a path: from an entity by a relation to an entity, or to a literal (`target` is None)."""

    origin: int
    relation: Relation
    inverse: bool
    target: int | None

    @property
    def witness(self) -> int:
        """Index of the entity whose article states the fact of this step."""
        return self.target if self.inverse and self.target is not None else self.origin


def ask_questions(graph: Graph, seed: int, num: int, facts: Sequence[int]) -> Iterator[GoldQuestion]:
    """`num` different questions; their numbers of facts cycle through `facts`.

    list(ask_questions(graph, 7, 8, (1, 2, 3, 4)))[3].facts == 4
    """
    dice = Dice(seed, graph.family.name, "questions")
    asked: set[tuple[object, ...]] = set()
    for number in range(num):
        name = f"{graph.family.name[0]}{seed}-q{number:05d}"
        for _ in range(_MAX_TRIES):
            walk = _walk(graph, facts[number % len(facts)], dice)
            path = (walk[0].origin, walk[-1].inverse, *(step.relation.name for step in walk)) if walk else None
            if path is None or path in asked:
                continue
            asked.add(path)  # also if no question results, so that the path is not tried again
            if (question := _try_question(graph, seed, name, walk, dice)) is not None:
                yield question
                break
        else:
            raise BadInput(
                f"this world has facts for only {number} different questions, not {num}",
                hint=f"quaere world --questions {number}",
            )


def _try_question(graph: Graph, seed: int, name: str, walk: Sequence[_Step], dice: Dice) -> GoldQuestion | None:
    articles = [write_article(graph, seed, step.witness) for step in walk]
    start = graph.entities[walk[0].origin]
    # For an inverse step only the witness's article can be found, so the question must use that article's name.
    if walk[0].inverse:
        mention = articles[0].support(walk[0].relation.name).mention
    elif start.aliases and dice.chance(_ALIAS_PERCENT):
        mention = dice.pick(start.aliases)
    else:
        mention = start.name
    text, last = _word(walk, mention, dice), walk[-1]
    fact = graph.fact(last.witness, last.relation.name)
    assert fact is not None  # the path contains this step
    answers = graph.entities[last.witness].answers if last.inverse else graph.answers(fact)
    if _leaks(graph, walk, text, answers) or _has_shortcut(walk, articles, answers):
        return None
    hops = tuple(_chain(graph, walk, articles, mention, answers))
    return GoldQuestion(name, text, answers, hops, graph.family.name)


# ---------------------------------------------------------------------------------------------------------- walking


def _walk(graph: Graph, num_facts: int, dice: Dice) -> list[_Step]:
    """A random path of `num_facts` steps; [] if the draw fails.

    The last relation is drawn first, so that all relations are asked about equally often.
    """
    last = dice.pick(graph.family.relations)
    inverse = bool(last.inverse_questions) and dice.chance(_INVERSE_PERCENT)
    if num_facts == 1:  # the path is the last step only: start at an entity that has the relation
        kind = dice.pick(last.subjects)
        here = dice.pick(graph.members[dice.pick(last.object_kinds(kind)) if inverse else kind])
    else:
        here = dice.below(len(graph.entities))
    steps: list[_Step] = []
    seen = {here}
    for _ in range(num_facts - 1):
        relation = dice.pick([one for one in graph.relations_of[graph.kind(here).name] if not one.is_literal])
        target = graph.object_of(here, relation.name)
        if target is None or target in seen or relation == last or any(step.relation == relation for step in steps):
            return []
        steps.append(_Step(here, relation, False, target))
        seen.add(target)
        here = target
    end = _last_step(graph, here, last, inverse)
    return [] if end is None or end.target in seen else [*steps, end]


def _last_step(graph: Graph, here: int, relation: Relation, inverse: bool) -> _Step | None:
    if inverse:
        subjects = graph.subjects_of(here, relation.name)
        return _Step(here, relation, True, subjects[0]) if len(subjects) == 1 else None
    is_known = graph.fact(here, relation.name) is not None
    return _Step(here, relation, False, graph.object_of(here, relation.name)) if is_known else None


# ---------------------------------------------------------------------------------------------------------- wording


def _word(walk: Sequence[_Step], mention: str, dice: Dice) -> str:
    """The question: phrases nested from the first entity outwards, then the question form.

    "Which river flows through the town where the author of The Salt Ledger was born?"
    """
    inner, can_embed, last = mention, True, walk[-1]
    for step in walk[:-1]:
        phrase = dice.pick(_nestable(step.relation.phrases, inner, can_embed))
        inner, can_embed = phrase.replace("{X}", inner), can_embed and ends_in_slot(phrase)
    forms = last.relation.inverse_questions if last.inverse else last.relation.questions
    return capitalise(dice.pick(_nestable(forms, inner, can_embed)).replace("{X}", inner))


def _nestable(templates: tuple[str, ...], inner: str, can_embed: bool) -> tuple[str, ...]:
    """The templates that can take `inner`: a long phrase is hard to read in the middle, so it must come last."""
    fits = can_embed and len(inner.split()) <= _EMBEDDED_MAX_WORDS
    return tuple(template for template in templates if fits or ends_in_slot(template))


# --------------------------------------------------------------------------------------------------------- checking


def says(text: str, name: str) -> bool:
    """True if the text contains the name as whole words, ignoring case.

    says("Who built Halmgate-on-Oss?", "the Oss") is True
    """
    return re.search(rf"(?<!\w){re.escape(strip_article(name))}(?!\w)", text, re.IGNORECASE) is not None


def _leaks(graph: Graph, walk: Sequence[_Step], text: str, answers: tuple[str, ...]) -> bool:
    """True if the question names an intermediate entity or its own answer."""
    hidden = chain(answers, *(graph.entities[step.origin].names for step in walk[1:]))
    return any(says(text, name) for name in hidden)


def _has_shortcut(walk: Sequence[_Step], articles: Sequence[Article], answers: tuple[str, ...]) -> bool:
    """True if an article before the last one names the answer, so that it could be found with fewer searches."""
    named = (says(article.text, answer) for article in articles[:-1] for answer in answers)
    return walk[-1].target is not None and any(named)


def _chain(
    graph: Graph, walk: Sequence[_Step], articles: Sequence[Article], mention: str, answers: tuple[str, ...]
) -> Iterator[Hop]:
    for step, article in zip(walk, articles, strict=True):
        support = article.support(step.relation.name)
        target = graph.entities[step.target] if step.target is not None else None
        yield Hop(
            entity=graph.entities[step.origin].id,
            mention=mention,
            relation=step.relation.name,
            inverse=step.inverse,
            answer=target.title if target else answers[0],
            answer_id=target.id if target else None,
            said=target.title if target and step.inverse else support.mention,
            evidence=support.evidence,
        )
        mention = support.mention
