"""Open-ended questions about a world, each with all facts of the world that are relevant to it.

    for asked in ask_open_questions(world.graph, seed=7, num=40): ...
    asked.question    # "What connects the Oss with Halmgate?"
    asked.facts       # KnownFact(entity="e7-000012", statement="The valley where the Oss rises is Korrin Vale.", ...)

    state_fact(graph, Fact(12, "source", 40, "Korrin Vale"), "Korrin Vale") == "The valley where the Oss rises is ..."
    name_unknown(graph, 12, "source") == "the valley where the Oss rises"

Facts and unknowns are used for evaluation only: the share of known facts that a report states, and whether it admits
what is unknown. The sentences of articles use "it" and "the town" and make jokes; those of `state_fact` are complete
without context.
"""

from collections.abc import Iterator

from msgspec import Struct

from quaere.chat.question_wordings import FORMS, PRACTICE_FORMS, OpenKind, fill_form
from quaere.errors import BadInput
from quaere.records import Evidence, Question
from quaere.worlds.dice import Dice
from quaere.worlds.graph import Fact, Graph
from quaere.worlds.names import capitalise
from quaere.worlds.prose import with_article, write_article

MAX_ELSEWHERE = 6  # facts about an entity taken from other articles; an island has dozens
_ROUND: tuple[OpenKind, ...] = ("overview", "comparison", "story", "connection", "open")
_MAX_TRIES = 400

# For relations whose object is a word, number or year, which have no phrases: a sentence, and a phrase for the object.
_LITERALS: dict[str, tuple[str, str]] = {
    # family "evaluation"
    "coat": ("{X} wore {a:O} coat.", "the colour of the coat of {X}"),
    "birth_year": ("{X} was born in {O}.", "the birth year of {X}"),
    "market_day": ("The market day of {X} is {O}.", "the market day of {X}"),
    "households": ("{X} has {O} households.", "the number of households in {X}"),
    "river_length": ("{X} is {O} leagues long.", "the length of {X}"),
    "crop": ("The main crop of {X} is {O}.", "the main crop of {X}"),
    "arches": ("{X} has {O} arches.", "the number of arches of {X}"),
    "stone": ("{X} is built of {O}.", "the stone of {X}"),
    "school_year": ("{X} opened in {O}.", "the opening year of {X}"),
    "gown": ("The gowns worn at {X} are {O}.", "the colour of the gowns at {X}"),
    "emblem": ("The emblem of {X} is {a:O}.", "the emblem of {X}"),
    "cargo": ("The usual cargo of {X} was {O}.", "the usual cargo of {X}"),
    "launch_year": ("{X} was launched in {O}.", "the launch year of {X}"),
    "book_year": ("{X} appeared in {O}.", "the year of publication of {X}"),
    "wood": ("The body of {X} is made of {O}.", "the wood of {X}"),
    "strings": ("{X} has {O} strings.", "the number of strings of {X}"),
    "month": ("{X} is held in {O}.", "the month of {X}"),
    "ingredient": ("The main ingredient of {X} is {O}.", "the main ingredient of {X}"),
    # family "warmup"
    "hat": ("The headgear of {X} was {a:O}.", "the headgear of {X}"),
    "lifespan": ("{X} died at the age of {O}.", "the age at which {X} died"),
    "peak": ("The summit of {X} is {O} feet high.", "the height of {X}"),
    "export": ("What {X} exports is {O}.", "the principal export of {X}"),
    "steps": ("{O} steps lead up {X}.", "how many steps lead up {X}"),
    "fuel": ("The lamp of {X} burns {O}.", "the fuel burned in {X}"),
    "first_lit": ("The lamp of {X} was kindled in {O}.", "when the lamp of {X} was kindled"),
    "mineral": ("Miners dig {O} out of {X}.", "the mineral dug out of {X}"),
    "monks": ("{O} monks inhabit {X}.", "how many monks inhabit {X}"),
    "drink": ("The monks of {X} make {O}.", "the drink made at {X}"),
    "tree": ("The pride of {X} is its {O}.", "the tree that is the pride of {X}"),
    "metal": ("{X} is cast in {O}.", "the metal of {X}"),
    "seats": ("{X} seats {O}.", "the seating capacity of {X}"),
    "curtain": ("The curtain of {X} is of {O}.", "the fabric of the curtain at {X}"),
    "inauguration": ("Playgoers first entered {X} in {O}.", "when {X} was inaugurated"),
    "acts": ("{X} falls into {O} acts.", "how many acts {X} falls into"),
    "flag": ("The flag of {X} shows {a:O}.", "the figure on the flag of {X}"),
    "fleet": ("{O} vessels sail for {X}.", "the size of the fleet of {X}"),
    "circulation": ("{X} prints {O} copies.", "the circulation of {X}"),
    "mirror": ("The mirror of {X} measures {O} inches.", "the diameter of the mirror of {X}"),
    "period": ("{X} comes back every {O} years.", "how often {X} comes back"),
    # families "village" and "hamlet"
    "built": ("{O} built {X}.", "the builder of {X}"),
    "painted": ("{O} painted {X}.", "the painter of {X}"),
    "bought": ("{O} bought {X}.", "the buyer of {X}"),
    "cursed": ("{O} cursed {X}.", "who cursed {X}"),
}


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


