"""The oracle's words on what a search was worth: what was found, or what is still missing.

Slots are those of `words.py`, and {S}, the sentence that states the fact, as the passage has it. No form has quotation
marks: inside JSON each would need a stroke before it, which a small model forgets.

No form says more than its reader can know. That a passage holds a later fact of the chain is known to the oracle alone,
so it only says that the passage bears on the question.
"""

from __future__ import annotations

from collections.abc import Mapping

from quaere.warmup import phrases as words
from quaere.warmup.verdicts import Kind, Verdict
from quaere.worlds.dice import Dice
from quaere.worlds.schema import lines

_MAX_NOTE_WORDS = 60
_THOUGHT_PERCENT = 50
_REPEAT_PERCENT = 50

# ---------------------------------------------------------------------------------------------------------- evaluations

_FOUND = lines("""
    Passage {n} [says it|states it|has it|tells]: {S}
    Passage {n} [answers|settles] this[ step|]: {F}. It says: {S}
    [Found|It is there] in passage {n}: {S} [That gives|So it is|That makes it] {F}.
    {S} [So|Thus|Hence] I have {F}, from passage {n}.
    [The sentence I needed|What I was looking for|The fact I needed] [is|stands] in passage {n}: {S}
    {had} is {F}, [says|according to|as stated in] passage {n}.
    {had} is {F}: {S}
    [Exactly|Just] what I [asked|searched] for: passage {n} [gives|names|has] {F}.
    Passage {n} [gives|names|has] {F}, which is what [I was after|was missing|this step needed].
    [Good|Useful|A hit]: on {X}, passage {n} [gives|names|says] {F}.
    On {X} it [says|reads]: {S} [Nothing is missing here|That will do|Clear enough].
    The [question of|search for] {X} is [settled|answered]: {F}, in passage {n}.
    The search [worked|did its job|hit]: {F}, [as|so] passage {n} [says|has it|tells].
    [I can rely on|I take it from|I trust] passage {n} here: {F}.
    {F}. The [proof|evidence|support] is in passage {n}: {S}
""")

_REFINED = lines("""
    {S}
    {S}
    Passage {n}: {S}
    [From|In] passage {n}: {S}
    {had} is {F}.
    {had} is {F} (passage {n}).
    On {X}: {S}
    [Of use|What helps|What counts]: {S}
    {X}: {F}, [says|according to|as in] passage {n}.
    [Kept|To keep]: {F}, from passage {n}.
    {S} [So|Hence] the [fact|name] I need is {F}.
""")

_ARTICLE = lines("""
    Passage {n} is [close|near|the right place], but [the fact|what I need|the sentence] is not in it: {ask}
    The [right article|article I need] [seems to be|may well be] passage {n}, yet [no word of|it lacks] {want}.
    Passage {n} [looks|seems] right and [stops short of|does not give|leaves out] {want}.
    [Only part of|Half of] what I need: passage {n} fits, but {want} is [missing|not said].
    [Partly useful|A start]: passage {n}. [Missing|Still open]: {ask}
    Passage {n} [bears on|fits] this, but does not [tell|say]: {ask}
""")

_RELATED = lines("""
    Passage {n} bears on the question, but {want} is [missing|not there|not said].
    Passage {n} [may be of use|belongs to this|helps a little], but not for this: {ask}
    [Partly useful|Of some use|Related]: passage {n}. {want} is [still missing|not among this].
    [Something|A little] to go on in passage {n}, yet [nothing on|no word of] {want}.
    Passage {n} is about [the same matter|what I am after|this chain], but leaves [open|out]: {ask}
    [Near|Close], in passage {n}. What is [lacking|missing] is {want}.
""")

_NAMED = lines("""
    Passage {n} [mentions|names|speaks of] {X}, but not {want}.
    {X} [is named|is mentioned|comes up] in passage {n}, [no more|nothing else|without the fact I need].
    The name {X} [is there|turns up], in passage {n}, but it does not [say|tell]: {ask}
    [Only|No more than] a mention of {X}, in passage {n}. [Missing|Still open]: {ask}
    Passage {n} [touches on|refers to] {X}; {want} is [not given|missing|left out].
    [Some use|Half a hit|A trace]: passage {n} has {X}, and [lacks|not] {want}.
    [Related|Near it], since passage {n} names {X}. I still [lack|need|miss] {want}.
""")

