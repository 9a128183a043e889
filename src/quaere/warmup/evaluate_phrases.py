"""The oracle's evaluations of a search: what was found, or what is still missing.

Slots are those of `phrases.py`, and {S}, the sentence that states the fact, as the passage has it. No form has
quotation marks: inside JSON each would need a backslash before it, which a small model forgets.

No form says more than the policy can know. Only the oracle knows that a passage holds a later fact of the chain, so the
form only says that the passage bears on the question.
"""

from __future__ import annotations

from collections.abc import Mapping

from quaere.warmup import phrases as words
from quaere.warmup.forms import load_forms
from quaere.warmup.search_value import Kind, Verdict
from quaere.worlds.dice import Dice

_FORMS = load_forms("evaluations")

_MAX_NOTE_WORDS = 60
_THOUGHT_PERCENT = 50
_REPEAT_PERCENT = 50

# ---------------------------------------------------------------------------------------------------------- evaluations

_FOUND = _FORMS["found"]
_REFINED = _FORMS["refined"]
_ARTICLE = _FORMS["article"]
_RELATED = _FORMS["related"]
_NAMED = _FORMS["named"]
_MISSING = _FORMS["missing"]

_NOTES: dict[Kind, tuple[str, ...]] = {
    "found": _FOUND,
    "article": _ARTICLE,
    "related": _RELATED,
    "named": _NAMED,
    "missing": _MISSING,
}

# ------------------------------------------------------------------------------------------------------------- thoughts

_BEFORE_GOOD = _FORMS["before_good"]
_BEFORE_PARTLY = _FORMS["before_partly"]
_BEFORE_BAD = _FORMS["before_bad"]
_AGAIN = _FORMS["again"]


def write_note(verdict: Verdict, dice: Dice, slots: Mapping[str, str], *, refined: bool = False) -> str:
    """A note on what a search returned or lacked; `refined` keeps to the facts that help, if there are any.

    write_note(Verdict("found", 2), dice, {"n": "2", "F": "Ilse Varn", "S": "Ilse Varn composed it.", ...})
    -> "Passage 2 says it: Ilse Varn composed it."
    """
    forms = _REFINED if refined and verdict.kind == "found" else _NOTES[verdict.kind]
    return words.write_thought(forms, dice, slots, min_words=1, max_words=_MAX_NOTE_WORDS)


def write_thought_before(verdict: Verdict, dice: Dice, slots: Mapping[str, str]) -> str:
    """A short thought before an evaluation; "" half of the time.

    write_thought_before(Verdict("missing"), dice, {"X": "The Salt Ring", ...}) -> "None of these helps."
    """
    if not dice.chance(_THOUGHT_PERCENT):
        return ""
    forms = {"found": _BEFORE_GOOD, "missing": _BEFORE_BAD}.get(verdict.kind, _BEFORE_PARTLY)
    return words.write_thought(forms, dice, slots, min_words=1)


def write_next_thought(dice: Dice, found: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """A thought on the next search, after what was found has been noted; it is repeated half of the time.

    write_next_thought(dice, {"F": "Ilse Varn", ...}, {"X": "Ilse Varn", ...}) -> "Now I look up Ilse Varn."
    """
    if dice.chance(_REPEAT_PERCENT):
        return words.write_next(dice, found, wanted)
    return words.write_thought(words.NEXT_HOP, dice, wanted)


def write_again_thought(verdict: Verdict, dice: Dice, slots: Mapping[str, str]) -> str:
    """A thought on why to search again: the results were unrelated, or not sufficient."""
    return words.write_thought(words.NOT_FOUND if verdict.kind == "missing" else _AGAIN, dice, slots)
