"""The oracle's scores of a draft, from 0 to 10, computed from its known flaws.

    mark(draft, "factuality")       # 9 without a false claim, 6 with one, 3 with two
    explain(world, draft, dice, shown)  # ("Wrong: the composer of The Salt Ring is Ilse Varn.", "Nothing important.")

Every score is a function of the draft's flaws alone, so equal reports get equal scores at any position, and a report
with one more flaw never gets a higher score.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaere.records import Passage
from quaere.warmup import report_phrases as words_research
from quaere.warmup.findings import is_shown
from quaere.warmup.oracle_reports import Claim, Draft
from quaere.warmup.phrases import write_thought
from quaere.worlds import World
from quaere.worlds.dice import Dice
from quaere.worlds.fact_sentences import name_unknown

_ENOUGH = 6  # facts about the things asked about that make a report complete


def mark(draft: Draft, dimension: str) -> int:
    """The score of a draft on a dimension; a dimension unknown to the oracle is scored like factuality."""
    num_false = sum(claim.flaw == "false" for claim in draft.claims)
    num_right = len(draft.claims) - num_false
    covered = _covered(draft)
    balance = draft.num_treated / draft.num_named
    by_name = {
        "factuality": 9 - 3 * num_false,
        "citation": round(9 * _cited(draft)),
        "coverage": round(1 + 8 * covered),
        "depth": round(1 + 8 * min(1.0, num_right / _ENOUGH)),
        "insight": round(3 + 4 * covered) - num_false,
        "coherence": 8 - num_false,
        "instruction": round(2 + 6 * covered * balance),
        "readability": 8 if len(draft.claims) > 2 else 7,
        "balance": round(1 + 7 * balance) - num_false,
        "uncertainty": (8 if draft.num_gaps else 4) - 2 * num_false,
    }
    return max(0, min(10, by_name.get(dimension, by_name["factuality"])))


def _cited(draft: Draft) -> float:
    """The share of claims that are true and cite a passage that states them."""
    return sum(not claim.flaw for claim in draft.claims) / len(draft.claims)


def _covered(draft: Draft) -> float:
    """The share of known facts about the things asked about that the draft states, of at most `_ENOUGH` facts."""
    return min(1.0, len(draft.covered) / min(_ENOUGH, len(draft.covered) + len(draft.missed)))


def explain(world: World, draft: Draft, dice: Dice, shown: Sequence[Passage]) -> tuple[str, str]:
    """Verification and gaps in a few words; a claim is corrected only if a passage showed the true value."""
    return _verify(world, draft, dice, shown), _miss(world, draft, dice)


def _verify(world: World, draft: Draft, dice: Dice, shown: Sequence[Passage]) -> str:
    said = []
    for claim in draft.claims:
        if claim.flaw == "false":
            said.append(_correct(world, claim, dice, shown))
        elif claim.flaw in ("miscited", "unresolved"):
            forms = words_research.MISCITED if claim.flaw == "miscited" else words_research.UNRESOLVED
            said.append(_write(forms, dice, n=f"[{claim.citations[0]}]"))
    if all(not claim.citations for claim in draft.claims):
        said.append(_write(words_research.UNCITED, dice))
    return " ".join(dict.fromkeys(said)) or _write(words_research.HOLDS, dice)


def _correct(world: World, claim: Claim, dice: Dice, shown: Sequence[Passage]) -> str:
    topic = describe(world, claim.finding.key)
    if is_shown(world, shown, claim.finding.key):
        return _write(words_research.WRONG, dice, claim=topic, right=claim.finding.said)
    return _write(words_research.UNCONFIRMED, dice, claim=topic)


def _miss(world: World, draft: Draft, dice: Dice) -> str:
    if draft.missed and _covered(draft) < 1:
        return _write(words_research.LACKS, dice, claim=describe(world, draft.missed[0]))
    return _write(words_research.COMPLETE, dice)


def describe(world: World, key: tuple[int, str]) -> str:
    """The fact as a phrase without its value: "the composer of The Salt Ring"."""
    return name_unknown(world.graph, *key)


def _write(forms: Sequence[str], dice: Dice, **slots: str) -> str:
    return write_thought(forms, dice, slots, min_words=1, max_words=30)
