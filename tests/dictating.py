"""Runs in which some episodes are dictated: what a test is about happens whatever a taught model would have written.

    with dictating(lambda job: ["<answer>Venn</answer>"] if job.task.id == "q1" else None):
        run_eve(folder, config)

What a taught model samples depends on rounding, and so on the processor. Dictated episodes are real in all other
respects: the same protocol, searches, tokens, and the log-probs of the policy that is trained on them.
"""

from contextlib import contextmanager

import pytest
from msgspec import structs

from quaere.rollout.episode import run_many
from quaere.rollout.policy import TokenPolicy
from quaere.training import actors
from scripted import ScriptedSampler


async def add_logprobs(sampler, episodes):
    """The episodes with this sampler's log-probs of all that was written in them, from as few passes as possible."""
    starts = [max(1, (*episode.loss_mask, True).index(True)) for episode in episodes]
    scored = await sampler.score_many([episode.token_ids for episode in episodes], starts)
    return [_with_logprobs(episode, logprobs) for episode, logprobs in zip(episodes, scored, strict=True)]


def _with_logprobs(episode, logprobs):
    segments, start = [], 0
    for segment in episode.segments:
        end = start + len(segment.token_ids)
        segments.append(structs.replace(segment, logprobs=tuple(logprobs[start:end])) if segment.logprobs else segment)
        start = end
    return structs.replace(episode, segments=tuple(segments))


@contextmanager
def dictating(script):
    """Have roles write the turns that `script(job)` returns, and what they like where it returns None."""

    async def run(policy, jobs, searcher, limits, **how):
        scripts = {job.episode_id: turns for job in jobs if (turns := script(job)) is not None}
        dictated = TokenPolicy(ScriptedSampler(policy.renderer.tokenizer, scripts), policy.renderer)
        played = {}
        for speaker, is_dictated in [(dictated, True), (policy, False)]:
            share = [job for job in jobs if (job.episode_id in scripts) == is_dictated]
            episodes = [episode async for episode in run_many(speaker, share, searcher, limits, **how)]
            if is_dictated:
                episodes = await add_logprobs(policy.sampler, episodes)
            played |= {episode.id: episode for episode in episodes}
        for job in jobs:
            yield played[job.episode_id]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actors, "run_many", run)
        yield
