"""Facts as plain, self-contained sentences, and phrases for what is unknown.

    state_fact(graph, Fact(12, "source", 40, "Korrin Vale"), "Korrin Vale") == "The valley where the Oss rises is ..."
    name_unknown(graph, 12, "source") == "the valley where the Oss rises"

The sentences of articles use "it" and "the town" and make jokes; these are for reports and for checking reports.
"""

from __future__ import annotations

from quaere.worlds.graph import Fact, Graph
from quaere.worlds.names import capitalise
from quaere.worlds.prose import with_article

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


def state_fact(graph: Graph, fact: Fact, said: str, *, form: int = 0) -> str:
    """The fact as a sentence; `said` is the object's name. `form` chooses among the forms for an entity.

    state_fact(graph, fact, "Ilse Varn", form=1) == "Ilse Varn is the composer of The Salt Ring."
    """
    relation, subject = graph.relations[fact.relation], graph.entities[fact.subject].name
    if relation.is_literal:
        sentence = _LITERALS[relation.name][0]
        filled = {"{X}": subject, "{a:O}": with_article(said), "{O}": said}
        for slot, text in filled.items():
            sentence = sentence.replace(slot, text)
        return capitalise(sentence)
    phrase = relation.phrases[form // 2 % len(relation.phrases)].replace("{X}", subject)
    first, second = (phrase, said) if form % 2 == 0 else (said, phrase)
    return f"{capitalise(first)} is {second}."


def name_unknown(graph: Graph, subject: int, relation: str, *, form: int = 0) -> str:
    """A phrase for the object of this relation of the subject.

    name_unknown(graph, 12, "river_length") == "the length of the Oss"
    """
    known = graph.relations[relation]
    phrases = (_LITERALS[relation][1],) if known.is_literal else known.phrases
    return phrases[form % len(phrases)].replace("{X}", graph.entities[subject].name)


def unknown_relations(graph: Graph, subject: int) -> tuple[str, ...]:
    """Relations of the subject's kind that the subject does not have: no article states them."""
    relations = graph.relations_of[graph.kind(subject).name]
    return tuple(relation.name for relation in relations if graph.fact(subject, relation.name) is None)
