"""Information gain: by hand, against a model read token by token, and what a step makes of it."""

import asyncio
import math
import re
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import tiny
from evaluated import QUESTION, answer, episode, evaluate, malformed, passage, search
from evaluating import SEARCH as EVALUATED_SEARCH
from evaluating import evaluate as write_evaluation
from quaere.chat.protocol import LAST_SEARCH, Message
from quaere.chat.renderer import Renderer
from quaere.dialects.registry import open_solver
from quaere.dialects.roles import Credit
from quaere.objectives.policy_gradient import grpo
from quaere.records import SolveTask
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import TokenPolicy
from quaere.training.batches import make_sample
from quaere.training.information_gain import answer_sample, describe_gains, find_contexts, measure_gains
from quaere.training.learner import Learner
from quaere.training.rollouts import learn, shuffled_credits
from quaere.training.settings import LearnerSettings
from quaere.training.solver_phase import SolverConfig, give_credit
from scripted import ScriptedSampler

RENDERER = Renderer(tiny.tokenizer())
PROTOCOL = open_solver("tool-call").protocol
FOUND = passage("Orsolya Venn built it.")
SEARCHES = {
    "search-r1": ["<search>Halm bridge</search>"],
    "evalrar": ["<search>Halm bridge</search>"],
    "tool-call": ['<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}</tool_call>'],
    "evalact": [EVALUATED_SEARCH, write_evaluation()],
}


class Told:
    """A learner that says of a sample what its number of tokens decides; the calls are noted."""

    def __init__(self):
        self.calls = []

    def score(self, samples):
        self.calls.append(samples)
        return [[-len(sample.token_ids) / 100] * sum(sample.loss_mask) for sample in samples]


# ------------------------------------------------------------------------------------------------------------ by hand


def find_ends(played):
    """Where the first and the last context of each search end, once the second is seen to be the turn and a reply."""
    found = find_contexts(played, RENDERER, PROTOCOL)
    ids = played.token_ids
    for place, (before, written, after) in found.items():
        end = played.turns[place].start + played.turns[place].num_tokens
        assert written == (*ids[:end], *RENDERER.reply(Message("tool", ("No passage was found.",)), ids[end - 1]))
        assert (before, after) == (ids[: len(before)], ids[: len(after)])
    return {place: (len(before), len(after)) for place, (before, _, after) in found.items()}


def test_contexts_end_before_and_after_each_result():
    # Six tokens of prompt; a turn has 3 + 4 tokens, and its reply 5.
    played = episode(search(FOUND), search(FOUND), answer("Venn"))
    assert find_ends(played) == {0: (6, 18), 1: (18, 30)}
    assert find_ends(episode(search(FOUND), evaluate(9.0), search(FOUND))) == {0: (6, 18), 2: (18, 42)}
    assert find_ends(episode(malformed(), search(FOUND), answer("Venn"))) == {1: (6, 30)}
    assert find_ends(episode(answer("Venn"))) == {}
    assert find_ends(episode(search(FOUND), question=structs.replace(QUESTION, answers=()))) == {}
    # What opens the next turn for the policy is no part of a context.
    opened = episode(search(FOUND), answer("Venn"), sizes=[(0, 3, 4, 5), (2, 1, 4, 5)])
    assert find_ends(opened) == {0: (6, 18)}
    # A turn that failed has no tokens and says nothing about where it began.
    failed = structs.replace(malformed(), stop_reason="failed")
    whole = episode(search(FOUND), failed, sizes=[(0, 3, 4, 5), (0, 0, 0, 0)])
    broken = structs.replace(whole, turns=(whole.turns[0], structs.replace(whole.turns[1], start=0)))
    assert find_ends(broken) == {0: (6, 18)}


def test_gains_by_hand():
    # The log-probs are a hundredth of the length: 12 tokens from the prompt or a result to the next result.
    told, played = Told(), episode(search(FOUND), search(FOUND), answer("Venn"))
    other = episode(answer("Venn"))
    gains = measure_gains(told, RENDERER, PROTOCOL, [played, other, played])
    assert gains == [{0: pytest.approx(-0.12), 1: pytest.approx(-0.12)}, {}, gains[0]]
    # One call for all; equal contexts are read once: the first result's is where the second search begins.
    (samples,) = told.calls
    assert len(samples) == 5
    target = RENDERER.encode_parts(("Orsolya Venn</answer>",))
    assert all(sample.token_ids[-len(target) :] == tuple(target) for sample in samples)
    assert all(sum(sample.loss_mask) == len(target) for sample in samples)
    assert measure_gains(told, RENDERER, PROTOCOL, [other]) == [{}]
    assert describe_gains([{0: 2.0, 1: -1.0}, {}]) == {"gain/mean": 0.5, "gain/positive": 0.5}
    assert describe_gains([{}]) == {}


