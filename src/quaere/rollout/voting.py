"""Several attempts at a question, and the answer that most of them give.

    async for episode in run_voted(policy, jobs, searcher, Limits(), attempts=8):
        episode.agreement -> 0.625

How many attempts agree says more about an answer than its probability does: the decision to answer or to abstain is
made in the thought before it, after which the answer itself is near certain.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from msgspec import structs

from quaere.policies.sampler import SamplingParams
from quaere.records import Answer, Episode
from quaere.rewards.answers import normalise_answer
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import Policy
from quaere.search.searcher import Searcher


def vote(attempts: Sequence[Episode]) -> Episode:
    """The first attempt that gives the most frequent answer, with its `agreement`: the share that gives this answer.

    Answers always win over abstentions: one answer wins over seven abstentions, with an agreement of 0.125. If no
    attempt answers, an abstention wins; if none abstains either, an attempt that ended without an answer. Of answers
    given equally often the first wins. Attempts in which a search failed do not vote, unless all of them did.
    """
    sound = [attempt for attempt in attempts if not attempt.search_failed] or attempts
    named = [_answer_of(attempt) for attempt in sound]
    counts = Counter(named)
    best = max(named, key=lambda answer: (answer not in ("", None), answer is not None, counts[answer]))
    return structs.replace(sound[named.index(best)], agreement=counts[best] / len(attempts))


def _answer_of(episode: Episode) -> str | None:
    """The answer as answers are compared; "" for an abstention, None without an answer."""
    if not isinstance(episode.outcome, Answer):
        return None
    return "" if episode.abstained else normalise_answer(episode.outcome.text) or None


async def run_voted(
    policy: Policy,
    jobs: Sequence[Job],
    searcher: Searcher,
    limits: Limits,
    *,
    attempts: int = 1,
    params: SamplingParams,
    on_episode: Callable[[Episode], None] = lambda episode: None,
    **how: Any,
) -> AsyncGenerator[Episode, None]:
    """`run_many`, with several attempts at each job, of which the one that `vote` chooses is returned.

    `on_episode` is called with it as soon as the last attempt at its job has ended. Greedy attempts would all be alike:
    a temperature of 0 becomes 1.
    """
    if attempts == 1:
        async with aclosing(
            run_many(policy, jobs, searcher, limits, params=params, on_episode=on_episode, **how)
        ) as episodes:
            async for episode in episodes:
                yield episode
        return
    names = [job.episode_id or job.task.id for job in jobs]
    job_of = {f"{name}-a{number}": name for name in names for number in range(attempts)}
    ended: dict[str, dict[str, Episode]] = {name: {} for name in names}
    chosen: dict[str, Episode] = {}

    def keep(episode: Episode) -> None:
        name = job_of[episode.id]
        ended[name][episode.id] = episode
        if len(ended[name]) == attempts:
            in_order = [ended[name][f"{name}-a{number}"] for number in range(attempts)]
            chosen[name] = structs.replace(vote(in_order), id=name)
            del ended[name]
            on_episode(chosen[name])

    sampled = params if params.temperature else structs.replace(params, temperature=1.0)
    job_named = dict(zip(names, jobs, strict=True))
    tried = [structs.replace(job_named[name], episode_id=attempt) for attempt, name in job_of.items()]
    async with aclosing(run_many(policy, tried, searcher, limits, params=sampled, on_episode=keep, **how)) as episodes:
        async for episode in episodes:
            if (name := job_of[episode.id]) in chosen:
                yield chosen.pop(name)
