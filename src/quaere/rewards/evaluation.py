"""What those are paid who judge what they found: EvalAct's gated F1, and the notes of Eval-RAR and AutoRefine.

    R = R_answer if R_answer > 0, else 0.1 if a right answer stands in the notes, else 0

Eval-RAR's R_answer is exact match (Eq. 2-5), AutoRefine's is F1. Notes are what the policy itself wrote about the
passages a search brought back; the caller has read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from quaere.rewards.answers import f1_score
from quaere.rewards.format import contains

NoteMatch = Literal["normalised", "raw"]

BONUS = 0.1


class NotedReward(Struct, frozen=True):
    """The parts of the reward: for the answer, for the notes (whether or not it is paid), and what is paid.

    NotedReward(answer=0.0, note=0.1, total=0.1)
    """

    answer: float
    note: float
    total: float


def noted_reward(
    answer_score: float,
    notes: str | Sequence[str],
    accepted: Iterable[str],
    *,
    bonus: float = BONUS,
    contain: NoteMatch = "normalised",
) -> NotedReward:
    """The score of the answer if it has any, else a bonus for notes that hold an accepted answer.

    All notes count as one text. `normalised` looks for the answer by whole words, without case and punctuation; `raw`
    looks for its very characters. An answer that is only white space stands nowhere. Without an answer the score is 0,
    and the bonus can still be earned.

        noted_reward(0.0, ["Passage 2: orsolya venn."], ["Orsolya Venn"]) -> NotedReward(0.0, 0.1, 0.1)
        noted_reward(0.0, ["Passage 2: orsolya venn."], ["Orsolya Venn"], contain="raw") -> NotedReward(0.0, 0.0, 0.0)
        noted_reward(0.04, ["Orsolya Venn"], ["Orsolya Venn"]) -> NotedReward(0.04, 0.1, 0.04)
    """
    for name, value in (("an answer's score", answer_score), ("a bonus", bonus)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} is from 0 to 1, not {value}")
    text = notes if isinstance(notes, str) else "\n".join(notes)
    note = bonus if any(_stands_in(text, answer, contain) for answer in accepted) else 0.0
    return NotedReward(answer=answer_score, note=note, total=answer_score if answer_score > 0 else note)


def _stands_in(text: str, answer: str, contain: NoteMatch) -> bool:
    if contain == "normalised":
        return contains(text, answer)
    if contain == "raw":
        return bool(answer.strip()) and answer in text
    raise ValueError(f"contain is 'normalised' or 'raw', not {contain!r}")


def gated_f1_reward(answer: str, accepted: Iterable[str], fault: str) -> float:
    """F1 of the answer where the format was kept (`fault` is ""), else 0. No answer, "", earns nothing.

    gated_f1_reward("Halm bridge", ["old Halm bridge"], "") -> 0.8
    gated_f1_reward("Halm bridge", ["old Halm bridge"], "a search was not evaluated") -> 0.0
    """
    return f1_score(answer, accepted) if answer.strip() and not fault else 0.0
