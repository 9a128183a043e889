"""Reward of an episode in EvalAct's dialect, and the factors of its token advantages (PCAR)."""

from __future__ import annotations

from quaere.dialects.evalact.pairs import find_pairs, token_factors
from quaere.dialects.evalact.protocol import format_fault
from quaere.dialects.settings import AnswerScore, EvaluationSettings
from quaere.dialects.solver_dialect import read_outcome
from quaere.objectives.pcar import pcar_factors
from quaere.records import Episode
from quaere.rewards.answers import exact_match_score, f1_score
from quaere.rewards.self_evaluation import gated_f1_reward

DEFAULT = EvaluationSettings()


def pay_evaluated(
    episode: Episode, score: AnswerScore = "f1", settings: EvaluationSettings = DEFAULT
) -> dict[str, float]:
    """The reward and its components: F1 if the format held, else 0 (EvalAct, Eq. 4)."""
    answer, accepted = read_outcome(episode)
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
    """A factor per token for its advantage, from the policy's scores of its searches (PCAR); 1 outside of pairs."""
    scores = [pair.score for pair in find_pairs(episode, settings.segment)]
    factors = pcar_factors(scores, base=settings.base, most=settings.most, floor=settings.floor)
    return token_factors(episode, factors, settings.segment)
