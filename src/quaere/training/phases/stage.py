"""Where a recipe's phases play episodes: rollouts by role, attempts at questions, and the update at the end."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence

import torch
from msgspec import structs

from quaere.chat.protocol import Protocol
from quaere.dialects.roles import solver_reward
from quaere.errors import TrainingStopped
from quaere.objectives.advantages import Advantages
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode, Question
from quaere.rollout.episode import Job, Limits, make_sample
from quaere.rollout.policy import derive_seed
from quaere.search.searcher import Searcher
from quaere.training.measures import measure_episodes
from quaere.training.phases.attempts import attempt_jobs, group_attempts
from quaere.training.phases.proposals import Proposed, best_samples
from quaere.training.role_play import Played, RolePlay
from quaere.training.step import Step
from quaere.training.token_traces import trace_tokens
from quaere.training.update_seen import measure_update


class Stage:
    """The roles and the search engine they share.

    played = await Stage(actors, searcher).play(step, "proposer", jobs, Limits())
    """

    def __init__(self, actors: RolePlay, searcher: Searcher) -> None:
        self.actors = actors
        self.searcher = searcher

    async def play(
        self,
        step: Step,
        role: str,
        jobs: Sequence[Job],
        limits: Limits,
        *,
        searcher: Searcher | None = None,
        name: str = "",
        params: SamplingParams | None = None,
    ) -> Played:
        """Play episodes as this role and add their metrics, under `name` if given, else under the role.

        Without `params`, the sampling settings of the run are used.
        """
        started = time.perf_counter()
        seed = derive_seed(step.seed, name or role)
        played = await self.actors.play(role, jobs, searcher or self.searcher, limits, seed=seed, params=params)
        step.metrics |= measure_episodes(played.episodes, time.perf_counter() - started, role=name or role)
        step.metrics[f"{name or role}/spoiled"] = float(len(played.spoiled))
        for episode in played.spoiled:
            step.keep(episode, {"episode/spoiled": 1.0})
        return played

    async def attempt(
        self, step: Step, protocol: Protocol, proposals: Sequence[Proposed], num_attempts: int, limits: Limits
    ) -> list[list[Episode]]:
        """The current solver's attempts at every valid question; one list per proposal, empty if it has no question."""
        if not num_attempts:
            return [[] for _ in proposals]
        questions = [item.question for item in proposals if item.question is not None]
        groups = iter(await self.attempt_questions(step, protocol, questions, num_attempts, limits))
        return [next(groups) if item.question is not None else [] for item in proposals]

    async def attempt_questions(
        self, step: Step, protocol: Protocol, questions: Sequence[Question], num_attempts: int, limits: Limits
    ) -> list[list[Episode]]:
        """The current solver's attempts at these questions; one list per question, empty with `num_attempts` 0."""
        if not num_attempts:
            return [[] for _ in questions]
        jobs = attempt_jobs(protocol, questions, num_attempts, step.name)
        played = await self.play(step, "solver", jobs, limits)
        for episode in played.episodes:
            if not episode.search_failed:
                step.keep(episode, {"answer/exact_match": solver_reward(episode)})
        return group_attempts(played.episodes, num_attempts)


def keep_best(step: Step, proposals: Sequence[Proposed], num_samples: int, max_words: int) -> list[Proposed]:
    """The best of every `num_samples` proposals; the others are stored and not used further."""
    best = best_samples(proposals, num_samples, max_words)
    chosen = {item.episode.id for item in best}
    for item in proposals:
        if item.episode.id not in chosen and not item.episode.search_failed:
            step.keep(item.episode, {"format/total": item.score.total})
    return best


def can_be_judged(proposed: Proposed, attempts: Sequence[Episode]) -> bool:
    """True if the proposal can be rewarded.

    It cannot if a search of the proposer failed, or if fewer than two of the solver's attempts had no failed search.
    """
    if proposed.episode.search_failed:
        return False
    return proposed.question is None or len(attempts) >= 2


def learn(
    step: Step,
    episodes: Sequence[Episode],
    advantages: Advantages,
    weigh: Callable[[Episode], Sequence[float]] | None = None,
) -> None:
    """One update on these episodes; none if all advantages are 0.

    `weigh` returns a factor per token that multiplies the episode's advantage.
    """
    values = advantages.values.tolist()
    samples = [
        make_sample(episode, value, weigh(episode) if weigh else None)
        for episode, value in zip(episodes, values, strict=True)
    ]
    if step.measures_update:
        step.metrics |= measure_update(step.learner, samples)
    if any(values):
        trace_tokens(step, samples)
        step.metrics |= step.learner.step(samples)


def shuffled(advantages: Advantages, seed: int) -> Advantages:
    """The advantages assigned to random episodes: a control that must not learn."""
    order = list(range(len(advantages.values)))
    random.Random(seed).shuffle(order)
    return structs.replace(advantages, values=advantages.values[torch.tensor(order, dtype=torch.long)])


def coin(seed: int, number: int) -> float:
    """Random sign: the shuffle control for a single advantage."""
    return 1.0 if derive_seed(seed, "coin", number) % 2 else -1.0


def check_finite(rewards: Sequence[float]) -> None:
    """Raise TrainingStopped if a reward is not finite, before any weight changes."""
    for number, reward in enumerate(rewards):
        if not math.isfinite(reward):
            raise TrainingStopped(f"the reward of episode {number} of the batch is not finite; no weight was changed")
