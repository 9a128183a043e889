"""Which tokens belong to a search and its evaluation: on episodes made by hand, on random ones, and on a played one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import tiny
from evaluated import NEVER_MET, NO_ROOM, answer, episode, evaluate, malformed, passage, search
from quaere.chat.protocol import Message
from quaere.chat.renderer import Renderer
from quaere.dialects.evalact_reward import Pair, find_pairs, token_factors
from quaere.dialects.tool_call import ToolCallSolver
from quaere.records import Evaluate, Question, Search, SolveTask
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import TokenPolicy
from quaere.training.batches import make_sample
from scripted import ScriptedSampler

FOUND = passage("A bridge.")


def test_thoughts_belong_to_the_pair_or_not():
    sizes = [(0, 3, 4, 5), (2, 1, 6, 3), (0, 2, 2, 0)]
    played = episode(search(FOUND), evaluate(9.0), answer("Venn"), sizes=sizes)
    # 6 tokens of prompt, 7 written, 5 of reply, 2 that open the next turn, 7 written.
    assert find_pairs(played) == [Pair(9.0, ((6, 13), (20, 27)), turn=0)]
    assert find_pairs(played, "search_eval") == [Pair(9.0, ((9, 13), (21, 27)), turn=0)]


def test_a_search_and_the_very_next_turn_make_a_pair():
    met = search(FOUND)
    assert [pair.turn for pair in find_pairs(episode(met, evaluate(1.0), met, evaluate(2.0)))] == [0, 2]
    assert [pair.score for pair in find_pairs(episode(met, evaluate(1.0), evaluate(2.0)))] == [1.0]
    assert [pair.turn for pair in find_pairs(episode(met, met, evaluate(3.0)))] == [1]
    assert find_pairs(episode(evaluate(1.0), met)) == []
    assert find_pairs(episode(met, malformed(), evaluate(1.0))) == []
    assert find_pairs(episode(met, answer("Venn"))) == []
    assert find_pairs(episode()) == []


def test_only_a_search_that_was_carried_out_counts():
    assert find_pairs(episode(search(FOUND, failure=NEVER_MET), evaluate(1.0))) == []
    assert find_pairs(episode(search(FOUND, failure=NO_ROOM), evaluate(1.0))) == []
    assert len(find_pairs(episode(search(), evaluate(1.0)))) == 1  # it found nothing, and that can be evaluated


def test_an_episode_without_tokens_has_pairs_without_spans():
    played = structs.replace(episode(search(FOUND), evaluate(4.0)), segments=())
    assert find_pairs(played) == [Pair(4.0, (), turn=0)]
    assert token_factors(played, [2.0]) == []


def test_factors_reach_their_tokens_and_no_others():
    played = episode(
        search(FOUND), evaluate(9.0), search(FOUND), evaluate(2.0), answer("Venn"), sizes=[(0, 1, 1, 1)] * 5
    )
    two, half = [2.0, 2.0, 1.0], [0.5, 0.5, 1.0]
    assert token_factors(played, [2.0, 0.5]) == [1.0] * 6 + two * 2 + half * 2 + [1.0] * 3
    two, half = [1.0, 2.0, 1.0], [1.0, 0.5, 1.0]
    assert token_factors(played, [2.0, 0.5], "search_eval") == [1.0] * 6 + two * 2 + half * 2 + [1.0] * 3
    with pytest.raises(ValueError, match="zip"):
        token_factors(played, [2.0])


def test_a_sample_carries_them():
    played = episode(search(FOUND), evaluate(9.0), answer("Venn"), sizes=[(0, 0, 1, 1)] * 3)
    sample = make_sample(played, -3.0, token_factors(played, [1.5]))
    assert sample.advantages == (0.0,) * 6 + (-4.5, 0.0, -4.5, 0.0, -3.0, 0.0)


KINDS = {
    "search": search(FOUND),
    "failed": search(failure=NEVER_MET),
    "cut": search(FOUND, failure=NO_ROOM),
    "evaluate": evaluate(6.0),
    "malformed": malformed(),
    "answer": answer("Venn"),
}
SIZES = st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(1, 4), st.integers(0, 3))
TURNS = st.lists(st.tuples(st.sampled_from(["search", "evaluate", *KINDS]), SIZES), max_size=10)


@given(TURNS, st.sampled_from(["with_think", "search_eval"]))
def test_spans_are_in_order_apart_and_written_by_the_model(turns, segment):
    played = episode(*(KINDS[kind] for kind, _ in turns), sizes=[size for _, size in turns])
    pairs = find_pairs(played, segment)
    kinds = [kind for kind, _ in turns]
    assert [pair.turn for pair in pairs] == [
        place for place in range(len(kinds) - 1) if kinds[place : place + 2] == ["search", "evaluate"]
    ]
    places = [place for pair in pairs for start, end in pair.spans for place in range(start, end)]
    assert all(start < end for pair in pairs for start, end in pair.spans)
    assert places == sorted(set(places))
    assert all(played.loss_mask[place] for place in places)
    factors = token_factors(played, [2.0] * len(pairs), segment)
    assert [place for place, factor in enumerate(factors) if factor != 1.0] == places
    assert len(factors) == len(played.token_ids)


class Scoring(ToolCallSolver):
    """The tool-call dialect with one call more."""

    marks = ("tool_call",)

    def read(self, text, earlier=()):
        return Evaluate("so", 8.0) if '"evaluate"' in text else super().read(text, earlier)

    def reply(self, acted, earlier=(), *, final=False):
        return (
            Message("user", ("Go on.",))
            if isinstance(acted.action, Evaluate)
            else super().reply(acted, earlier, final=final)
        )


async def test_in_a_played_episode_the_spans_read_as_they_were_written(tokenizer):
    calls = [
        '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}</tool_call>',
        '<tool_call>{"name": "evaluate", "arguments": {"evaluation": "so", "score": 8}}</tool_call>',
    ]
    thoughts = ["<think>I look; a <tool_call> it is.</think>\n", "<think>Good.</think> "]
    script = [*(thought + call for thought, call in zip(thoughts, calls, strict=True)), "<answer>Venn</answer>"]
    renderer = Renderer(tokenizer)
    task = SolveTask(Question("q1", "Who built the Halm bridge?", ("Venn",)))
    policy = TokenPolicy(ScriptedSampler(tokenizer, {"q1": script}), renderer)
    played = await run_episode(policy, Scoring(style="brief"), tiny.ListSearcher(), task, Limits())
    assert [type(turn.action) for turn in played.turns[:2]] == [Search, Evaluate]

    def texts(segment):
        (pair,) = find_pairs(played, segment)
        return [renderer.read_turn(played.token_ids[start:end]) for start, end in pair.spans]

    assert texts("with_think") == script[:2]
    # A call may begin within a token: then what leads up to it belongs to the call's first token.
    for text, call in zip(texts("search_eval"), calls, strict=True):
        assert text.endswith(call) and len(text) < len(call) + 8
