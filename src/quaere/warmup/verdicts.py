"""What a search of the oracle was really worth, decided by what came back and could be read.

    verdict = weigh_search(chain, at=0, turn=turn, news=news)      # Verdict(kind="found", rank=2)
    verdict.draw_score(dice)                                       # 8, 9 or 10

The oracle knows the fact it was looking for, so its scores are honest: high only where the sentence that states the
fact was shown, low where not even the name of the thing was.
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

# Each kind keeps within one tier of the environment's cue: above 7, above 3, up to 3.
_SCORES: dict[Kind, tuple[int, ...]] = {
    "found": (8, 9, 10),
    "article": (5, 6),
    "related": (4, 5, 6),
    "named": (4, 5),
    "missing": (0, 1, 2, 3),
}
_HEAD_CHARS = 60  # of a passage, by which to tell whether it was shown or fell to a cut


class Verdict(Struct, frozen=True):
    """How much of what was looked for came back, and in which passage.

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
        """A score from 0 to 10 that fits."""
        return dice.pick(_SCORES[self.kind])


def weigh_search(chain: Sequence[Hop], at: int, turn: Turn, news: str) -> Verdict:
    """What the search in this turn was worth for hop `at`; `news` is the turn and all that was shown after it.

    A passage that the search returned and the reply cut off was not shown, and counts for nothing.
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
    """Tokenizers do not agree on white space."""
    return " ".join(text.split())
