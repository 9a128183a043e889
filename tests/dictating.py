"""Runs in which some episodes are dictated: what a test is about happens whatever a taught model would have written.

    with dictating(lambda job: ["<answer>Venn</answer>"] if job.task.id == "q1" else None):
        run_eve(folder, config)

What a taught model samples depends on rounding, and so on the processor. Dictated episodes are real in all other
respects: the same protocol, searches, tokens, and the log-probs of the policy that is trained on them.
"""

from contextlib import contextmanager

import pytest
from msgspec import structs

from quaere.rollout.many import run_many
from quaere.rollout.policy import TokenPolicy
from quaere.training import role_play
from scripted import ScriptedSampler


class Dictated(ScriptedSampler):
    """Writes what it is told to, with the log-probs of a real sampler."""

    def __init__(self, policy, scripts):
        super().__init__(policy.renderer.tokenizer, scripts)
        self.real = policy.sampler

    async def sample(self, session, token_ids, params):
        said = await super().sample(session, token_ids, params)
        scored = await self.real.score([*token_ids, *said.token_ids])
        return structs.replace(said, logprobs=tuple(scored[len(token_ids) :]))


@contextmanager
def dictating(script):
    """Have roles write the turns that `script(job)` returns, and what they like where it returns None."""

    async def run(policy, jobs, searcher, limits, **how):
        scripts = {job.episode_id: turns for job in jobs if (turns := script(job)) is not None}
        parts = [(TokenPolicy(Dictated(policy, scripts), policy.renderer), True), (policy, False)]
        played = {}
        for speaker, is_dictated in parts:
            share = [job for job in jobs if (job.episode_id in scripts) == is_dictated]
            async for episode in run_many(speaker, share, searcher, limits, **how):
                played[episode.id] = episode
        for job in jobs:
            yield played[job.episode_id]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(role_play, "run_many", run)
        yield
