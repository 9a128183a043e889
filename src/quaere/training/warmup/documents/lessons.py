"""A solver's own right episodes on checked questions, to learn from (rejection sampling).

    played = await play_own(policy, searcher, questions, "eve", ToolCallSolver(evidence=True), Limits())
    played.episodes     # at most one for each question: right, by its dialect's rules, and searched as often as needed

Nothing in them is written by an oracle or a teacher, and nothing is labelled: what is right was checked against the
person's own documents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quaere.chat.protocol import Protocol
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode, Search
from quaere.rollout.episode import Limits
from quaere.rollout.many import run_many
from quaere.rollout.policy import Policy
from quaere.search.searcher import Searcher
from quaere.training.phases.attempting import attempt_jobs, group_attempts
from quaere.training.warmup.demonstration import Demonstrations, judge
from quaere.training.warmup.dialects import Dialect
from quaere.training.warmup.documents.writer import CheckedQuestion


async def play_own(
    policy: Policy,
    searcher: Searcher,
    questions: Sequence[CheckedQuestion],
    dialect: Dialect,
    protocol: Protocol,
    limits: Limits,
    *,
    attempts: int = 4,
    seed: int = 0,
    concurrency: int = 32,
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> Demonstrations:
    """Attempt every question, and keep its shortest good episode; the counter says why others were dropped."""
    jobs = attempt_jobs(protocol, [question.to_question() for question in questions], attempts, "own")
    episodes: list[Episode] = []
    async for episode in run_many(
        policy, jobs, searcher, limits, seed=seed, params=SamplingParams(temperature=1.0), concurrency=concurrency
    ):
        episodes.append(episode)
        on_episode(episode)
    played = Demonstrations()
    for question, group in zip(questions, group_attempts(episodes, attempts), strict=True):
        good = [episode for episode in group if not _note_fault(episode, question, dialect, played)]
        if good:
            played.episodes.append(min(good, key=lambda episode: len(episode.turns)))
    return played


def count_searches(episode: Episode) -> int:
    """How many queries were carried out."""
    return sum(len(turn.results) for turn in episode.turns if isinstance(turn.action, Search))


def _note_fault(episode: Episode, question: CheckedQuestion, dialect: Dialect, played: Demonstrations) -> str:
    fault = judge(episode, "solver", dialect)
    if not fault and count_searches(episode) < question.searches:
        fault = "fewer searches than needed"
    if fault:
        played.dropped[fault] += 1
    return fault
