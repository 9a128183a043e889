"""A teacher in the dialects that judge what they found: kept where the gate holds and the answer is right."""

import asyncio
import json
from collections import Counter

import pytest

import tiny
from quaere.chat.renderer import Renderer
from quaere.dialects.evalact import format_fault
from quaere.dialects.evalact_reward import find_pairs
from quaere.dialects.tag_dialects import read_note
from quaere.policies.sampler import ChatReply
from quaere.records import Answer, Evaluate, Search
from quaere.rollout.episode import Limits
from quaere.rollout.policy import ChatPolicy
from quaere.warmup.lessons import LessonSettings, build_world
from quaere.warmup.teacher import play_teacher

LIMITS = Limits(max_turns=2, turn_tokens=1024, sequence_tokens=40_000, tool_response_tokens=6000)
RENDERER = Renderer(tiny.tokenizer())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return *build_world(1, 200, tmp_path_factory.mktemp("warmup")), RENDERER


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


class Teacher:
    """A chat endpoint that knows the world's one-hop facts; `spoil` changes what it writes."""

    name = "teacher"

    def __init__(self, world, spoil):
        self.golds = list(world.questions(300, (1,)))
        self.spoil = spoil

    async def reply(self, messages, params):
        await asyncio.sleep(0)
        return ChatReply(self.spoil(self.write(messages)), "end_of_turn", 7)

    def write(self, messages):
        system, task = messages[0]["content"], messages[1]["content"]
        gold = next(gold for gold in self.golds if gold.text in task)
        mention, answer = gold.chain[0].mention, f"<think>It is there.</think><answer>{gold.answers[0]}</answer>"
        if '"evaluate"' in system:
            acts = [call("search", query=mention), call("evaluate", evaluation=f"On {mention}.", score=9), answer]
            return acts[len(messages) // 2 - 1]
        if len(messages) == 2:
            return f"<think>I search.</think><search>{mention}</search>"
        tag = next((name for name in ("evaluate", "refine") if f"</{name}>" in system), "")
        return (f"<{tag}>It says {gold.answers[0]}.</{tag}>" if tag else "") + answer

    async def stop(self):
        pass


def learn(place, dialect, spoil=lambda text: text, **changes):
    settings = {"num_episodes": 6, "fact_ratio": (1,), "limits": LIMITS, "turn_limits": {"evalact": 3}}
    settings |= {"dialects": (dialect,)} | changes
    return asyncio.run(play_teacher(ChatPolicy(Teacher(place[0], spoil)), *place, LessonSettings(**settings)))


@pytest.mark.parametrize("style", ["full", "brief"])
def test_evaluated_searches_are_played_again_as_tokens(place, style):
    played = learn(place, "evalact", style=style)
    assert len(played.episodes) == 6 and not played.dropped
    for episode in played.episodes:
        assert [type(turn.action) for turn in episode.turns] == [Search, Evaluate, Answer]
        assert format_fault(episode.turns, episode.end) == ""
        (pair,) = find_pairs(episode)
        ids = episode.token_ids
        searching, evaluating = (RENDERER.decode(ids[start:end]) for start, end in pair.spans)
        assert (searching, evaluating) == tuple(turn.text for turn in episode.turns[:2])
        again = place[1].search(list(episode.turns[0].action.queries), 3)
        assert [list(result.hits) for result in episode.turns[0].results] == again


@pytest.mark.parametrize("dialect", ["evalrar", "autorefine", "search-r1"])
def test_tags_are_played_again_as_tokens(place, dialect):
    played = learn(place, dialect)
    assert len(played.episodes) == 6 and not played.dropped
    for episode in played.episodes:
        assert episode.protocol == f"{dialect}-solver"
        assert {bool(read_note(turn)) for turn in episode.turns[1:]} == {dialect != "search-r1"}


BAD = [
    ("evalact", lambda text: text.replace('"score": 9', '"score": 12'), "protocol: malformed"),
    ("evalact", lambda text: text.replace('"score": 9', '"score": "high"'), "protocol: malformed"),
    ("evalact", lambda text: f"Now then. {text}", "there is text outside of the thought and the action"),
    ("evalact", lambda text: text.replace("</answer>", " or not</answer>"), "wrong answer"),
    ("evalrar", lambda text: text.replace("evaluate>", "remark>"), "what a search found was not noted"),
    ("autorefine", lambda text: text.replace("refine>", "evaluate>"), "what a search found was not noted"),
]


@pytest.mark.parametrize(("dialect", "spoil", "reason"), BAD)
def test_what_breaks_the_gate_is_dropped(place, dialect, spoil, reason):
    played = learn(place, dialect, spoil, num_episodes=3)
    assert played.episodes == [] and played.dropped == {reason: 3}


def test_each_dialect_has_its_turns(place):
    """Two turns are enough for tags, and evaluations are turns of their own."""
    played = learn(place, "evalact", dialects=("evalact", "evalrar", "search-r1"), roles=("solver",))
    counts = Counter(episode.protocol for episode in played.episodes)
    assert counts == {"evalact-solver": 2, "evalrar-solver": 2, "search-r1-solver": 2}
