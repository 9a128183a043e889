"""R6 under templates that cut thoughts, open them, write in channels or rewrite earlier turns: no id differs.

1,000 episodes under each among the slow tests and 100 in the suite. `benchmarks/templates.py` does the same with the
templates that TRL ships.
"""

from collections import Counter

import pytest

import tiny
from exact_episodes import assert_exact, jobs_and_scripts
from modern_templates import MODERN, MOVES_SYSTEM, make_tokenizer
from quaere.chat.renderer import Renderer
from quaere.dialects.tool_call import ToolCallSolver
from quaere.records import Answer, Question, Search, SolveTask
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import TokenPolicy
from scripted import ScriptedSampler

TEMPLATES = {**MODERN, "moves its prompt": MOVES_SYSTEM}
CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm"]}}</tool_call>'


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TEMPLATES)
async def test_the_ids_of_an_episode_are_those_of_the_sampler(name, count):
    tokenizer = make_tokenizer(TEMPLATES[name])
    renderer = Renderer(tokenizer)
    jobs, scripts = jobs_and_scripts(count, tokenizer, seed=len(name))
    # As ids: as the model writes them where the template has opened a thought.
    scripts = {
        episode: [renderer.write_turn(turn) if isinstance(turn, str) else turn for turn in turns]
        for episode, turns in scripts.items()
    }
    sampler = ScriptedSampler(tokenizer, scripts)
    limits = Limits(max_turns=4, turn_tokens=80, sequence_tokens=2000, tool_response_tokens=50)
    ends = Counter()
    async for episode in run_many(TokenPolicy(sampler, renderer), jobs, tiny.ListSearcher(), limits, seed=3):
        assert_exact(episode, sampler.seen.get(episode.id, []))
        ends[episode.end] += 1
    assert sum(ends.values()) == count
    assert min(ends["answered"], ends["turn_limit"]) > 0.08 * count


@pytest.mark.parametrize("name", TEMPLATES)
async def test_a_grown_context_holds_every_turn_as_it_was_written(name):
    tokenizer = make_tokenizer(TEMPLATES[name])
    renderer = Renderer(tokenizer)
    turns = [f"<think>first thought</think>{CALL}", f"<think>second thought</think>{CALL}", "<answer>Venn</answer>"]
    sampler = ScriptedSampler(tokenizer, {"e": [renderer.write_turn(turn) for turn in turns]})
    jobs = [Job(ToolCallSolver(), SolveTask(Question("e", "Who?")), "e")]
    limits = Limits(max_turns=3, turn_tokens=200, sequence_tokens=4000)
    (episode,) = [one async for one in run_many(TokenPolicy(sampler, renderer), jobs, tiny.ListSearcher(), limits)]
    assert [type(turn.action) for turn in episode.turns] == [Search, Search, Answer]
    assert episode.outcome.text == "Venn"
    text = renderer.decode(episode.token_ids)
    assert text.count("first thought") == text.count("second thought") == 1
    closing = renderer.decode(renderer.joints["tool"].closing)
    # A call of GPT-OSS's kind ends the turn itself.
    assert text.count(closing.removeprefix("<|end|>") if name == "call channels" else closing) == 2
    assert text.count("Who?") == 1


DIFFERENCES = {
    "opens a thought": [
        "cuts thoughts out of earlier turns",
        r"begins earlier turns with nothing instead of '<think>\n'",
    ],
    "closes a thought": [
        "cuts thoughts out of earlier turns",
        r"begins earlier turns with nothing instead of '<think>\n\n</think>\n\n'",
    ],
    "thinks at last": [r"begins earlier turns with nothing instead of '<think>\n'"],
    "channels": [
        "ends earlier turns with '<|end|>' instead of '<|return|>'",
        "begins earlier turns with '<|channel|>final<|message|>' instead of nothing",
    ],
    "no end": [r"begins earlier turns with '\n<think></think>\n' instead of nothing"],
    "listed": [],
    "functions": [
        "cuts thoughts out of earlier turns",
        r"begins earlier turns with nothing instead of '<think>\n'",
    ],
    "arguments": [r"begins earlier turns with '\n<think></think>\n' instead of nothing"],
    "call channels": [
        "ends earlier turns with '<|end|>' instead of '<|return|>'",
        "begins earlier turns with '<|channel|>final<|message|>' instead of nothing",
    ],
    "moves its prompt": ["moves the prompt to the newest question"],
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_differs_from_the_template_is_named(name):
    assert list(Renderer(make_tokenizer(TEMPLATES[name])).differences) == DIFFERENCES[name]


@pytest.mark.parametrize("name", [name for name in tiny.TEMPLATES if name != "plain"])
def test_nothing_differs_where_a_template_only_adds(name):
    assert Renderer(tiny.tokenizer(name)).differences == ()


def test_which_templates_open_a_thought():
    opened = {name: Renderer(make_tokenizer(text)).opened for name, text in TEMPLATES.items()}
    assert {name for name, text in opened.items() if text} == {"opens a thought", "thinks at last", "functions"}
    assert opened["opens a thought"] == "<think>\n"


async def test_what_stands_in_a_thought_the_template_opened_is_no_action():
    tokenizer = make_tokenizer(TEMPLATES["opens a thought"])
    turns = ["so <answer>Mallory</answer>", "hm</think><answer>Venn</answer>"]
    sampler = ScriptedSampler(tokenizer, {"e": turns})
    jobs = [Job(ToolCallSolver(), SolveTask(Question("e", "Who?")), "e")]
    policy = TokenPolicy(sampler, Renderer(tokenizer))
    (episode,) = [one async for one in run_many(policy, jobs, tiny.ListSearcher(), Limits(max_turns=2))]
    assert episode.turns[0].failure.message == "the think block is not closed"
    assert episode.turns[1].text == "<think>\nhm</think><answer>Venn</answer>"
    assert episode.outcome.text == "Venn"


async def test_a_turn_that_begins_for_the_model_leaves_the_thought_first():
    tokenizer = make_tokenizer(TEMPLATES["opens a thought"])
    sampler = ScriptedSampler(tokenizer, {"e": ["Venn</answer>"]})
    jobs = [Job(ToolCallSolver(guided=True), SolveTask(Question("e", "Who?")), "e")]
    policy = TokenPolicy(sampler, Renderer(tokenizer))
    limits = Limits(max_turns=2, sequence_tokens=4000)
    (episode,) = [one async for one in run_many(policy, jobs, tiny.ListSearcher(), limits)]
    assert episode.turns[0].text.startswith("<tool_call>")
    assert "<think>\n\n</think>\n\n<tool_call>" in policy.renderer.decode(episode.token_ids)
    assert episode.turns[0].action == Search(("Who?",))
    assert episode.outcome.text == "Venn"
    assert episode.segments[1].origin == "environment" and not any(episode.segments[1].loss_mask)


def test_a_model_may_end_its_turn_otherwise_than_the_template_ends_earlier_ones():
    """GPT-OSS's <|end|> ends a channel: the turn goes on behind it."""
    renderer = Renderer(make_tokenizer(TEMPLATES["channels"]))
    end, ends = renderer.tokenizer.convert_tokens_to_ids(["<|end|>", "<|return|>"])
    joint = renderer.joints["user"]
    assert end not in renderer.stop_token_ids and ends in renderer.stop_token_ids
    assert joint.closing[0] == end
    assert joint.after(ends) == joint.closing[1:] and joint.after(end) == joint.after(5) == joint.closing
