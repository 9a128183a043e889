"""Reward of an episode with notes on its searches: Eval-RAR's evaluations, AutoRefine's refined facts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from quaere.chat.protocol import was_searched
from quaere.dialects.settings import AnswerScore, EvaluationSettings
from quaere.dialects.solver_dialect import read_outcome
from quaere.dialects.tagged.protocol import read_note
from quaere.records import Episode, Malformed, Turn
from quaere.rewards.answers import exact_match_score, f1_score
from quaere.rewards.self_evaluation import noted_reward

DEFAULT = EvaluationSettings()


def pay_noted(
    episode: Episode, score: AnswerScore = "exact_match", settings: EvaluationSettings = DEFAULT
) -> dict[str, float]:
    """The answer's score or, if that is 0, a bonus if a note contains an accepted answer (Eval-RAR, Eq. 2 to 5).

    `reward/note` is the bonus of the notes, also where the answer's score replaced it in `reward/total`.
    """
    answer, accepted = read_outcome(episode)
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
    """True if every turn could be read and the turn after each executed search has a note."""
    if any(isinstance(turn.action, Malformed) for turn in turns):
        return False
    return all(read_note(after) for turn, after in pairwise(turns) if was_searched(turn))
