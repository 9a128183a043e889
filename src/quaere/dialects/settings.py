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

    `pcar` to `think_before_evaluate` are for evalact, `bonus` and `contain` for evalrar and autorefine.

        pcar=false                    tokens all count alike
        base=0.05 most=0.25           weaker; base=0.2 most=1 floor=0.01 is the strongest of the paper
        segment=search_eval           thoughts do not belong to the step they lead to
        bad_score=clamp               a score off the scale is moved onto it
        think_before_evaluate=fail    thoughts between a search and its evaluation break the format
        bonus=0                       no reward for evaluations (or notes) that hold the answer
        contain=raw                   they must hold it letter for letter
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
