"""The oracle's words: short thoughts and queries, drawn from many forms so that no single one is learnt by heart.

Slots of a form, each left out where nothing is known to fill it:

    {X}      the thing being looked up, as it was called where it was met
    {want}   what is wanted of it, as a phrase: "the composer of The Salt Ring"
    {ask}    the same as a question: "who composed The Salt Ring?"
    {F}      what was just found; {had} is the phrase it answers, {n} the number of the passage that says it
    {A}      the answer; {E} the thing a proposer starts from; {hop} the number of the hop just found
    [a|b]    one of these

A thought is drawn a few times over, and the first one of a good length is taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from quaere.worlds.dice import Dice
from quaere.worlds.names import strip_article
from quaere.worlds.questions import GoldQuestion
from quaere.worlds.schema import Relation, lines, split_forms, split_slots, words

MIN_WORDS, MAX_WORDS = 5, 15
_NUM_DRAWS = 8

# ---------------------------------------------------------------------------------------------------- solver's thoughts

ONLY_HOP = lines("""
    I [need|want|have] to find out: {ask}
    [Let me|I should|I will] look this up: {ask}
    The [documents|passages|articles] should [say|tell|know]: {ask}
    So, {ask} [A search|One search|The search engine] should tell.
    I know nothing of {X} yet, so I search.
    I [do not know|cannot know] this. [Let me|I will] search for {X}.
    Everything hangs on {X}. [Let me|I will] look that up.
    One fact is [needed|asked for|missing]: {ask}
    I [need|am after|am asked for] {want}.
    [Let me|I will|I should] [find|look for|search for] {want}.
    What I [need|want|lack] is {want}.
    [A|One] search for {want} [should do|will do|may be enough].
    The question is about {X}, so that is my search.
    [Somewhere|In some article] it must say: {ask}
    {X} is the name to [look up|search for|look for].
    Nothing is given but {X}. I search for that.
    This should stand in the article on {X}.
    To be looked up: {ask}
""")

FIRST_HOP = lines("""
    [First|To begin with|To start], I need {want}.
    [First|Step one|To begin]: {ask}
    {want} comes first[.|, the rest later.|, then the rest.]
    I [should|must|have to] [begin|start] with {want}.
    This takes [several|a few|more than one] steps. First, {want}.
    [Several|A few] facts are [needed|chained] here. [First|I begin with] {want}.
    The chain [begins|starts] [at|with] {X}: {ask}
    Before anything else: {ask}
    [Only|Just] {X} is named, so I [start|begin] there.
    [One thing|One step] at a time. [First|To begin with], {want}.
    [Let me|I will] first [find|look up|search for] {want}.
    From {X} I can work my way [on|forward|along]. First, {want}.
    I cannot answer before I know {want}.
    The innermost part is {want}; [I start there|that comes first].
    [Let me|I will] begin with {X} and go on from there.
    What do the [documents|articles] say of {X}? I start there.
""")

FOUND = lines("""
    It is {F}.
    That is {F}.
    So it is {F}.
    [Good|Right|Fine], {F}.
    [The passage|Passage {n}|The text] names {F}.
    Passage {n} [says|gives|has] {F}.
    {F}, [says|according to] passage {n}.
    [Found|There it is]: {F}.
    {had} is {F}.
    [This leads to|That brings me to|Which means] {F}.
    I have {F} now.
""")

NEXT_HOP = lines("""
    [Now|Next] I need {want}.
    [Next|Now|Then]: {ask}
    Now for {want}.
    [Next comes|That leaves|Still missing is|What remains is] {want}.
    And {ask}
    So, {ask}
    [Now|Next] [let me|I] [look for|find|search for] {want}.
    [Next|Now] I look up {X}.
    On to {want}.
    [Only|Now] {want} is [missing|left|open].
    Which leaves the question: {ask}
""")

NOT_FOUND = lines("""
    [No sign of|Nothing on|No word of] {X} here. I [try|use] other words.
    These passages do not [help|say it|tell]. Again, for {X}.
    [Not there yet|Not what I need|That missed it]. I search for {X} differently.
    [None|Not one] of these [answers it|is it|fits]. [Fewer|Other|Plainer] words may [help|do better].
    That [was no help|did not work|found other things]. Once more: {X}.
    The [right article|article I need|passage I need] is not among these. I [search again|try again].
    The search [missed|did not find] {X}. [Let me|I will] [put it differently|change the words].
    I still [lack|need|miss] {want}. Other words, then.
    Other things came up. I [ask again|search once more] for {X}.
    [Still open|Still unknown]: {ask} I [rephrase|try again].