class ReportLine(Struct, frozen=True):
    """An open-ended question with its known facts, as a line of a file; facts and gaps are used for evaluation only.

    `entities` are those it names; `unknown` is what no article states; `set` is the world's family.

        {"id": "e7-r0-00003", "question": "What is known of the Oss?", "kind": "overview", "entities": ["e7-000012"],
         "facts": [...], "unknown": ["the length of the Oss"], "set": "evaluation"}
    """

    id: str
    question: str
    kind: str
    entities: tuple[str, ...]
    facts: tuple[KnownFact, ...]
    unknown: tuple[str, ...]
    set: str

    def to_question(self) -> Question:
        """The question as a `Question` record, without its known facts."""
        return Question(self.id, self.question)


def ask_open_questions(graph: Graph, seed: int, num: int, *, draw: int = 0) -> Iterator[ReportLine]:
    """`num` different questions of alternating kinds; no two of a kind have the same first entity.

    `seed` is the world's; another `draw` gives other questions about the same world.

        next(ask_open_questions(graph, 7, 1)).kind == "overview"
    """
    family = graph.family.name
    dice, asked = Dice(seed, family, "open questions", draw), set[tuple[str, int]]()
    forms = PRACTICE_FORMS if family == "warmup" else FORMS
    for number in range(num):
        kind = _ROUND[number % len(_ROUND)]
        named = _pick(graph, kind, dice, asked)
        if named is None:
            raise BadInput(
                f"this world has facts for only {number} different open questions, not {num}",
                hint=f"ask for at most {number}, or make a larger world with quaere world --articles",
            )
        asked.add((kind, named[0]))
        slots = {slot: graph.entities[index].name for slot, index in zip(("X", "Y"), named, strict=False)}
        yield ReportLine(
            id=f"{family[0]}{seed}-r{draw}-{number:05d}",
            question=capitalise(fill_form(dice.pick(forms[kind]), **slots)),
            kind=kind,
            entities=tuple(graph.entities[index].id for index in named),
            facts=_known_facts(graph, seed, named, elsewhere=kind in ("overview", "story", "open")),
            unknown=tuple(
                name_unknown(graph, index, relation) for index in named for relation in unknown_relations(graph, index)
            ),
            set=family,
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
            others = [index for index in graph.members[graph.kind_of[first]] if index != first]
        else:
            others = [fact.object for fact in graph.facts_of(first) if fact.object is not None]
        if others:
            return first, dice.pick(others)
    return None


def _known_facts(graph: Graph, seed: int, named: tuple[int, ...], *, elsewhere: bool) -> tuple[KnownFact, ...]:
    """Facts stated in the articles of these entities; with `elsewhere`, also some from other articles."""
    own = [(index, fact.relation) for index in named for fact in graph.facts_of(index)]
    others = [
        (subject, relation.name)
        for index in (named if elsewhere else ())
        for relation in graph.family.relations
        if not relation.is_literal
        for subject in graph.subjects_of(index, relation.name)
    ]
    places = dict.fromkeys([*own, *others[:MAX_ELSEWHERE]])
    return tuple(_know(graph, seed, subject, relation) for subject, relation in places)


def _know(graph: Graph, seed: int, subject: int, relation: str) -> KnownFact:
    fact, support = graph.fact(subject, relation), write_article(graph, seed, subject).support(relation)
    assert fact is not None  # callers pass only relations that the subject has
    entity = graph.entities[subject]
    return KnownFact(
        entity=entity.id,
        title=entity.title,
        relation=relation,
        said=support.mention,
        statement=state_fact(graph, fact, support.mention),
        evidence=support.evidence,
        names=tuple(dict.fromkeys((entity.title, *entity.names))),
        answers=tuple(dict.fromkeys((support.mention, *graph.answers(fact)))),
    )


# -------------------------------------------------------------------------------------------------- sentences


def state_fact(graph: Graph, fact: Fact, said: str, *, form: int = 0) -> str:
    """The fact as a sentence; `said` is the object's name. `form` chooses among the forms for an entity.

    state_fact(graph, fact, "Ilse Varn", form=1) == "Ilse Varn is the composer of The Salt Ring."
    """
    relation, subject = graph.relations[fact.relation], graph.entities[fact.subject].name
    if relation.is_literal:
        sentence = _LITERALS[relation.name][0].replace("{X}", subject).replace("{a:O}", with_article(said))
        return capitalise(sentence.replace("{O}", said))
    phrase = relation.phrases[form // 2 % len(relation.phrases)].replace("{X}", subject)
    first, second = (phrase, said) if form % 2 == 0 else (said, phrase)
    return f"{capitalise(first)} is {second}."


def name_unknown(graph: Graph, subject: int, relation: str, *, form: int = 0) -> str:
    """A phrase for the subject's object by this relation, for facts that no article states.

    name_unknown(graph, 12, "river_length") == "the length of the Oss"
    """
    known = graph.relations[relation]
    phrases = (_LITERALS[relation][1],) if known.is_literal else known.phrases
    return phrases[form % len(phrases)].replace("{X}", graph.entities[subject].name)


def unknown_relations(graph: Graph, subject: int) -> tuple[str, ...]:
    """Relations of the subject's kind that the subject does not have: no article states them."""
    relations = graph.relations_of[graph.kind(subject).name]
    return tuple(relation.name for relation in relations if graph.fact(subject, relation.name) is None)
