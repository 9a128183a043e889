"""A solver's own right episodes: what is kept of them, and why others are not."""

from collections import Counter

import tiny
from quaere.chat.rendering import Renderer
from quaere.chat.tagged import TagSolver
from quaere.policies.scripted import ScriptedSampler
from quaere.rollout.episode import Limits
from quaere.rollout.policy import TokenPolicy
from quaere.training.warmup.documents.lessons import count_searches, play_own
from quaere.training.warmup.documents.writer import CheckedQuestion

SEARCH, RIGHT, WRONG = "<search>Halm bridge</search>", "<answer>Venn</answer>", "<answer>Oleen</answer>"


def question(name, searches=1):
    return CheckedQuestion(name, "Who built it?", ("Venn",), "single", searches, searches, searches, ())


async def play(scripts, questions, attempts=2):
    tokenizer = tiny.tokenizer()
    named = {
        f"own-{item.id}-a{number}": script
        for item, group in zip(questions, scripts, strict=True)
        for number, script in enumerate(group)
    }
    policy = TokenPolicy(ScriptedSampler(tokenizer, named), Renderer(tokenizer))
    limits = Limits(max_turns=4, sequence_tokens=4096)
    return await play_own(
        policy, tiny.ListSearcher(), questions, "search-r1", TagSolver("search-r1"), limits, attempts=attempts
    )


async def test_one_right_episode_of_each_question_is_kept_the_shortest():
    scripts = [[[SEARCH, SEARCH, RIGHT], [SEARCH, RIGHT]], [[SEARCH, WRONG], [SEARCH, RIGHT]], [[SEARCH, WRONG]] * 2]
    played = await play(scripts, [question("a"), question("b"), question("c")])
    assert [episode.id for episode in played.episodes] == ["own-a-a1", "own-b-a1"]
    assert played.dropped == Counter({"wrong answer": 3})
    assert all(any(segment.loss_mask) for episode in played.episodes for segment in episode.segments[1:2])


async def test_a_right_answer_with_fewer_searches_than_needed_teaches_guessing():
    scripts = [[[RIGHT], [SEARCH, RIGHT]], [[SEARCH, RIGHT], [SEARCH, SEARCH, RIGHT]]]
    played = await play(scripts, [question("a"), question("b", searches=2)])
    assert [(episode.id, count_searches(episode)) for episode in played.episodes] == [("own-a-a1", 1), ("own-b-a1", 2)]
    assert played.dropped == Counter({"fewer searches than needed": 2})


async def test_an_episode_that_broke_the_protocol_is_not_learned_from():
    played = await play([[["nothing to read", SEARCH, RIGHT], [SEARCH, RIGHT]]], [question("a")])
    assert [episode.id for episode in played.episodes] == ["own-a-a1"]
    assert played.dropped == Counter({"protocol: malformed": 1})
