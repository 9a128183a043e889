"""Metrics against values worked out by hand, on episodes that were really played."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import tiny
from quaere.chat.renderer import Renderer
from quaere.dialects.tool_call import ToolCallProposer, ToolCallSolver
from quaere.errors import SamplingFailed, SearchFailed
from quaere.objectives.policy_gradient import grpo, hrpo
from quaere.records import ProposeTask, Question, SolveTask
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import TokenPolicy
from quaere.training.solver_phase import measure_solver
from quaere.training.step import (
    _rss_unit,
    measure_advantages,
    measure_draws,
    measure_episodes,
    measure_groups,
    measure_memory,
    measure_pace,
    measure_proposals,
    pass_histogram,
)
from scripted import ScriptedSampler

SOLVE = SolveTask(Question("q1", "Who built the Halm bridge?", ("Orsolya Venn",)))
CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}</tool_call>'
TWO = '<tool_call>{"name": "search", "arguments": {"query_list": ["a", "b"]}}</tool_call>'
ANSWER = "<answer>Orsolya Venn</answer>"
PROPOSAL = "<question>Who built it?</question><answer>Orsolya Venn</answer>"


class BrokenSearcher:
    async def search(self, queries, topk):
        raise SearchFailed("the retriever did not answer within 1 s", kind="timeout")


async def play(script, task=SOLVE, searcher=None, **limits):
    tokenizer = tiny.tokenizer()
    policy = TokenPolicy(ScriptedSampler(tokenizer, {task.id: script}), Renderer(tokenizer))
    protocol = ToolCallSolver() if isinstance(task, SolveTask) else ToolCallProposer()
    return await run_episode(policy, protocol, searcher or tiny.ListSearcher(), task, Limits(**limits))


def with_search_s(episode, *seconds):
    turns = (structs.replace(turn, search_s=value) for turn, value in zip(episode.turns, seconds, strict=True))
    return structs.replace(episode, turns=tuple(turns))


async def test_episodes():
    episodes = [
        with_search_s(await play([TWO, CALL, ANSWER]), 2.0, 1.0, 0.0),
        await play(["dunno", ANSWER]),
        await play(["<think>" + "x" * 400, ANSWER], turn_tokens=30),
        with_search_s(await play([CALL, ANSWER], searcher=BrokenSearcher()), 6.0, 0.0),
    ]
    measured = measure_episodes(episodes, 10.0, role="solver")
    num_model = [sum(turn.num_tokens for turn in episode.turns) for episode in episodes]
    num_all = [sum(len(segment.token_ids) for segment in episode.segments) for episode in episodes]
    assert measured == {
        "solver/episodes": 4,
        "solver/model_tokens": sum(num_model) / 4,
        "solver/tokens": sum(num_all) / 4,
        "solver/turns": 9 / 4,
        "solver/truncated": 1 / 4,
        "solver/answered": 1.0,
        "solver/unanswered": 0.0,
        "solver/call_validity": 7 / 9,
        "solver/searches": 3 / 4,
        "solver/search_failures": 1,
        "solver/search_s": 3.0,
        "solver/tokens_per_s": sum(num_model) / 10,
    }


async def test_an_episode_that_meets_the_sequence_limit_is_truncated_and_not_answered():
    episode = await play([CALL] * 5, sequence_tokens=380, turn_tokens=60)
    assert all(turn.stop_reason != "length" for turn in episode.turns)
    measured = measure_episodes([episode], 1.0, role="solver")
    assert (measured["solver/truncated"], measured["solver/answered"]) == (1.0, 0.0)


async def test_unanswered_are_those_that_a_limit_ended():
    at_turns = await play([CALL] * 2, max_turns=2)
    at_tokens = await play([CALL] * 5, sequence_tokens=380, turn_tokens=60)
    failed = await play([SamplingFailed("out of memory")])
    answered = await play([ANSWER])
    assert [at_turns.end, at_tokens.end, failed.end] == ["turn_limit", "sequence_limit", "failed"]
    measured = measure_episodes([at_turns, at_tokens, failed, answered], 1.0, role="solver")
    assert (measured["solver/unanswered"], measured["solver/answered"]) == (2 / 4, 1 / 4)


async def test_a_search_nobody_carried_out_took_no_time_and_does_not_count():
    episode = await play([CALL, CALL], max_turns=2)
    first = structs.replace(episode.turns[0], search_s=4.0)
    measured = measure_episodes([structs.replace(episode, turns=(first, episode.turns[1]))], 1.0, role="solver")
    assert measured["solver/search_s"] == 4.0


async def test_what_cannot_be_measured_is_left_out():
    assert measure_episodes([], 1.0, role="solver") == {}
    silent = await play([ANSWER], sequence_tokens=20)
    measured = measure_episodes([silent], 0.0, role="proposer")
    assert measured["proposer/model_tokens"] == 0
    assert not {"proposer/call_validity", "proposer/search_s", "proposer/tokens_per_s"} & measured.keys()


def test_advantages():
    measured = measure_advantages(grpo([1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1]))
    assert measured == pytest.approx(
        {
            "advantage/std": 0.5,  # of 0.707, -0.707, 0, 0
            "advantage/max_abs": 0.5**0.5,
            "advantage/zero_variance": 0.5,
            "advantage/lone": 0.0,
            "advantage/nonzero": 0.5,
        },
        abs=1e-4,
    )


def test_a_lone_group_is_not_one_without_variance():
    measured = measure_advantages(hrpo([1.0, 0.0, 0.3, 0.7, 0.7], [1, 1, 2, 3, 3]))
    assert measured["advantage/lone"] == pytest.approx(1 / 3)
    assert measured["advantage/zero_variance"] == pytest.approx(1 / 3)
    assert measured["advantage/nonzero"] == pytest.approx(2 / 5)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 3)), min_size=1, max_size=12))
def test_shares_are_shares(pairs):
    rewards, groups = zip(*pairs, strict=True)
    measured = measure_advantages(grpo(rewards, groups))
    assert measured["advantage/lone"] + measured["advantage/zero_variance"] <= 1
    assert (measured["advantage/nonzero"] == 0) == (measured["advantage/max_abs"] == 0)
    everything_silent = measured["advantage/lone"] + measured["advantage/zero_variance"] == pytest.approx(1)
    assert everything_silent == (measured["advantage/nonzero"] == 0)


def test_groups_by_hand():
    """Of four groups one differs: the second is all right, the third all wrong, the fourth a single attempt."""
    advantages = grpo([1, 0, 1, 1, 1, 0, 0, 1], [0, 0, 0, 1, 1, 2, 2, 3])
    assert measure_groups(advantages) == {"groups/informative": 1.0, "groups/informative_share": 0.25}
    assert measure_groups(grpo([], [])) == {"groups/informative": 0.0}


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 3)), min_size=1, max_size=12))
def test_informative_groups_are_those_with_an_advantage(pairs):
    rewards, groups = zip(*pairs, strict=True)
    advantages = grpo(rewards, groups)
    pulling = {group for group, value in zip(groups, advantages.values.tolist(), strict=True) if value}
    assert measure_groups(advantages)["groups/informative"] == len(pulling)


def test_draws_by_hand():
    assert measure_draws(1, 4, 10, 4) == {"questions/distinct": 4.0, "questions/epochs": 0.4}
    assert measure_draws(3, 4, 10, 10) == {"questions/distinct": 10.0, "questions/epochs": 1.2}
    assert measure_draws(3, 64, 10, 10) == {"questions/distinct": 10.0, "questions/epochs": 3.0}  # a batch is all


def test_pace_by_hand():
    assert measure_pace({"groups/informative": 6.0}, 12.0) == {"step/seconds": 12.0, "groups/per_minute": 30.0}
    assert measure_pace({"reward/mean": 1.0}, 12.0) == {"step/seconds": 12.0}


async def test_proposals():
    document = tiny.passage("The Oss rises at Korrin.")
    scripts = {(1, "a"): [PROPOSAL], (2, "b"): [TWO, PROPOSAL], (2, "c"): [CALL, PROPOSAL], (3, "d"): ["no"] * 5}
    episodes = [await play(script, ProposeTask(id, document, hops)) for (hops, id), script in scripts.items()]
    questions = ["Who built it?", "who built IT", "Where?", ""]
    measured = measure_proposals(episodes, [1, 2, 2, 3], [True, True, True, False], questions)
    assert measured == pytest.approx(
        {
            "proposer/valid": 3 / 4,
            "proposer/duplicates": 1 / 3,
            "proposer/searches_needed": 1.0,
            "proposer/searches_h1": 0.0,
            "proposer/searches_h2": 1.5,
            "proposer/searches_h3": 0.0,
            "proposer/search_gap": (0 + 1 + 0 + 2) / 4,
        }
    )
    assert "proposer/duplicates" not in measure_proposals(episodes[3:], [3], [False], [""])
    assert "proposer/searches_needed" not in measure_proposals(episodes[3:], [3], [False], [""])
    assert measure_proposals(episodes[2:], [2, 3], [True, True], ["Where?", "Who?"])["proposer/searches_needed"] == 1.5
    assert measure_proposals([], [], [], []) == {}
    with pytest.raises(ValueError, match="zip"):
        measure_proposals(episodes, [1], [True], ["Who?"])


async def test_a_proposer_without_a_document_searches_for_the_first_hop_too():
    scripts = {(1, "a"): [CALL, PROPOSAL], (2, "b"): [CALL, PROPOSAL], (2, "c"): [TWO, PROPOSAL]}
    episodes = [await play(script, ProposeTask(id, None, hops)) for (hops, id), script in scripts.items()]
    assert [one.num_searches for one in episodes] == [1, 1, 2]
    measured = measure_proposals(episodes, [1, 2, 2], [True] * 3, ["Who?", "Where?", "When?"])
    assert measured["proposer/search_gap"] == pytest.approx((0 + 1 + 0) / 3)


def test_passes():
    assert pass_histogram([0, 2, 2], 2) == pytest.approx(
        {"passes/0": 1 / 3, "passes/1": 0.0, "passes/2": 2 / 3, "passes/mean": 2 / 3}
    )
    assert pass_histogram([], 5) == {}
    with pytest.raises(ValueError, match="must be 0 to 2, not"):
        pass_histogram([3], 2)


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n), min_size=1))))
def test_the_histogram_has_the_pass_rate_as_its_mean(drawn):
    num_attempts, num_rights = drawn
    found = pass_histogram(num_rights, num_attempts)
    shares = [found[f"passes/{number}"] for number in range(num_attempts + 1)]
    assert sum(shares) == pytest.approx(1)
    rate = sum(number * share for number, share in enumerate(shares)) / num_attempts
    assert found["passes/mean"] == pytest.approx(rate)


def test_memory():
    held = measure_memory()["memory/process_gib"]
    assert 0.01 < held < 1000
    assert 4 * 2**30 * _rss_unit("darwin") == 4 * 2**20 * _rss_unit("linux")  # 4 GiB, as either counts it


def test_measuring_does_not_load_torch():
    code = "import sys; import quaere.training.step as m; m.measure_memory(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


async def test_a_solvers_attempts_are_counted_by_question():
    """Three questions of two attempts, and one of which an attempt was lost."""
    one = await play([ANSWER])
    rights = {"a": (1.0, 1.0), "b": (0.0, 1.0), "c": (0.0, 0.0), "lost": (1.0,)}
    tasks = [structs.replace(SOLVE, question=structs.replace(SOLVE.question, id=id)) for id in rights]
    episodes = [structs.replace(one, task=task) for task in tasks for _ in rights[task.question.id]]
    paid = [{"answer/exact_match": right, "reward/mean": right} for group in rights.values() for right in group]
    groups = [number for number, group in enumerate(rights.values()) for _ in group]
    found = measure_solver(episodes, paid, grpo([part["reward/mean"] for part in paid], groups), 2)
    assert {name: found[name] for name in found if name.startswith("passes/")} == pytest.approx(
        {"passes/0": 1 / 3, "passes/1": 1 / 3, "passes/2": 1 / 3, "passes/mean": 1 / 2}
    )
    assert found["reward/mean"] == pytest.approx(4 / 7)