class Echo:
    """A learner that believes the last name in a text: log-prob 0 after the right one, -3 after another, else -1."""

    def score(self, samples):
        return [[self.rate(sample)] * sum(sample.loss_mask) for sample in samples]

    def rate(self, sample):
        ids = [token for token, flag in zip(sample.token_ids, sample.loss_mask, strict=True) if not flag]
        names = re.findall("Orsolya Venn|Brod", RENDERER.decode(ids))
        return (0.0 if names[-1] == "Orsolya Venn" else -3.0) if names else -1.0


async def test_no_guess_in_a_turn_is_rewarded():
    thoughts = "I look it up.", "Perhaps Orsolya Venn.", "Surely Brod."
    ending = "<answer>Orsolya Venn</answer>"
    scripts = [[f"<think>{thought}</think>{SEARCHES['search-r1'][0]}", ending] for thought in thoughts]
    protocol = open_solver("search-r1", style="brief").protocol
    for text, expected in (("Orsolya Venn built it.", [1.0, 0.0, 1.0]), ("The Oss rises in Halm.", [0.0, 0.0, -2.0])):
        played = await play("search-r1", *scripts, searcher=tiny.ListSearcher((text,)))
        gains = measure_gains(Echo(), RENDERER, protocol, played)
        assert [found[0] for found in gains] == expected


@given(st.lists(st.integers(-9, 0), min_size=5, max_size=5))
def test_no_turn_raises_a_gain_above_the_rise_since_the_result_before(scores):
    # The contexts, each once: prompt, turn, result, turn, result.
    learner = SimpleNamespace(score=lambda samples: [[score] * 3 for score in scores])
    played = episode(search(FOUND), search(FOUND), answer("Venn"))
    (gains,) = measure_gains(learner, RENDERER, PROTOCOL, [played])
    for place, (before, written, after) in enumerate((scores[:3], scores[2:])):
        assert gains[place] == min(after - before, after - written)


def test_the_first_accepted_answer_is_read_at_the_start_of_a_turn():
    renderer = SimpleNamespace(begin_turn=lambda text: f"</think>{text}", encode_parts=RENDERER.encode_parts)
    several = structs.replace(QUESTION, answers=(" ", "Venn", "Orsolya Venn"))
    played = episode(search(FOUND), question=several)
    sample = answer_sample(played, played.token_ids[:13], renderer)
    assert RENDERER.decode(sample.token_ids[13:]) == "</think><answer>Venn</answer>"


def test_credits_are_the_gains_relative_to_those_of_other_attempts_at_the_question():
    # Of one question: gains -.12, -.12 and -.24 (a reply of 17 tokens); mean -.16, deviation .04 * sqrt(3).
    one = episode(search(FOUND), search(FOUND), answer("Venn"))
    two = episode(search(FOUND), answer("Venn"), sizes=[(0, 3, 4, 17), (0, 3, 4, 5)])
    alone = structs.replace(one, task=SolveTask(structs.replace(QUESTION, id="q2")), turns=one.turns[:1])
    step, stage = SimpleNamespace(learner=Told(), metrics={}), SimpleNamespace()
    stage.actors = SimpleNamespace(policy=SimpleNamespace(renderer=RENDERER))
    config = SolverConfig(information_gain=0.5, delta=0, min_gain_std=0)
    credits = give_credit(step, stage, [one, two, alone], open_solver("tool-call"), config)
    root = math.sqrt(3)
    assert [[(c.start, c.end) for c in some] for some in credits] == [[(6, 13), (18, 25)], [(6, 13)], [(6, 13)]]
    assert [c.value for c in credits[0]] == pytest.approx([0.5 / root, 0.5 / root])
    assert [c.value for c in credits[1]] == pytest.approx([-1 / root])
    assert [c.value for c in credits[2]] == [0.0]
    assert step.metrics["gain/positive"] == 0
    # Divided by .1 where the deviation is below: .5 * .04 / .1. A floor for rewards, in other units, changes nothing.
    for floor in (0.0, 10.0):
        floored = SolverConfig(information_gain=0.5, delta=0, min_std=floor)
        least, _, _ = give_credit(step, stage, [one, two, alone], open_solver("tool-call"), floored)
        assert [c.value for c in least] == pytest.approx([0.2, 0.2])
    # Off by default: nothing is read.
    assert give_credit(step, stage, [one], open_solver("tool-call"), SolverConfig()) == [[]]
    assert len(step.learner.calls) == 3


# --------------------------------------------------------------------------------------------------------- with a model


async def play(dialect, *scripts, searcher=None, max_turns=8):
    tokenizer = tiny.tokenizer()
    named = {f"e{number}": script for number, script in enumerate(scripts)}
    policy = TokenPolicy(ScriptedSampler(tokenizer, named), RENDERER)
    protocol = open_solver(dialect, style="brief").protocol
    limits = Limits(max_turns=max_turns, sequence_tokens=4096, turn_tokens=400)
    task = SolveTask(QUESTION)
    searcher = searcher or tiny.ListSearcher(("Orsolya Venn built the Halm bridge.", "The Oss rises in Halm."))
    plays = [run_episode(policy, protocol, searcher, task, limits, episode_id=name) for name in named]
    return await asyncio.gather(*plays)


