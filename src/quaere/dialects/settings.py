"""Settings of dialects in which searches are evaluated, and how answers are scored."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from quaere.dialects.evalact.pairs import PairSegment
from quaere.dialects.evalact.prompts import ThinkBeforeEvaluate
from quaere.dialects.evalact.protocol import BadScore
from quaere.errors import BadInput
from quaere.objectives.pcar import BASE, FLOOR, MOST
from quaere.rewards.evaluation import BONUS, NoteMatch

AnswerScore = Literal["own", "exact_match", "f1"]
"""How an answer is scored; `own` is as in the paper that a protocol comes from."""


class EvaluationSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What evaluating one's own searches means and is worth: each ablation of EvalAct and Eval-RAR is one value here.

        EvaluationSettings(base=0.2, most=1.0, floor=0.01)  # the strongest PCAR of the paper; 0.05 and 0.25: weak

    Attributes:
        pcar: evalact: weigh the tokens of each search and its evaluation by the score given; false: all count
            alike. [EvalAct, Eq. 6 to 8]
        base: evalact: strength of PCAR at score 0. [EvalAct, Eq. 7]
        most: evalact: strength of PCAR at score 10. [EvalAct, Eq. 7]
        floor: evalact: least factor, so that an advantage keeps its sign. [EvalAct, Eq. 8]
        segment: evalact: tokens of a step; with_think has the thoughts that lead to its two calls, search_eval
            the calls alone. [EvalAct]
        bad_score: evalact: a score off the scale breaks the format (format_fail), or is moved onto the scale
            (clamp). [EvalAct]
        think_before_evaluate: evalact: thoughts between a search and its evaluation are allowed (allow), or
            break the format (fail). [EvalAct]
        bonus: evalrar, autorefine: reward for notes that hold the right answer where the answer given is wrong.
            [Eval-RAR; AutoRefine]
        contain: evalrar, autorefine: what holding it means; normalised: whole words, without case and
            punctuation; raw: letter for letter. [Quaere]
    """

    pcar: bool = True
    base: float = BASE
    most: float = MOST
    floor: float = FLOOR
    segment: PairSegment = "with_think"
    bad_score: BadScore = "format_fail"
    think_before_evaluate: ThinkBeforeEvaluate = "allow"
    bonus: float = BONUS
    contain: NoteMatch = "normalised"

    def check(self) -> None:
        """Refuse what makes no sense."""
        if not 0 <= self.base <= self.most:
            raise BadInput(f"evaluation: base must lie between 0 and most ({self.most:g}), not {self.base:g}")
        if not 0 < self.floor <= 1:
            raise BadInput(f"evaluation: floor must be above 0 and at most 1, not {self.floor:g}")
        if not 0 <= self.bonus <= 1:
            raise BadInput(f"evaluation: bonus must lie between 0 and 1, not {self.bonus:g}")
