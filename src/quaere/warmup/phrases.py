"""The oracle's thoughts and queries, drawn from many forms so that the model does not memorise a single one.

Slots of a form, each left out where nothing is known to fill it:

    {X}      the thing being looked up, as the question or passage named it
    {want}   what is wanted of it, as a phrase: "the composer of The Salt Ring"
    {ask}    the same as a question: "who composed The Salt Ring?"
    {F}      the value just found; {had} is the phrase it answers, {n} the number of the passage that states it
    {A}      the answer; {E} the entity a proposer starts from; {hop} the number of the hop just found
    [a|b]    one of these alternatives

A thought is drawn several times, and the first draw of a good length is taken.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from msgspec import Struct

from quaere.worlds.dice import Dice
from quaere.worlds.gold_questions import GoldQuestion
from quaere.worlds.names import strip_article
from quaere.worlds.prose import choose_form
from quaere.worlds.schema import Relation, split_slots

MIN_WORDS, MAX_WORDS = 5, 15
_NUM_DRAWS = 8

_FIRST_QUERY = ("{ask}", "{ask}?", "{want}", "{want}", "{X} {keys}", "{X} {keys}", "{keys} {X}")
_OTHER_QUERY = ("{X} {keys}", "{keys} {X}", "{want}", "{ask}", "{X}")
_OPEN_QUERY = ("{X}", "{X}", "{X} {noun}", "{noun} {X}", "about {X}", "what is known of {X}", "article on {X}")
_PLAIN = frozenset(
    "a an the of to in on at by for from with as is was are were be been did do does has have had would one and or its "
    "it that which who whom whose what when where how many".split()
)


@cache
def load_forms(name: str) -> dict[str, tuple[str, ...]]:
    """The lists of sentence templates ("forms") in `forms/NAME.toml`; the draws of a seed depend on their order.

    load_forms("thoughts")["not_found"][0] == "Nothing on {X} here."
    """
    read = tomllib.loads((files("quaere.warmup") / "forms" / f"{name}.toml").read_text(encoding="utf-8"))
    return {key: tuple(forms) for key, forms in read.items()}


THOUGHTS, REPORT_FORMS = load_forms("thoughts"), load_forms("reports")


def forms_for(family: str) -> Mapping[str, Sequence[str]]:
    """The forms of thoughts and first queries in worlds of this family, by name.

    forms_for("hamlet")["answer"] == ("It is {A}.",)
    """
    forms = THOUGHTS | {"first_query": _FIRST_QUERY}
    return forms | load_forms("short") if family == "hamlet" else forms


class Wording(Struct, frozen=True):
    """The wording of a hop: a phrase for the wanted value ("" if the family has none) and a question, both with `{X}`.

    Wording(want="the composer of {X}", ask="who composed {X}?")
    """

    want: str
    ask: str


def word_hop(question: GoldQuestion, number: int, relation: Relation, dice: Dice) -> Wording:
    """The wording of hop `number`, taken from the question's own text if it is there.

    For "Who was the patron of the composer of The Salt Ring?", hop 0 is `Wording("the composer of {X}", ...)`.
    """
    inverse = question.chain[number].inverse
    asks = relation.inverse_questions if inverse else relation.questions
    wants = () if inverse else relation.phrases
    text = question.text.lower()
    used = [form for form in (*wants, *asks) if all(part.strip("?").lower() in text for part in form.split("{X}"))]
    want, ask = _choose(wants, used, dice), _choose(asks, used, dice)
    return Wording(want, ask[:1].lower() + ask[1:])


def _choose(forms: Sequence[str], used: Sequence[str], dice: Dice) -> str:
    fitting = [form for form in forms if form in used] or list(forms)
    return dice.pick(fitting) if fitting else ""


def wording_slots(wording: Wording, mention: str) -> dict[str, str]:
    """Values of the slots `X`, `want` and `ask` for an entity with the name `mention`."""
    return {"X": mention, "want": wording.want.replace("{X}", mention), "ask": wording.ask.replace("{X}", mention)}


def write_thought(
    forms: Sequence[str],
    dice: Dice,
    slots: Mapping[str, str],
    *,
    min_words: int = MIN_WORDS,
    max_words: int = MAX_WORDS,
) -> str:
    """A thought in one of these forms, if possible of `min_words` to `max_words`; sentences begin with capitals.

    write_thought(("it is {F}.",), dice, {"F": "Venn"}) == "It is Venn."
    """
    usable = _usable(forms, slots)
    drawn = [_draw(usable, dice, slots) for _ in range(_NUM_DRAWS)]
    return _begin_sentences(min(drawn, key=lambda text: _excess(text, min_words, max_words)))


def write_next(dice: Dice, found: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """A thought of two sentences: what was found, and what to search for next.

    "Passage 1 names Ilse Varn. Next: who acted as patron to Ilse Varn?"
    """
    first, second = _usable(THOUGHTS["found"], found), _usable(THOUGHTS["next_hop"], wanted)
    drawn = [f"{_draw(first, dice, found)} {_draw(second, dice, wanted)}" for _ in range(_NUM_DRAWS)]
    return _begin_sentences(min(drawn, key=_excess))


def _begin_sentences(text: str) -> str:
    return re.sub(r"(^|[.?!] )([a-z])", lambda match: match[1] + match[2].upper(), text)


def _excess(text: str, min_words: int = MIN_WORDS, max_words: int = MAX_WORDS) -> int:
    """By how many words a thought is too long or too short; 0 if its length fits."""
    num = len(text.split())
    return max(min_words - num, num - max_words, 0)


def _usable(forms: Sequence[str], slots: Mapping[str, str]) -> list[str]:
    return [form for form in forms if all(slots.get(slot) for slot in split_slots(form)[1::2])]


def _draw(forms: Sequence[str], dice: Dice, slots: Mapping[str, str]) -> str:
    parts = split_slots(choose_form(dice.pick(forms), dice))
    return "".join(slots[part] if number % 2 else part for number, part in enumerate(parts))


def write_query(
    wording: Wording, mention: str, dice: Dice, asked: Sequence[str] = (), first: Sequence[str] = _FIRST_QUERY
) -> str:
    """A search query for a hop that is not in `asked`; simpler after each failed one, at last only the name.

    `first` are the forms of the first query.

    write_query(Wording("the composer of {X}", "who composed {X}?"), "The Salt Ring", dice) == "composer The Salt Ring"
    """
    if len(asked) >= 2:
        return strip_article(mention)
    return _new_query(_OTHER_QUERY if asked else first, wording, mention, "", dice, asked)


def write_open_query(mention: str, noun: str, dice: Dice) -> str:
    """A query of a proposer that does not know yet what it will find.

    write_open_query("The Salt Ring", "opera", dice) == "opera The Salt Ring"
    """
    return _new_query(_OPEN_QUERY, Wording("", ""), mention, noun, dice, ())


def _new_query(
    forms: Sequence[str], wording: Wording, mention: str, noun: str, dice: Dice, asked: Sequence[str]
) -> str:
    name = strip_article(mention) if dice.chance(50) else mention
    keys = _keywords(dice.pick([form for form in (wording.want, wording.ask) if form] or [""]))
    slots = wording_slots(wording, name)
    slots |= {"keys": keys, "noun": noun, "want": strip_article(slots["want"]), "ask": slots["ask"].rstrip("?")}
    usable = _usable(forms, slots)
    drawn = (_draw(usable, dice, slots) for _ in range(_NUM_DRAWS))
    return next((query for query in drawn if query not in asked), strip_article(mention))


def _keywords(form: str) -> str:
    """The words of a wording without function words.

    _keywords("the theatre where {X} had its premiere") == "theatre premiere"
    """
    listed = form.replace("{X}", " ").replace("?", " ").replace(",", " ").split()
    return " ".join(word for word in listed if word.lower() not in _PLAIN)
