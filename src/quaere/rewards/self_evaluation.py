"""Rewards of solvers that assess their searches: EvalAct's gated F1, and the note bonus of Eval-RAR and AutoRefine.

    R = R_answer if R_answer > 0, else 0.1 if the notes contain an accepted answer, else 0

Eval-RAR's R_answer is exact match (Eq. 2-5), AutoRefine's is F1. Notes are the policy's own text about the passages it
found; the caller has extracted them.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from quaere.rewards.answers import f1_score
from quaere.rewards.format import contains

NoteMatch = Literal["normalised", "raw"]

BONUS = 0.1


class NotedReward(Struct, frozen=True):
    """A reward and its parts: for the answer, for the notes (also where it is not part of the total), and the total.

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
    """The answer's score if it is above 0, else a bonus if the notes contain an accepted answer.

    All notes are joined to one text. `contain="normalised"` looks for the answer as whole words, ignoring case and
    punctuation; `contain="raw"` looks for its exact characters. An answer of white space only is never found. A missing
    answer has the score 0, and its notes can still earn the bonus.

        noted_reward(0.0, ["Passage 2: orsolya venn."], ["Orsolya Venn"]) -> NotedReward(0.0, 0.1, 0.1)
        noted_reward(0.0, ["Passage 2: orsolya venn."], ["Orsolya Venn"], contain="raw") -> NotedReward(0.0, 0.0, 0.0)
        noted_reward(0.04, ["Orsolya Venn"], ["Orsolya Venn"]) -> NotedReward(0.04, 0.1, 0.04)
    """
    for name, value in (("an answer's score", answer_score), ("a bonus", bonus)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be from 0 to 1, not {value}")
    text = notes if isinstance(notes, str) else "\n".join(notes)
    note = bonus if any(_stands_in(text, answer, contain) for answer in accepted) else 0.0
    return NotedReward(answer=answer_score, note=note, total=answer_score if answer_score > 0 else note)


def _stands_in(text: str, answer: str, contain: NoteMatch) -> bool:
    if contain == "normalised":
        return contains(text, answer)
    if contain == "raw":
        return bool(answer.strip()) and answer in text
    raise ValueError(f"contain must be 'normalised' or 'raw', not {contain!r}")


def gated_f1_reward(answer: str, accepted: Iterable[str], fault: str) -> float:
    """F1 of the answer if the format was kept (`fault` is ""), else 0 (EvalAct). An empty answer earns 0.

    gated_f1_reward("Halm bridge", ["old Halm bridge"], "") -> 0.8
    gated_f1_reward("Halm bridge", ["old Halm bridge"], "a search was not evaluated") -> 0.0
    """
    return f1_score(answer, accepted) if answer.strip() and not fault else 0.0
