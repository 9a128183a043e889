"""Many episodes at once over one batching policy.

jobs = [Job(ToolCallSolver(), SolveTask(question)) for question in questions]
async for episode in run_many(policy, jobs, searcher, Limits(), seed=7): ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from msgspec import Struct

from quaere.chat.protocol import Protocol
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode, Task, Turn
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import Policy, derive_seed
from quaere.search.searcher import Searcher


class Job(Struct, frozen=True):
    """An episode to run; `limits` and `seed` override those of `run_many`.

    Job(protocol=ToolCallSolver(), task=SolveTask(...), episode_id="q1-0")
    """

    protocol: Protocol
    task: Task
    episode_id: str = ""
    limits: Limits | None = None
    seed: int | None = None


async def run_many(
    policy: Policy,
    jobs: Sequence[Job],
    searcher: Searcher,
    limits: Limits,
    *,
    seed: int = 0,
    params: SamplingParams | None = None,
    concurrency: int = 32,
    on_episode: Callable[[Episode], None] = lambda episode: None,
    on_turn: Callable[[Turn], None] | None = None,
) -> AsyncIterator[Episode]:
    """Run every job, at most `concurrency` at a time, and yield the episodes in the order of the jobs.

    `on_episode` is called with each episode as soon as it ends, in order of completion; `on_turn` with each turn.

    An episode's seed derives from its number unless its job has a seed, so results do not depend on which episode
    finishes first. A policy with `lockstep` gets its episodes in cohorts that start together; which episodes share a
    batch is then determined by their numbers.
    """
    names = [job.episode_id or job.task.id for job in jobs]
    if len(set(names)) != len(names):
        raise ValueError("episodes of one run_many call must have different ids")
    gate = asyncio.Semaphore(concurrency)

    async def run(number: int) -> Episode:
        job = jobs[number]
        async with gate:
            episode = await run_episode(
                policy,
                job.protocol,
                searcher,
                job.task,
                job.limits or limits,
                episode_id=names[number],
                seed=derive_seed(seed, number) if job.seed is None else job.seed,
                params=params,
                on_turn=on_turn,
            )
        on_episode(episode)
        return episode

    cohort = concurrency if policy.lockstep else max(1, len(jobs))
    for first in range(0, len(jobs), cohort):
        numbers = range(first, min(first + cohort, len(jobs)))
        if policy.lockstep:
            # All sessions of a cohort are opened before any of them samples: a lockstep sampler starts a batch only
            # once every open session has asked, and a session opened late would change the batches.
            for number in numbers:
                policy.open(names[number])
        tasks = [asyncio.create_task(run(number)) for number in numbers]
        try:
            for task in tasks:
                yield await task
        finally:
            # The consumer may stop early; without this, its episodes would keep the sampler busy.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
