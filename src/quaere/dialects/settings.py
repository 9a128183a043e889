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
