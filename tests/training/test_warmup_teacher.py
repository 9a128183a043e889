"""A teacher behind a text endpoint: what it did well becomes tokens, what it did badly is dropped with its reason."""

import asyncio
import json

import pytest

import tiny
from quaere.chat.renderer import Renderer
from quaere.errors import SamplingFailed
from quaere.policies.sampler import ChatReply
from quaere.records import Answer, Proposal
from quaere.rollout.episode import Limits
from quaere.rollout.policy import ChatPolicy
from quaere.training.proposals import read_proposal
from quaere.warmup.lessons import LessonSettings, build_world
from quaere.warmup.teacher import cut_turn, play_teacher

LIMITS = Limits(turn_tokens=1024, sequence_tokens=40_000, tool_response_tokens=6000)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    world, index = build_world(1, 200, tmp_path_factory.mktemp("warmup"))
    return world, index, Renderer(tiny.tokenizer())


class Teacher:
    """A chat endpoint that knows the world's one-hop facts; `spoil` changes what it writes."""

    name = "teacher"

    def __init__(self, world, spoil=lambda text, number: text):
        self.golds = list(world.questions(300, (1,)))
        self.spoil = spoil
        self.num_replies = 0
        self.openings = []

    async def reply(self, messages, params):
        await asyncio.sleep(0)
        text = self.write(messages)
        self.num_replies += 1
        if len(messages) == 2:
            self.openings.append(messages[0]["content"])
        return ChatReply(self.spoil(text, self.num_replies), "end_of_turn", 7)

    def write(self, messages):
        task, last = messages[1]["content"], messages[-1]["content"]
        if task.startswith("Question:\n"):
            gold = next(gold for gold in self.golds if gold.text in task)
            if len(messages) == 2:
                return self.search(gold.chain[0].mention)
            return f"<think>It is there.</think><answer>{gold.answers[0]}</answer>"
        document = task.partition("Document:\n")[2]
        if "1 hop" not in task and len(messages) == 2:
            gold = next(gold for gold in self.golds if gold.chain[0].mention in document)
            return self.search(gold.chain[0].mention)
        stated = [
            gold for gold in self.golds if gold.chain[0].evidence.text in (last if len(messages) > 2 else document)
        ]
        if not stated:
            return "I give up."
        hop = stated[0].chain[0]
        return f"<think>A fact.</think><question>{stated[0].text}</question><answer>{hop.said}</answer>"

    def search(self, query):
        call = json.dumps({"name": "search", "arguments": {"query_list": [query]}})
        return f"<think>I search.</think>\n<tool_call>{call}</tool_call>"

    async def stop(self):
        pass


def play(place, spoil=lambda text, number: text, **changes):
    teacher = Teacher(place[0], spoil)
    settings = {"num_episodes": 12, "fact_ratio": (1,), "hop_ratio": (1,), "limits": LIMITS} | changes
    return teacher, asyncio.run(play_teacher(ChatPolicy(teacher), *place, LessonSettings(**settings)))


@pytest.mark.parametrize("style", ["full", "brief"])
def test_good_episodes_become_tokens(place, style):
    _, index, renderer = place
    teacher, played = play(place, style=style)
    assert not played.dropped
    assert [type(episode.outcome) for episode in played.episodes] == [Answer] * 6 + [Proposal] * 6
    # The teacher is told everything whatever its pupil will be told.
    assert all("Each turn, think briefly" in opening for opening in teacher.openings)
    for episode in played.episodes:
        assert episode.model == "teacher"
        prompt = renderer.decode(episode.segments[0].token_ids)
        assert ("Each turn, think briefly" in prompt) == (style == "full")
        written = [segment for segment in episode.segments if segment.origin == "model"]
        assert [renderer.decode(segment.token_ids) for segment in written] == [turn.text for turn in episode.turns]
        assert all(all(segment.loss_mask) for segment in written)
        for turn in episode.turns[:-1]:
            again = index.search(list(turn.action.queries), 3)
            assert [list(result.hits) for result in turn.results] == again


