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

from quaere.chat.evalact import format_fault, was_searched
from quaere.chat.prompts import PromptStyle
from quaere.chat.tagged import read_note
from quaere.objectives.pcar import pcar_factors
from quaere.records import Answer, Episode, Malformed, SolveTask, Turn
from quaere.rewards.answers import exact_match_score, f1_score
from quaere.rewards.evaluation import gated_f1_reward, noted_reward
from quaere.rollout.pairs import find_pairs, token_factors
from quaere.training.phases.calibrating import measure_evaluations
from quaere.training.phases.solving import Pay, Solver, SolverConfig, pay_exact_match
from quaere.training.protocols import open_protocol
from quaere.training.settings import AnswerScore, EvaluationSettings, SolverProtocol

DEFAULT = EvaluationSettings()
_OWN: dict[SolverProtocol, AnswerScore] = {"autorefine": "f1", "evalact": "f1"}  # the others pay exact match


def solver_of(config: SolverConfig, style: PromptStyle, *, evidence: bool = False) -> Solver:
    """The solver that a run's config describes.

    solver_of(SolverConfig(protocol="evalrar"), "brief").protocol.name == "evalrar-solver"
    """
    return open_solver(
        config.protocol,
        style=style,
        evidence=evidence,
        settings=config.evaluation,
        answer_score=config.answer_score,
    )


def open_solver(
    protocol: SolverProtocol,
    *,
    style: PromptStyle = "full",
    evidence: bool = False,
    settings: EvaluationSettings = DEFAULT,
    answer_score: AnswerScore = "own",
) -> Solver:
    """The solver of this name; with `evidence` it is asked for the sentence it relies on as well."""
    settings.check()
    asking = open_protocol(protocol, style=style, evidence=evidence, settings=settings)
    score = _OWN.get(protocol, "exact_match") if answer_score == "own" else answer_score
    if protocol == "evalact":
        pay = partial(pay_evaluated, score=score, settings=settings)
        weigh = partial(weigh_pairs, settings=settings) if settings.pcar else None
        return Solver(asking, pay, weigh, measure_evaluations, gated=True)
    if protocol in ("evalrar", "autorefine"):
        return Solver(asking, partial(pay_noted, score=score, settings=settings))
    plain: Pay = pay_f1 if score == "f1" else pay_exact_match
    return Solver(asking, plain)


# -------------------------------------------------------------------------------------------------------------- plain


def pay_f1(episode: Episode) -> dict[str, float]:
    """How much of the answer is right, whatever else was done: for comparing with those who are paid so too."""
    answer, accepted = _answer(episode)
    reward = f1_score(answer, accepted)
    return {"answer/exact_match": exact_match_score(answer, accepted), "answer/f1": reward, "reward/total": reward}


# ------------------------------------------------------------------------------------------------------------ evalact


def pay_evaluated(
    episode: Episode, score: AnswerScore = "f1", settings: EvaluationSettings = DEFAULT
) -> dict[str, float]:
    """F1 if the format held, else 0 (EvalAct, Eq. 4)."""
    answer, accepted = _answer(episode)
    fault = format_fault(episode.turns, episode.end, think_before_evaluate=settings.think_before_evaluate)
    exact = exact_match_score(answer, accepted)
    reward = gated_f1_reward(answer, accepted, fault) if score == "f1" else exact * (not fault)
    paid = {
        "answer/exact_match": exact,
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
    answer, accepted = _answer(episode)
    scores = {"exact_match": exact_match_score(answer, accepted), "f1": f1_score(answer, accepted)}
    notes = [note for note in map(read_note, episode.turns) if note]
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
    return all(read_note(after) for turn, after in pairwise(turns) if was_searched(turn))


def _answer(episode: Episode) -> tuple[str, tuple[str, ...]]:
    """What was answered, "" if nothing was, and what is accepted."""
    assert isinstance(episode.task, SolveTask)
    answer = episode.outcome.text if isinstance(episode.outcome, Answer) else ""
    return answer, episode.task.question.answers
