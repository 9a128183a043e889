"""R6: 10,000 episodes under four templates and without one, and no id differs from what was seen and sampled.

2,000 under each among the slow tests, 150 under each in the suite; in every dialect, with sound turns, broken ones and
turns of any ids at all.
"""

from collections import Counter

import pytest

import tiny
from exact_episodes import SOLVERS, assert_exact, jobs_and_scripts
from quaere.chat.renderer import Renderer
from quaere.rollout.episode import Limits, run_many
from quaere.rollout.policy import TokenPolicy
from scripted import ScriptedSampler


@pytest.mark.parametrize("count", [150, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("template", tiny.TEMPLATES)
async def test_the_ids_of_an_episode_are_those_of_the_sampler(template, count):
    tokenizer = tiny.tokenizer(template)
    jobs, scripts = jobs_and_scripts(count, tokenizer, seed=len(template))
    sampler = ScriptedSampler(tokenizer, scripts)
    policy = TokenPolicy(sampler, Renderer(tokenizer))
    limits = Limits(max_turns=4, turn_tokens=60, sequence_tokens=2000, tool_response_tokens=50)
    ends, names = Counter(), Counter()
    async for episode in run_many(policy, jobs, tiny.ListSearcher(), limits, seed=3):
        assert_exact(episode, sampler.seen.get(episode.id, []))
        ends[episode.end] += 1
        names[episode.protocol] += 1
    assert sum(names.values()) == count and len(names) == len(SOLVERS) + 2
    assert min(ends["answered"], ends["turn_limit"]) > 0.08 * count
    assert sum(map(len, sampler.seen.values())) > 1.6 * count


def test_there_are_ten_thousand_episodes():
    assert 2000 * len(tiny.TEMPLATES) == 10_000
