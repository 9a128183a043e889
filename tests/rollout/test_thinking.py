"""Episodes of models that think and call in their own markup: what is read, what is masked, when a thought is ended."""

import pytest

import tiny
from modern_templates import CALLS, MODERN, make_tokenizer
from quaere.chat.renderer import Renderer
from quaere.dialects.evalact import EvaluateSolver
from quaere.dialects.tool_call import ToolCallSolver
from quaere.records import Answer, Evaluate, Malformed, Question, Search, SolveTask
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import TokenPolicy
from scripted import ScriptedSampler

SEARCHED = "<think>so</think>" + '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm"]}}</tool_call>'
OWN = {"functions": "<function=search>", "arguments": "<arg_key>query_list", "call channels": "to=functions.search"}


async def play(template, turns, protocol=None, as_model=True, **limits):
    tokenizer = make_tokenizer(MODERN.get(template, template))
    renderer = Renderer(tokenizer)
    written = [renderer.write_turn(turn) if as_model and isinstance(turn, str) else turn for turn in turns]
    sampler = ScriptedSampler(tokenizer, {"e": written})
    jobs = [Job(protocol or ToolCallSolver(), SolveTask(Question("e", "Who?")), "e")]
    allowed = Limits(**{"max_turns": len(turns), "sequence_tokens": 8000, **limits})
    (episode,) = [one async for one in run_many(TokenPolicy(sampler, renderer), jobs, tiny.ListSearcher(), allowed)]
    return episode, renderer


@pytest.mark.parametrize("name", CALLS)
async def test_a_model_searches_in_its_own_markup_and_its_prompt_says_so(name):
    episode, renderer = await play(name, [SEARCHED, "<think>hm</think><answer>Venn</answer>"])
    assert [turn.action for turn in episode.turns] == [Search(("Halm",)), Answer("Venn")]
    prompt, first = (renderer.decode(episode.segments[place].token_ids) for place in (0, 1))
    assert OWN[name] in first and '"arguments": {"query_list"' not in first
    # The example of the system prompt and no other form; the template lists the tool itself.
    assert {"call channels": "functions.search("}.get(name, OWN[name]) in prompt
    assert '<tool_call>{"name"' not in prompt and "Tools you can call" not in prompt
    assert episode.segments[1].origin == "model" and all(episode.segments[1].loss_mask)
    assert "Orsolya Venn" in episode.turns[0].reply


@pytest.mark.parametrize("name", CALLS)
async def test_the_place_of_a_call_is_found_in_the_tokens(name):
    """EvalAct weighs the tokens from the call on: `acts_at` counts the model's own tokens."""
    call = '<tool_call>{"name": "search", "arguments": {"query": "Halm"}}</tool_call>'
    scored = '<tool_call>{"name": "evaluate", "arguments": {"evaluation": "It is here.", "score": 9}}</tool_call>'
    turns = [f"<think>so é so</think>{call}", scored, "<answer>Venn</answer>"]
    episode, renderer = await play(name, turns, EvaluateSolver())
    assert [type(turn.action) for turn in episode.turns] == [Search, Evaluate, Answer]
    for turn in episode.turns[:2]:
        ids = episode.token_ids[turn.acts_at : turn.start + turn.num_tokens]
        begins = {"call channels": "<|channel|>commentary" if turn.index else "<|start|>assistant<|channel|>commentary"}
        assert renderer.decode(ids).startswith(begins.get(name, "<tool_call>"))


@pytest.mark.parametrize("name", CALLS)
async def test_what_cannot_be_read_is_answered_in_the_models_markup(name):
    episode, renderer = await play(name, ["<think>so</think>Hello.", "<answer>Venn</answer>"], max_turns=5)
    assert isinstance(episode.turns[0].action, Malformed)
    said = renderer.decode(episode.segments[2].token_ids)
    assert {"call channels": "functions.search("}.get(name, OWN[name]) in said


async def test_a_call_of_gpt_oss_ends_its_turn():
    episode, renderer = await play("call channels", [SEARCHED, "<answer>Venn</answer>"])
    call = renderer.tokenizer.convert_tokens_to_ids("<|call|>")
    assert call in renderer.stop_token_ids
    assert episode.segments[1].token_ids[-1] == call
    # The template's end of a turn is not added to it.
    assert renderer.decode(episode.segments[2].token_ids).startswith("<|start|>user<|message|>")


# ------------------------------------------------------------------------------------------------- thought budget

LONG = "I wonder about the bridge. " * 20


@pytest.mark.parametrize(
    ("template", "end"),
    [
        ("opens a thought", "\n</think>\n\n"),
        ("functions", "\n</think>\n\n"),
        ("call channels", "<|end|><|start|>assistant"),
    ],
)
async def test_a_thought_that_goes_on_for_too_long_is_ended(template, end):
    begun = "<|channel|>analysis<|message|>" if template == "call channels" else ""
    rest = "<|channel|>final<|message|>" if template == "call channels" else ""
    turns = [begun + LONG, rest + "<answer>Venn</answer>"]
    episode, renderer = await play(template, turns, as_model=False, thought_tokens=30, turn_tokens=200, max_turns=1)
    assert episode.outcome == Answer("Venn")
    prompt, thought, ended, answer = episode.segments
    assert [part.origin for part in episode.segments] == ["prompt", "model", "environment", "model"]
    assert len(thought.token_ids) == 30 and renderer.decode(ended.token_ids) == end
    assert not any(ended.loss_mask) and all(thought.loss_mask) and all(answer.loss_mask)
    (turn,) = episode.turns
    assert turn.start == len(prompt.token_ids)
    assert turn.num_tokens == len(episode.token_ids) - turn.start
    assert turn.text.startswith("<think>") and turn.text.endswith("<answer>Venn</answer>")
    assert turn.text.count("</think>") == 1


async def test_a_thought_that_ends_in_time_is_left_alone():
    short, answer = "I wonder.</think>", "<answer>Venn</answer>"
    episode, _ = await play("opens a thought", [short, answer], as_model=False, thought_tokens=40, max_turns=1)
    assert [part.origin for part in episode.segments] == ["prompt", "model", "model"]
    assert episode.turns[0].text == f"<think>\n{short}{answer}"


async def test_a_turn_that_is_complete_within_the_budget_is_one_request():
    episode, _ = await play("opens a thought", ["</think><answer>Venn</answer>"], as_model=False, thought_tokens=40)
    assert [part.origin for part in episode.segments] == ["prompt", "model"]
    assert episode.outcome == Answer("Venn")


async def test_without_a_budget_a_turn_is_one_request():
    episode, _ = await play("opens a thought", [LONG], as_model=False, turn_tokens=200)
    assert [part.origin for part in episode.segments] == ["prompt", "model"]
    assert episode.turns[0].stop_reason == "length" and episode.turns[0].num_tokens == 200


async def test_a_budget_leaves_no_more_tokens_than_the_turn_has():
    turns = [LONG, LONG]
    episode, _ = await play("opens a thought", turns, as_model=False, thought_tokens=30, turn_tokens=60, max_turns=1)
    assert episode.turns[0].num_tokens == 60
    episode, _ = await play("opens a thought", turns, as_model=False, thought_tokens=59, turn_tokens=60, max_turns=1)
    assert [part.origin for part in episode.segments] == ["prompt", "model", "environment"]
