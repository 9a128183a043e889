"""Open-ended questions about a world, each with all facts of the world that are relevant to it.

    for asked in ask_open_questions(world.graph, seed=7, num=40): ...
    asked.text        # "What connects the Oss with Halmgate?"
    asked.facts       # KnownFact(entity="e7-000012", statement="The valley where the Oss rises is Korrin Vale.", ...)

Facts and unknowns are used for evaluation only: the share of known facts that a report states, and whether it admits
what is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from quaere.chat.question_wordings import FORMS, PRACTICE_FORMS, OpenKind, fill_form
from quaere.errors import BadInput
from quaere.records import Evidence, Question
from quaere.worlds.dice import Dice
from quaere.worlds.fact_sentences import name_unknown, state_fact, unknown_relations
from quaere.worlds.graph import Graph
from quaere.worlds.names import capitalise
from quaere.worlds.prose import write_article

MAX_ELSEWHERE = 6  # facts about an entity taken from other articles; an island has dozens
_ROUND: tuple[OpenKind, ...] = ("overview", "comparison", "story", "connection", "open")
_MAX_TRIES = 400


class KnownFact(Struct, frozen=True):
    """A fact that a report may state, with the sentence that proves it. `said` is the object's name in that sentence.

    `names` are all names of the fact's subject, `answers` all accepted forms of the object.

        KnownFact(entity="e7-000012", title="River Oss", relation="source", said="Korrin Vale",
                  statement="The valley where the Oss rises is Korrin Vale.", evidence=Evidence(...),
                  names=("River Oss", "the Oss"), answers=("Korrin Vale", "Korrin"))
    """

    entity: str
    title: str
    relation: str
    said: str
    statement: str
    evidence: Evidence
    names: tuple[str, ...]
    answers: tuple[str, ...]


class OpenGold(Struct, frozen=True):
    """An open-ended question with its known facts. `entities` are those it names; `unknown` is what no article states.

    OpenGold(id="e7-r0-00003", text="What is known of the Oss?", kind="overview", entities=("e7-000012",),
             facts=(KnownFact(...),), unknown=("the length of the Oss",), family="evaluation")
    """

    id: str
    text: str
    kind: OpenKind
    entities: tuple[str, ...]
    facts: tuple[KnownFact, ...]
    unknown: tuple[str, ...]
    family: str

    def to_question(self) -> Question:
        """The question as a `Question` record, without its known facts."""
        return Question(self.id, self.text)


def ask_open_questions(graph: Graph, seed: int, num: int, *, draw: int = 0) -> Iterator[OpenGold]:
    """`num` different questions of alternating kinds; no two of a kind have the same first entity.

    `seed` is the world's; another `draw` gives other questions about the same world.

        next(ask_open_questions(graph, 7, 1)).kind == "overview"
    """
    dice, asked = Dice(seed, graph.family.name, "open questions", draw), set[tuple[str, int]]()
    forms = PRACTICE_FORMS if graph.family.name == "warmup" else FORMS
    for number in range(num):
        kind = _ROUND[number % len(_ROUND)]
        named = _pick(graph, kind, dice, asked)
        if named is None:
            raise BadInput(
                f"this world has facts for only {number} different open questions, not {num}",
                hint=f"ask for at most {number}, or make a larger world with quaere world --articles",
            )
        asked.add((kind, named[0]))
        names = [graph.entities[index].name for index in named]
        slots = dict(zip(("X", "Y"), names, strict=False))
        text = capitalise(fill_form(dice.pick(forms[kind]), **slots))
        yield OpenGold(
            id=f"{graph.family.name[0]}{seed}-r{draw}-{number:05d}",
            text=text,
            kind=kind,
            entities=tuple(graph.entities[index].id for index in named),
            facts=known_facts(graph, seed, named, elsewhere=kind in ("overview", "story", "open")),
            unknown=tuple(
                name_unknown(graph, index, relation) for index in named for relation in unknown_relations(graph, index)
            ),
            family=graph.family.name,
        )


def _pick(graph: Graph, kind: OpenKind, dice: Dice, asked: set[tuple[str, int]]) -> tuple[int, ...] | None:
    """The entities to ask about: one; or two of the same kind; or two that a fact connects. None if none is found."""
    for _ in range(_MAX_TRIES):
        first = dice.below(len(graph.entities))
        if (kind, first) in asked:
            continue
        if kind not in ("comparison", "connection"):
            return (first,)
        if kind == "comparison":
            others = [index for index in graph.members[graph.kind(first).name] if index != first]
        else:
            others = [fact.object for fact in graph.facts_of(first) if fact.object is not None]
        if others:
            return first, dice.pick(others)
    return None


def known_facts(graph: Graph, seed: int, named: tuple[int, ...], *, elsewhere: bool) -> tuple[KnownFact, ...]:
    """Facts stated in the articles of these entities; with `elsewhere`, also some from other articles."""
    places = [(index, fact.relation) for index in named for fact in graph.facts_of(index)]
    if elsewhere:
        found = [
            (subject, relation.name)
            for index in named
            for relation in graph.family.relations
            if not relation.is_literal
            for subject in graph.subjects_of(index, relation.name)
        ]
        places += found[:MAX_ELSEWHERE]
    return tuple(_know(graph, seed, subject, relation) for subject, relation in dict.fromkeys(places))


def _know(graph: Graph, seed: int, subject: int, relation: str) -> KnownFact:
    fact, support = graph.fact(subject, relation), write_article(graph, seed, subject).support(relation)
    assert fact is not None  # callers pass only relations that the subject has
    entity = graph.entities[subject]
    statement = state_fact(graph, fact, support.mention)
    return KnownFact(
        entity=entity.id,
        title=entity.title,
        relation=relation,
        said=support.mention,
        statement=statement,
        evidence=support.evidence,
        names=tuple(dict.fromkeys((entity.title, *entity.names))),
        answers=tuple(dict.fromkeys((support.mention, *graph.answers(fact)))),
    )
