"""The oracle's evaluation of a search: its true value by the results that the policy can read, and the words for it.

    verdict = weigh_search(chain, at=0, turn=turn, news=news)      # Verdict(kind="found", rank=2)
    verdict.draw_score(dice)                                       # 8, 9 or 10
    write_note(verdict, dice, slots)                               # "Passage 2 says it: Ilse Varn composed it."

The oracle knows the fact it was looking for, so its scores are correct: high only if the sentence that states the fact
was shown, low if not even the thing's name was.

Slots are those of `phrases.py`, and {S}, the sentence that states the fact as the passage has it. No form has quotation
marks: inside JSON each would need a backslash before it, which a small model forgets. No form says more than the policy
can know: that a passage holds a later fact of the chain is known to the oracle alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from quaere.records import Passage, Turn
from quaere.rewards.format import contains
from quaere.warmup import phrases as words
from quaere.worlds import Hop
from quaere.worlds.dice import Dice
from quaere.worlds.names import strip_article

Kind = Literal["found", "article", "related", "named", "missing"]

# The scores of a kind stay within one tier of the environment's cue (above 7, above 3, up to 3), so that a kind always
# gets the same advice.
_SCORES: dict[Kind, tuple[int, ...]] = {
    "found": (8, 9, 10),
    "article": (5, 6),
    "related": (4, 5, 6),
    "named": (4, 5),
    "missing": (0, 1, 2, 3),
}
_FORMS = words.load_forms("evaluations")
_MAX_NOTE_WORDS = 60
_THOUGHT_PERCENT = 50
_REPEAT_PERCENT = 50
_HEAD_CHARS = 60  # first characters of a passage that show whether it was shown or cut off


class Verdict(Struct, frozen=True):
    """How much of the wanted fact a search returned, and the rank of the passage.

    found     the sentence that states the fact
    article   the article it stands in, without the sentence
    related   another fact of the chain
    named     the thing is mentioned, no more
    missing   none of it; there is no passage to point at, so the rank is 0

        Verdict(kind="named", rank=3)
    """

    kind: Kind
    rank: int = 0

    def draw_score(self, dice: Dice) -> int:
        """A score from 0 to 10 that fits this kind."""
        return dice.pick(_SCORES[self.kind])


def weigh_search(chain: Sequence[Hop], at: int, turn: Turn, news: str) -> Verdict:
    """The value of the search in this turn for hop `at`; `news` is the turn and all that was shown after it.

    A passage that the search returned but the reply cut off was not shown and does not count.
    """
    hop, reply = chain[at], _flat(news.partition(turn.text)[2] or news)
    passages = [hit.passage for result in turn.results for hit in result.hits]
    others = [other for number, other in enumerate(chain) if number != at]
    name = strip_article(hop.mention)
    tests: list[tuple[Kind, list[bool]]] = [
        ("found", [_states(passage, hop, reply) for passage in passages]),
        ("article", [passage.doc_id == hop.evidence.doc_id and _is_shown(passage, reply) for passage in passages]),
        ("related", [any(_states(passage, other, reply) for other in others) for passage in passages]),
        ("named", [_is_shown(passage, reply) and contains(passage.titled_text, name) for passage in passages]),
    ]
    for kind, held in tests:
        if any(held) and (kind != "named" or contains(reply, name)):
            return Verdict(kind, held.index(True) + 1)
    return Verdict("missing")


def _states(passage: Passage, hop: Hop, reply: str) -> bool:
    sentence = _flat(hop.evidence.text)
    return passage.doc_id == hop.evidence.doc_id and sentence in _flat(passage.text) and sentence in reply


def _is_shown(passage: Passage, reply: str) -> bool:
    return _flat(passage.text[:_HEAD_CHARS]) in reply


def _flat(text: str) -> str:
    """The text with single spaces: decoding tokens may change white space."""
    return " ".join(text.split())


def write_note(verdict: Verdict, dice: Dice, slots: Mapping[str, str], *, refined: bool = False) -> str:
    """A note on what a search returned or lacked; `refined` keeps to the facts that help, if there are any.

    write_note(Verdict("found", 2), dice, {"n": "2", "F": "Ilse Varn", "S": "Ilse Varn composed it.", ...})
    -> "Passage 2 says it: Ilse Varn composed it."
    """
    name = "refined" if refined and verdict.kind == "found" else verdict.kind
    return words.write_thought(_FORMS[name], dice, slots, min_words=1, max_words=_MAX_NOTE_WORDS)


def write_thought_before(verdict: Verdict, dice: Dice, slots: Mapping[str, str]) -> str:
    """A short thought before an evaluation; "" half of the time.

    write_thought_before(Verdict("missing"), dice, {"X": "The Salt Ring", ...}) -> "None of these helps."
    """
    if not dice.chance(_THOUGHT_PERCENT):
        return ""
    name = {"found": "before_good", "missing": "before_bad"}.get(verdict.kind, "before_partly")
    return words.write_thought(_FORMS[name], dice, slots, min_words=1)


def write_next_thought(dice: Dice, found: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """A thought on the next search, after what was found has been noted; it is repeated half of the time.

    write_next_thought(dice, {"F": "Ilse Varn", ...}, {"X": "Ilse Varn", ...}) -> "Now I look up Ilse Varn."
    """
    if dice.chance(_REPEAT_PERCENT):
        return words.write_next(dice, found, wanted)
    return words.write_thought(words.THOUGHTS["next_hop"], dice, wanted)


def write_again_thought(verdict: Verdict, dice: Dice, slots: Mapping[str, str]) -> str:
    """A thought on why to search again: the results were unrelated, or not sufficient."""
    forms = words.THOUGHTS["not_found"] if verdict.kind == "missing" else _FORMS["again"]
    return words.write_thought(forms, dice, slots)