def test_a_search_of_several_queries_is_played_again_as_it_was(place):
    def doubled(text, number):
        return text.replace('"]}}', '", "comets and operas"]}}')

    _, played = play(place, doubled, roles=("solver",), num_episodes=4)
    assert len(played.episodes) == 4
    for episode in played.episodes:
        assert [result.query for result in episode.turns[0].results][1] == "comets and operas"
        assert episode.num_searches == 2


def test_proposals_of_two_hops_are_checked(place):
    _, played = play(place, roles=("proposer",), hop_ratio=(0, 1), num_episodes=20)
    assert len(played.episodes) + played.dropped.total() == 20
    assert played.episodes
    for episode in played.episodes:
        score = read_proposal(episode).score
        assert score.valid and score.tool == 1.0 and score.answer > 0


def test_a_proposer_that_does_not_search_is_dropped(place):
    lazy = "<think>Easy.</think><question>Who was it?</question><answer>the island</answer>"
    _, played = play(place, lambda text, number: lazy, roles=("proposer",), hop_ratio=(0, 1), num_episodes=4)
    assert played.dropped == {"too few searches": 4}


BAD = {
    "protocol: malformed": lambda text, number: "The answer is surely " + text.replace("<", "("),
    "wrong answer": lambda text, number: text.replace("</answer>", " or not</answer>"),
    "a demonstrated turn contains a control token": lambda text, number: text.replace("It is", "It <|im_end|> is"),
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_turns_are_dropped_with_their_reason(place, reason):
    _, played = play(place, BAD[reason], roles=("solver",), num_episodes=4)
    assert played.episodes == []
    assert played.dropped == {reason: 4}


def test_only_the_bad_ones_are_dropped(place):
    def lies_at_times(text, number):
        return text.replace("</answer>", " or not</answer>") if number % 3 == 0 else text

    _, played = play(place, lies_at_times, roles=("solver",), num_episodes=12)
    assert 0 < len(played.episodes) < 12
    assert played.dropped == {"wrong answer": 12 - len(played.episodes)}


def test_chatter_after_the_answer_is_cut(place):
    _, played = play(place, lambda text, number: f"\n{text}\n\nShall I go on?", roles=("solver",), num_episodes=4)
    assert len(played.episodes) == 4
    assert all(turn.text.endswith(("</answer>", "</tool_call>")) for turn in played.episodes[0].turns)


def test_a_turn_a_policy_could_not_have_finished_is_dropped(place):
    """The first stop string stands in the thought: a policy would have been stopped there, and have said nothing."""

    def quotes(text, number):
        return text.replace("It is there.", "I write <answer>this</answer> soon.")

    _, played = play(place, quotes, roles=("solver",), num_episodes=4)
    assert played.episodes == []
    assert played.dropped == {"protocol: malformed": 4}


def test_what_the_pupil_has_no_room_for_is_dropped(place):
    _, played = play(place, roles=("solver",), num_episodes=4, limits=Limits(sequence_tokens=300))
    assert played.episodes == []
    assert played.dropped.total() == 4
    assert all("sequence" in reason for reason in played.dropped)


def test_an_endpoint_that_never_answers_is_said(place):
    class Down(Teacher):
        async def reply(self, messages, params):
            raise SamplingFailed("the endpoint cannot be reached")

    with pytest.raises(SamplingFailed, match="cannot be reached"):
        asyncio.run(
            play_teacher(ChatPolicy(Down(place[0])), *place, LessonSettings(4, fact_ratio=(1,), hop_ratio=(1,)))
        )


def test_turns_end_at_the_first_stop_string():
    stop = ("</tool_call>", "</answer>")
    assert cut_turn(" <answer>a</answer> b </tool_call>", stop) == "<answer>a</answer>"
    assert cut_turn("no end", stop) == "no end"