""")

ANSWER = lines("""
    The answer is {A}, [says|as I read in] passage {n}.
    Passage {n} [says it|has it|answers it|settles it]: {A}.
    That settles [it|the question]: {A}.
    [Found it|There it is|Here it is], in passage {n}: {A}.
    So the answer [is|must be|has to be] {A}.
    I have [what I need|the answer|all I need]: {A}.
    [The article|The passage|The text] on {X} [gives|says|names] {A}.
    {A}, as passage {n} [says|has it|tells us].
    {had} is {A}. [Done|That is all|That is the answer].
    [This|That] was the last [step|fact|piece]: {A}.
    Nothing more is [needed|missing|to be found]. It is {A}.
    About {X} it says {A}, which answers the question.
    For {X} the passage gives {A}. [I can answer|Enough].
""")

# -------------------------------------------------------------------------------------------------- proposer's thoughts

ASK_OF_DOCUMENT = lines("""
    The document [states|gives|holds] one [clear|plain|short] fact on {X}: {A}.
    I can ask about {X}; the [text|document] [says|gives] {A}.
    [A good question|I could ask|I will ask|One could ask]: {ask} It [says|gives] {A}.
    The [text|document] [tells|says|names] {want}: {A}.
    For {X} the document [gives|has|says] {A}. [I ask for that|That will do].
    {A} is [stated|written|said] here [plainly|clearly|once], so I ask for it.
    One hop, no search. [I ask about|I choose] {X}; the answer is {A}.
    I [take|choose|pick] {X}, and ask for {want}.
    {want} [stands|is named] here: {A}. I ask [for it|that].
    No search is needed: the text on {X} says {A}.
    One thing said of {X} is [short and clear|short|clear]: {A}.
""")

START_FROM = lines("""
    The document names {E}. I [start|begin] [there|with that].
    Hop 1 is {E}. [Now a fact about that.|Now I search.|What else is known?]
    [Let me|I will] [take|use|choose] {E} as [hop 1|the first hop] and search.
    {E} is [named|mentioned] here; [what else is known?|I look that up.]
    I choose {E} [from|out of] the document and [look further|search].
    {E} [looks|seems] like a good [start|first hop]. I search for that.
    [Of the names here|Among the names] I [take|pick|choose] {E}, and search.
    The text [mentions|speaks of|names] {E} but says little more.
    My [question|chain] [starts|begins] at {E}. What do others say?
    Now [something|a fact] about {E} that is not in this document.
    To begin with, {E}. A search will show more.
""")

GO_ON_FROM = lines("""
    Hop {hop} is {F}. [Now|Next] a fact about that.
    Passage {n} leads to {F}. [I search on|I go on from there|On from there].
    From {X} to {F}. [Next|Now], something about {F}.
    {had} is {F}. [I follow that|Now that one].
    {F} is hop {hop}. [One more step|Further|On] from there.
    [Good|Fine], {F} [comes|is] next. What is known there?
    {X} leads to {F}, as passage {n} says. [On|I go on].
    [Now|Next] I look up {F}, which passage {n} names.
    The chain [grows|goes on]: {X}, then {F}. I search for {F}.
    Passage {n} [gives|names] {F}. That will be hop {hop}.
""")

ASK_OF_CHAIN = lines("""
    Hop {hop} is {A}. The question [names|may name] only {E}.
    The [last hop|end] is {A}. I [ask|start the question] from {E}.
    From {E} to {A}: the chain is [complete|long enough|done].
    Passage {n} [gives|says|has] {A}. [That is the answer|That ends the chain|I can ask now].
    {had} is {A}. [Enough hops|That makes {hop} hops|The chain is complete].
    [So|Now] the answer is {A}, and only {E} is named.
    [That makes|I have] {hop} hops, from {E} to {A}.
    With {A} I have [enough|all hops]. [I name only|The question names] {E}.
    {A} [ends|closes] the chain that {E} [began|begins].
    {X} leads to {A}. Now I [write|word] the question from {E}.
