"""Settings of dialects in which the policy evaluates its searches, and the choice of answer score."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from quaere.dialects.evalact.pairs import PairSegment
from quaere.dialects.evalact.prompts import ThinkBeforeEvaluate
from quaere.dialects.evalact.protocol import BadScore
from quaere.errors import BadInput
from quaere.objectives.pcar import BASE, FLOOR, MOST
from quaere.rewards.self_evaluation import BONUS, NoteMatch
from quaere.setting_types import Fraction, NonNegativeFloat, PositiveFraction, check_settings

AnswerScore = Literal["own", "exact_match", "f1"]
"""How an answer is scored; `own` is the score used in the paper that the dialect comes from."""


class EvaluationSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of self-evaluated searches and their reward; every ablation of EvalAct and Eval-RAR is one value.

        EvaluationSettings(base=0.2, most=1.0, floor=0.01)  # the strongest PCAR of the paper; 0.05 and 0.25: weak

    Attributes:
        pcar: evalact: scale the advantages of each search's and its evaluation's tokens by the score given; false:
            all tokens count alike. [EvalAct, Eq. 6 to 8]
        base: evalact: strength of PCAR at score 0. [EvalAct, Eq. 7]
        most: evalact: strength of PCAR at score 10. [EvalAct, Eq. 7]
        floor: evalact: least factor, so that an advantage keeps its sign. [EvalAct, Eq. 8]
        segment: evalact: tokens that a score applies to; with_think: both calls with the thoughts before them;
            search_eval: the calls alone. [EvalAct]
        bad_score: evalact: a score off the scale breaks the format (format_fail), or is replaced by the nearest
            valid one (clamp). [EvalAct]
        think_before_evaluate: evalact: thoughts between a search and its evaluation are allowed (allow), or
            break the format (fail). [EvalAct]
        bonus: evalrar, autorefine: reward for notes that contain the right answer when the given answer is wrong.
            [Eval-RAR; AutoRefine]
        contain: evalrar, autorefine: how a note is matched with the right answer; normalised: whole words, without
            case and punctuation; raw: letter for letter. [Quaere]
    """

    pcar: bool = True
    base: NonNegativeFloat = BASE
    most: NonNegativeFloat = MOST
    floor: PositiveFraction = FLOOR  # at or below 0 an advantage could vanish or change its sign
    segment: PairSegment = "with_think"
    bad_score: BadScore = "format_fail"
    think_before_evaluate: ThinkBeforeEvaluate = "allow"
    bonus: Fraction = BONUS
    contain: NoteMatch = "normalised"

    def check(self, section: str = "evaluation") -> None:
        """Raise `BadInput` for values out of bounds and `base` above `most`; `section` prefixes names."""
        check_settings(self, section)
        if self.base > self.most:
            raise BadInput(f"{section}.base must be at most {section}.most ({self.most:g}), not {self.base:g}")
