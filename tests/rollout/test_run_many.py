"""Many episodes at once: in the order of their jobs, told of as they end, and ended with their consumer."""

import asyncio

import pytest

import tiny
from quaere.chat.renderer import Renderer
from quaere.dialects.tool_call import ToolCallSolver
from quaere.records import Question, SolveTask
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import TokenPolicy
from scripted import ScriptedSampler

CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm"]}}</tool_call>'
ANSWER = "<answer>Venn</answer>"
SCRIPTS = {"slow": [CALL, CALL, ANSWER], "quick": [ANSWER], "middling": [CALL, ANSWER]}
LIMITS = Limits(max_turns=3, turn_tokens=200, sequence_tokens=4000)


def jobs(names=SCRIPTS):
    return [Job(ToolCallSolver(), SolveTask(Question(name, "Who?"))) for name in names]


def policy(scripts=SCRIPTS):
    tokenizer = tiny.tokenizer()
    return TokenPolicy(ScriptedSampler(tokenizer, scripts), Renderer(tokenizer))


async def test_episodes_come_in_the_order_of_their_jobs_and_are_told_of_as_they_end():
    ended, turns = [], []
    told = {"on_episode": lambda episode: ended.append(episode.id), "on_turn": lambda turn: turns.append(turn.index)}
    played = [one.id async for one in run_many(policy(), jobs(), tiny.ListSearcher(), LIMITS, **told)]
    assert played == list(SCRIPTS)
    assert ended == ["quick", "middling", "slow"]
    assert sorted(turns) == [0, 0, 0, 1, 1, 2]


async def test_no_more_are_played_at_once_than_was_asked_for():
    ended = []
    alone = run_many(
        policy(),
        jobs(),
        tiny.ListSearcher(),
        LIMITS,
        concurrency=1,
        on_episode=lambda episode: ended.append(episode.id),
    )
    assert [episode.id async for episode in alone] == ended == list(SCRIPTS)


async def test_who_stops_early_leaves_nothing_running():
    async def never():
        await asyncio.Event().wait()

    sampler = policy()
    played = run_many(sampler, jobs(["quick", "slow", "middling"]), tiny.ListSearcher(pause=never), LIMITS)
    assert (await anext(played)).id == "quick"
    await played.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not sampler.sampler.sessions


async def test_two_episodes_of_one_name_are_refused():
    with pytest.raises(ValueError, match="must have different ids"):
        await anext(run_many(policy(), jobs(["quick", "quick"]), tiny.ListSearcher(), LIMITS))


async def test_episodes_that_are_cancelled_before_they_begin_leave_no_session():
    """A lockstep sampler would wait for them forever."""
    tokenizer = tiny.tokenizer()
    sampler = ScriptedSampler(tokenizer, SCRIPTS)
    sampler.lockstep = True
    asked = TokenPolicy(sampler, Renderer(tokenizer))

    async def play():
        return [one async for one in run_many(asked, jobs(), tiny.ListSearcher(), LIMITS)]

    playing = asyncio.create_task(play())
    asyncio.get_running_loop().call_soon(playing.cancel)  # after it has opened its sessions, before they begin
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert not sampler.sessions
