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
from quaere.setting_types import Fraction, NonNegativeFloat, PositiveFraction, check_settings

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
    base: NonNegativeFloat = BASE
    most: NonNegativeFloat = MOST
    floor: PositiveFraction = FLOOR  # at 0 an advantage could vanish or change its sign
    segment: PairSegment = "with_think"
    bad_score: BadScore = "format_fail"
    think_before_evaluate: ThinkBeforeEvaluate = "allow"
    bonus: Fraction = BONUS
    contain: NoteMatch = "normalised"

    def check(self, section: str = "evaluation") -> None:
        """Refuse values out of bounds, and a `base` above `most`; `section` is how the user names these settings."""
        check_settings(self, section)
        if self.base > self.most:
            raise BadInput(f"{section}.base must be at most {section}.most ({self.most:g}), not {self.base:g}")
