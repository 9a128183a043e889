"""The ways of solving that can be trained: how each is spoken to and what it pays.

tool-call     JSON calls, as in Dr. Zero                      exact match
search-r1     tags                                            exact match
autorefine    tags, notes on what was found                   F1, or else a bonus for notes that hold the answer
evalrar       tags, an evaluation of what was found           exact match, or else the same bonus
evalact       JSON calls, every search evaluated and scored   F1 if the format holds; tokens weighed by the scores

solver = open_solver("evalact", style="brief", settings=EvaluationSettings(pcar=False))
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from quaere.chat.prompts import PromptStyle
from quaere.chat.toolcall import ToolCallSolver
from quaere.errors import BadInput
from quaere.objectives.pcar import BASE, FLOOR, MOST, pcar_factors
from quaere.records import Answer, Episode, Malformed, Search, SolveTask, Turn
from quaere.rewards.answers import exact_match_score, f1_score
from quaere.rollout.pairs import PairSegment, find_pairs, token_factors, was_searched
from quaere.training.phases.calibrating import measure_evaluations
from quaere.training.phases.solving import Solver

SolverProtocol = Literal["tool-call", "search-r1", "autorefine", "evalrar", "evalact"]
AnswerScore = Literal["exact_match", "f1"]


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
    bad_score: Literal["format_fail", "clamp"] = "format_fail"
    think_before_evaluate: Literal["allow", "fail"] = "allow"
    bonus: float = 0.1
    contain: Literal["normalised", "raw"] = "normalised"

    def check(self) -> None:
        """Refuse what makes no sense."""
        if not 0 <= self.base <= self.most:
            raise BadInput(f"evaluation: base must lie between 0 and most ({self.most:g}), not {self.base:g}")
        if not 0 < self.floor <= 1:
            raise BadInput(f"evaluation: floor must be above 0 and at most 1, not {self.floor:g}")
        if not 0 <= self.bonus <= 1:
            raise BadInput(f"evaluation: bonus must lie between 0 and 1, not {self.bonus:g}")


DEFAULT = EvaluationSettings()


def open_solver(
    protocol: SolverProtocol,
    *,
    style: PromptStyle = "full",
    evidence: bool = False,
    settings: EvaluationSettings = DEFAULT,
) -> Solver:
    """The solver of this name; with `evidence` it is asked for the sentence it relies on as well."""
    settings.check()
    if protocol == "tool-call":
        return Solver(ToolCallSolver(style=style, evidence=evidence))
    if protocol == "evalact":
        return _open_evalact(style, evidence, settings)
    from quaere.chat.tagged import TagSolver

    asking = TagSolver(protocol, style=style, evidence=evidence)
    if protocol == "search-r1":
        return Solver(asking)
    score: AnswerScore = "f1" if protocol == "autorefine" else "exact_match"
    return Solver(asking, partial(pay_noted, score=score, settings=settings))


def _open_evalact(style: PromptStyle, evidence: bool, settings: EvaluationSettings) -> Solver:
    from quaere.chat.evalact import EvaluateSolver

    asking = EvaluateSolver(
        style=style,
        evidence=evidence,
        bad_score=settings.bad_score,
        think_before_evaluate=settings.think_before_evaluate,
    )
    weigh = partial(weigh_pairs, settings=settings) if settings.pcar else None
    return Solver(asking, partial(pay_evaluated, settings=settings), weigh, measure_evaluations)


# ------------------------------------------------------------------------------------------------------------ evalact


def pay_evaluated(episode: Episode, settings: EvaluationSettings = DEFAULT) -> dict[str, float]:
    """F1 if the format held, else 0 (EvalAct, Eq. 4)."""
    from quaere.chat.evalact import format_fault
    from quaere.rewards.evaluation import gated_f1_reward

    answer, accepted = _answer(episode)
    fault = format_fault(episode.turns, episode.end, think_before_evaluate=settings.think_before_evaluate)
    reward = gated_f1_reward(answer, accepted, fault)
    paid = {
        "answer/exact_match": exact_match_score(answer, accepted),
        "answer/f1": f1_score(answer, accepted),
        "reward/answer": reward,
        "reward/total": reward,
        "format/held": float(not fault),
    }
    scores = [pair.score for pair in find_pairs(episode)]
    return paid | ({"evaluate/mean_score": sum(scores) / len(scores)} if scores else {})


def weigh_pairs(episode: Episode, settings: EvaluationSettings = DEFAULT) -> list[float]:
    """What each token counts, by the scores the policy gave its searches (PCAR); 1 outside of any search."""
    scores = [pair.score for pair in find_pairs(episode, settings.segment)]
    factors = pcar_factors(scores, base=settings.base, most=settings.most, floor=settings.floor)
    return token_factors(episode, factors, settings.segment)


# ------------------------------------------------------------------------------------------------------------- tagged


def pay_noted(
    episode: Episode, score: AnswerScore = "exact_match", settings: EvaluationSettings = DEFAULT
) -> dict[str, float]:
    """The answer's score or, if that is 0, a bonus where a note holds an accepted answer (Eval-RAR, Eq. 2 to 5).

    `reward/note` is what the notes are worth, whether or not the answer's score took their place in the total.
    """
    from quaere.rewards.evaluation import noted_reward

    answer, accepted = _answer(episode)
    scores = {"exact_match": exact_match_score(answer, accepted), "f1": f1_score(answer, accepted)}
    notes = [note for note in map(_note, episode.turns) if note]
    reward = noted_reward(scores[score], notes, accepted, bonus=settings.bonus, contain=settings.contain)
    return {
        "answer/exact_match": scores["exact_match"],
        "answer/f1": scores["f1"],
        "reward/answer": reward.answer,
        "reward/note": reward.note,
        "reward/total": reward.total,
        "format/held": float(notes_searches(episode.turns)),
    }


def notes_searches(turns: Sequence[Turn]) -> bool:
    """Could every turn be read, and was what each search returned noted in the turn after it?"""
    if any(isinstance(turn.action, Malformed) for turn in turns):
        return False
    return all(_note(after) for turn, after in pairwise(turns) if was_searched(turn))


def _note(turn: Turn) -> str:
    return turn.action.note.strip() if isinstance(turn.action, Search | Answer | Malformed) else ""


def _answer(episode: Episode) -> tuple[str, tuple[str, ...]]:
    """What was answered, "" if nothing was, and what is accepted."""
    assert isinstance(episode.task, SolveTask)
    answer = episode.outcome.text if isinstance(episode.outcome, Answer) else ""
    return answer, episode.task.question.answers
