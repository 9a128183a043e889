"""The true value of an oracle's search, decided by the results that the policy can read.

    verdict = weigh_search(chain, at=0, turn=turn, news=news)      # Verdict(kind="found", rank=2)
    verdict.draw_score(dice)                                       # 8, 9 or 10

The oracle knows the fact it was looking for, so its scores are correct: high only if the sentence that states the fact
was shown, low if not even the thing's name was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from quaere.records import Passage, Turn
from quaere.rewards.format import contains
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