_MISSING = lines("""
    [Nothing|Not a word|No word] [on|about] {X}. Missing: {ask}
    [None|Not one] of [these|the passages] [is about|names|mentions] {X}.
    These [passages|articles|texts] are about [other|different] things; {want} is [missing|not there].
    {X} does not [come up|appear|occur] [here|in any passage|at all]. Still [missing|open]: {ask}
    [No use|Of no use|No help]: {X} is not [named|mentioned] [anywhere|at all|in these].
    [Wrong|Other] articles [came back|were found], none on {X}.
    [Missing|Lacking|Not found]: {want}. [These passages|They] [do not even name|never name] {X}.
    The search [missed|went astray|failed]: [no|not one] passage [names|has|mentions] {X}.
    I still [need|lack] {want}; [nothing|none of this] [helps|bears on it].
    Still unknown: {ask} Nothing [here|in these passages] tells.
    [Off the mark|Beside the point|Useless]: no passage [names|concerns] {X}.
""")

_NOTES: dict[Kind, tuple[str, ...]] = {
    "found": _FOUND,
    "article": _ARTICLE,
    "related": _RELATED,
    "named": _NAMED,
    "missing": _MISSING,
}

# ------------------------------------------------------------------------------------------------------------- thoughts

_BEFORE_GOOD = lines("""
    Passage {n} [has it|says it|tells it].
    [That|This] is what I [need|wanted|searched for].
    [Good|Fine|There], passage {n} [fits|is the one].
    The fact [is there|is here|came back], in passage {n}.
    [Let me|I] [note|write down|weigh] what passage {n} gives.
    A good [search|result].
""")

_BEFORE_PARTLY = lines("""
    [Close|Near], but not [quite it|the fact|enough].
    [Some|A little] of this helps, not all.
    Passage {n} is [something|a start|near], no more.
    The fact itself is [not there|missing].
    [Half|Part] of what I need.
""")

_BEFORE_BAD = lines("""
    [That|This] is not it.
    None of these [fits|helps|will do].
    [Other|The wrong] things came back.
    No sign of {X} [here|in these].
    A poor [search|result]; I say so.
    I do not see it [here|in any of these].
""")

_AGAIN = lines("""
    [Not the fact itself|Not quite it|Close, not enough]. I [ask|search] for {X} in other words.
    I still [need|lack|miss] {want}. [Other|Plainer|Fewer] words, then.
    [Again|Once more], for {X}, [worded differently|in other words].
    [What is missing|Still open]: {ask} I [rephrase|try again|search again].
    A mention is not enough. [Let me|I will] [search|ask] again for {X}.
    The [fact|sentence] itself is missing. I [try|use] other words for {X}.
    [Nearer|Closer] now, but I [have to|must] search again for {X}.
""")


def write_note(verdict: Verdict, dice: Dice, slots: Mapping[str, str], *, refined: bool = False) -> str:
    """What a search brought, or lacked; `refined` keeps to the facts that help, where there are any.

    write_note(Verdict("found", 2), dice, {"n": "2", "F": "Ilse Varn", "S": "Ilse Varn composed it.", ...})
    -> "Passage 2 says it: Ilse Varn composed it."
    """
    forms = _REFINED if refined and verdict.kind == "found" else _NOTES[verdict.kind]
    return words.write_thought(forms, dice, slots, min_words=1, max_words=_MAX_NOTE_WORDS)


def write_thought_before(verdict: Verdict, dice: Dice, slots: Mapping[str, str]) -> str:
    """A short thought before an evaluation; "" every other time.

    write_thought_before(Verdict("missing"), dice, {"X": "The Salt Ring", ...}) -> "None of these helps."
    """
    if not dice.chance(_THOUGHT_PERCENT):
        return ""
    forms = {"found": _BEFORE_GOOD, "missing": _BEFORE_BAD}.get(verdict.kind, _BEFORE_PARTLY)
    return words.write_thought(forms, dice, slots, min_words=1)


def write_next_thought(dice: Dice, found: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """What comes next, where what was found has been said already: it is repeated every other time.

    write_next_thought(dice, {"F": "Ilse Varn", ...}, {"X": "Ilse Varn", ...}) -> "Now I look up Ilse Varn."
    """
    if dice.chance(_REPEAT_PERCENT):
        return words.write_next(dice, found, wanted)
    return words.write_thought(words.NEXT_HOP, dice, wanted)


def write_again_thought(verdict: Verdict, dice: Dice, slots: Mapping[str, str]) -> str:
    """Why to search once more: what came back had nothing to do with it, or not enough."""
    return words.write_thought(words.NOT_FOUND if verdict.kind == "missing" else _AGAIN, dice, slots)