""")

# -------------------------------------------------------------------------------------------------------------- queries

_FIRST_QUERY = ("{ask}", "{ask}?", "{want}", "{want}", "{X} {keys}", "{X} {keys}", "{keys} {X}")
_OTHER_QUERY = ("{X} {keys}", "{keys} {X}", "{want}", "{ask}", "{X}")
_OPEN_QUERY = ("{X}", "{X}", "{X} {noun}", "{noun} {X}", "about {X}", "what is known of {X}", "article on {X}")
_PLAIN = frozenset(
    words(
        "a an the of to in on at by for from with as is was are were be been did do does has have had would one and "
        "or its it that which who whom whose what when where how many"
    )
)


class Wording(Struct, frozen=True):
    """How a hop is worded: a phrase for what is wanted ("" if the family has none) and a question, both with `{X}`.

    Wording(want="the composer of {X}", ask="who composed {X}?")
    """

    want: str
    ask: str


def word_hop(question: GoldQuestion, number: int, relation: Relation, dice: Dice) -> Wording:
    """The wording of hop `number`, as the question itself words it where it does.

    For "Who was the patron of the composer of The Salt Ring?", hop 0 is `Wording("the composer of {X}", ...)`.
    """
    inverse = question.chain[number].inverse
    asks = relation.inverse_questions if inverse else relation.questions
    wants = () if inverse else relation.phrases
    used = [form for form in (*wants, *asks) if _is_used(form, question.text)]
    return Wording(want=_choose(wants, used, dice), ask=_lower_first(_choose(asks, used, dice)))


def _is_used(form: str, text: str) -> bool:
    return all(part.strip("?").lower() in text.lower() for part in form.split("{X}"))


def _choose(forms: Sequence[str], used: Sequence[str], dice: Dice) -> str:
    fitting = [form for form in forms if form in used] or list(forms)
    return dice.pick(fitting) if fitting else ""


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def wording_slots(wording: Wording, mention: str) -> dict[str, str]:
    """`want`, `ask` and `X` filled in for this thing."""
    filled = {"want": wording.want, "ask": wording.ask}
    return {"X": mention} | {name: form.replace("{X}", mention) for name, form in filled.items()}


def write_thought(
    forms: Sequence[str],
    dice: Dice,
    slots: Mapping[str, str],
    *,
    min_words: int = MIN_WORDS,
    max_words: int = MAX_WORDS,
) -> str:
    """A thought of one of these forms, with capitals where sentences begin.

    write_thought(("it is {F}.",), dice, {"F": "Venn"}) == "It is Venn."
    """
    drawn = [_fill(_draw(forms, dice, slots), slots) for _ in range(_NUM_DRAWS)]
    return _begin_sentences(min(drawn, key=lambda text: _excess(text, min_words, max_words)))


def write_next(dice: Dice, found: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """A thought of two sentences: what was found, and what comes next.

    "Passage 1 names Ilse Varn. Next: who acted as patron to Ilse Varn?"
    """
    drawn = [
        f"{_fill(_draw(FOUND, dice, found), found)} {_fill(_draw(NEXT_HOP, dice, wanted), wanted)}"
        for _ in range(_NUM_DRAWS)
    ]
    return _begin_sentences(min(drawn, key=_excess))


def _begin_sentences(text: str) -> str:
    """Capitals where sentences begin."""
    return re.sub(r"(^|[.?!] )([a-z])", lambda match: match[1] + match[2].upper(), text)


def _excess(text: str, min_words: int = MIN_WORDS, max_words: int = MAX_WORDS) -> int:
    """How many words a thought has too many or too few; the first that fits is the best."""
    num = len(text.split())
    return max(min_words - num, num - max_words, 0)


def _draw(forms: Sequence[str], dice: Dice, slots: Mapping[str, str]) -> str:
    """One of the forms whose slots can be filled, its alternatives settled."""
    usable = [form for form in forms if all(slots.get(slot) for slot in split_slots(form)[1::2])]
    parts = split_forms(dice.pick(usable))
    return "".join(dice.pick(part.split("|")) if number % 2 else part for number, part in enumerate(parts))


def _fill(form: str, slots: Mapping[str, str]) -> str:
    parts = split_slots(form)
    return "".join(slots[part] if number % 2 else part for number, part in enumerate(parts))


def write_query(wording: Wording, mention: str, dice: Dice, asked: Sequence[str] = ()) -> str:
    """A query for this hop that was not asked yet; with each failure it becomes plainer, at last the bare name.

    write_query(Wording("the composer of {X}", "who composed {X}?"), "The Salt Ring", dice) == "composer The Salt Ring"
    """
    forms = _FIRST_QUERY if not asked else _OTHER_QUERY
    return _new_query(forms, wording, mention, "", dice, asked) if len(asked) < 2 else strip_article(mention)


def write_open_query(mention: str, noun: str, dice: Dice) -> str:
    """A query of somebody who does not know yet what there is to find.

    write_open_query("The Salt Ring", "opera", dice) == "opera The Salt Ring"
    """
    return _new_query(_OPEN_QUERY, Wording("", ""), mention, noun, dice, ())


def _new_query(
    forms: Sequence[str], wording: Wording, mention: str, noun: str, dice: Dice, asked: Sequence[str]
) -> str:
    name = strip_article(mention) if dice.chance(50) else mention
    keys = _keywords(dice.pick([form for form in (wording.want, wording.ask) if form] or [""]))
    slots = wording_slots(wording, name) | {"keys": keys, "noun": noun}
    slots["want"] = strip_article(slots["want"])
    slots["ask"] = slots["ask"].rstrip("?")
    for _ in range(_NUM_DRAWS):
        query = _fill(_draw(forms, dice, slots), slots)
        if query not in asked:
            return query
    return strip_article(mention)


def _keywords(form: str) -> str:
    """What is left of a wording without its small words.

    _keywords("the theatre where {X} had its premiere") == "theatre premiere"
    """
    listed = form.replace("{X}", " ").replace("?", " ").replace(",", " ").split()
    return " ".join(word for word in listed if word.lower() not in _PLAIN)