def naive_logprob(model, context, target):
    """The mean log-prob of the target's tokens after the context, one token after the other."""
    total, ids = 0.0, list(context)
    for token in target:
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1].double()
        total += (logits[token] - logits.logsumexp(0)).item()
        ids.append(token)
    return total / len(target)


@pytest.mark.parametrize("dialect", SEARCHES)
async def test_it_is_what_the_model_says_token_by_token_in_every_dialect(dialect):
    turns = SEARCHES[dialect]
    ending = "<answer>Orsolya Venn</answer>"
    scripts = [*turns, *turns, ending], [*turns, ending], [ending]
    played, fruitless = [await play(dialect, *scripts, searcher=searcher) for searcher in (None, tiny.ListSearcher(()))]
    protocol = open_solver(dialect, style="brief").protocol
    gains = measure_gains(Learner(tiny.model("llama", seed=1), LearnerSettings()), RENDERER, protocol, played)
    assert [len(found) for found in gains] == [2, 1, 0]
    plain = tiny.model("llama", seed=1)
    opened, target = (
        RENDERER.tokenizer.encode(text, add_special_tokens=False) for text in ("<answer>", "Orsolya Venn</answer>")
    )
    for one, empty, found in zip(played, fruitless, gains, strict=True):
        before = one.token_ids[: one.turns[0].start]
        for place, gain in found.items():
            written, replied = until_reply(one, place)[0], until_reply(empty, place)[1]
            contexts = before, (*written, *replied), one.token_ids[: one.turns[place + 1].start]
            assert all(RENDERER.decode(context[-60:]).rstrip().endswith("assistant") for context in contexts)
            least, other, after = [naive_logprob(plain, [*context, *opened], target) for context in contexts]
            assert gain == pytest.approx(after - max(least, other), abs=2e-4)
            before = contexts[-1]


@pytest.mark.parametrize("dialect", SEARCHES)
async def test_what_is_said_of_the_last_search_raises_no_gain(dialect):
    """The note after the last search asks for the answer; it is in both contexts, or in neither."""
    script = [*SEARCHES[dialect] * 2, "<answer>Orsolya Venn</answer>"]
    (played,) = await play(dialect, script, max_turns=len(script))
    found = find_contexts(played, RENDERER, open_solver(dialect, style="brief").protocol)
    read = [
        [RENDERER.decode(context[len(before) :]) for context in (written, after)]
        for before, written, after in found.values()
    ]
    assert [[LAST_SEARCH in text for text in texts] for texts in read] == [[False, False], [True, True]]


def until_reply(played, place):
    """The tokens of an episode up to the reply to a turn, and that reply."""
    turn, following = played.turns[place : place + 2]
    end = turn.start + turn.num_tokens
    return played.token_ids[:end], played.token_ids[end : following.start]


# -------------------------------------------------------------------------------------------------------------- credits


def test_credits_are_added_to_the_advantage_of_their_tokens():
    played = episode(search(FOUND), answer("Venn"), sizes=[(0, 1, 2, 1), (0, 1, 1, 0)])
    factors = [1.0] * 6 + [2.0] * 3 + [1.0] * 3
    plain = make_sample(played, 0.5, factors)
    sample = make_sample(played, 0.5, factors, [Credit(7, 10, 0.25), Credit(8, 9, -1.0)])
    assert plain.advantages == (0.0,) * 6 + (1.0, 1.0, 1.0) + (0.0,) + (0.5, 0.5)
    assert sample.advantages == (0.0,) * 6 + (1.0, 1.25, 0.25) + (0.0,) + (0.5, 0.5)  # replies carry no loss
    assert make_sample(played, 0.5, factors, ()) == plain


def test_an_update_is_made_for_credits_alone():
    played = [episode(search(FOUND), answer("Venn")), episode(search(FOUND), answer("Venn"))]
    learned = []
    learner = SimpleNamespace(step=lambda samples: learned.append(samples) or {})
    step = SimpleNamespace(learner=learner, metrics={}, measures_update=False, num_traced=0)
    flat = grpo([0.0, 0.0], [0, 0])
    learn(step, played, flat, None, [[Credit(6, 13, 0.0)], []])
    assert not learned
    learn(step, played, flat, None, [[Credit(6, 13, 0.5)], []])
    assert [sum(sample.advantages) for sample in learned[0]] == [3.5, 0.0]


@given(st.lists(st.lists(st.floats(-1, 1), max_size=3), max_size=5), st.integers(0, 9))
def test_the_shuffle_control_keeps_the_values_and_gives_them_to_other_tokens(values, seed):
    credits = [[Credit(place, place + 1, value) for place, value in enumerate(some)] for some in values]
    spoilt = shuffled_credits(credits, seed)
    assert [[(c.start, c.end) for c in some] for some in spoilt] == [
        [(c.start, c.end) for c in some] for some in credits
    ]
    assert sorted(c.value for some in spoilt for c in some) == sorted(value for some in values for value in some)
