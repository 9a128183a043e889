"""The solver's attempts at questions, and how many of them are right."""

from __future__ import annotations

from collections.abc import Sequence

from quaere.chat.protocol import Protocol
from quaere.dialects.roles import solver_reward
from quaere.records import Episode, Question, SolveTask
from quaere.rollout.episode import Job


def attempt_jobs(protocol: Protocol, questions: Sequence[Question], num_attempts: int, name: str) -> list[Job]:
    """`num_attempts` episodes per question; those of one question are adjacent.

    attempt_jobs(protocol, [question], 2, "i0-p3")[1].episode_id == "i0-p3-i0-000017-a1"
    """
    return [
        Job(protocol, SolveTask(question), f"{name}-{question.id}-a{number}")
        for question in questions
        for number in range(num_attempts)
    ]


def rights(attempts: Sequence[Episode], min_searches: int = 0) -> list[float]:
    """1.0 per attempt that was right with at least `min_searches` queries that had results, else 0.0: [1.0, 0.0]."""
    return [solver_reward(attempt) * (count_found(attempt) >= min_searches) for attempt in attempts]


def count_found(episode: Episode) -> int:
    """Number of queries of an episode that returned results."""
    return sum(bool(result.hits) for turn in episode.turns for result in turn.results)


def group_attempts(episodes: Sequence[Episode], num_attempts: int) -> list[list[Episode]]:
    """The attempts at each question, without those in which a search failed."""
    groups = [list(episodes[first : first + num_attempts]) for first in range(0, len(episodes), num_attempts)]
    return [[episode for episode in group if not episode.search_failed] for group in groups]
