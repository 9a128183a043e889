"""A solver's own right episodes: what is kept of them, and why others are not."""

from collections import Counter

from msgspec import structs

import tiny
from quaere.chat.renderer import Renderer
from quaere.dialects.tag_dialects import TagSolver
from quaere.errors import SearchFailed
from quaere.records import Evidence
from quaere.rollout.episode import Limits
from quaere.rollout.policy import TokenPolicy
from quaere.warmup.documents.checked_question import CheckedQuestion
from quaere.warmup.documents.document_lessons import draw_evenly, play_own
from scripted import ScriptedSampler

SEARCH, RIGHT, WRONG = "<search>Halm bridge</search>", "<answer>Venn</answer>", "<answer>Oleen</answer>"


def question(name, searches=1):
    return CheckedQuestion(name, "Who built it?", ("Venn",), "single", searches, searches, searches, ())


async def play(scripts, questions, attempts=2, searcher=None, abstention=False):
    tokenizer = tiny.tokenizer()
    named = {
        f"own-{item.id}-a{number}": script
        for item, group in zip(questions, scripts, strict=True)
        for number, script in enumerate(group)
    }
    policy = TokenPolicy(ScriptedSampler(tokenizer, named), Renderer(tokenizer))
    limits = Limits(max_turns=4, sequence_tokens=4096)
    return await play_own(
        policy,
        searcher or tiny.ListSearcher(),
        questions,
        "search-r1",
        TagSolver("search-r1", abstention=abstention),
        limits,
        attempts=attempts,
    )


async def test_one_right_episode_of_each_question_is_kept_the_shortest():
    scripts = [[[SEARCH, SEARCH, RIGHT], [SEARCH, RIGHT]], [[SEARCH, WRONG], [SEARCH, RIGHT]], [[SEARCH, WRONG]] * 2]
    played = (await play(scripts, [question("a"), question("b"), question("c")])).lessons
    assert [episode.id for episode in played.episodes] == ["own-a-a1", "own-b-a1"]
    assert played.dropped == Counter({"wrong answer": 3})
    assert all(any(segment.loss_mask) for episode in played.episodes for segment in episode.segments[1:2])


async def test_a_right_answer_with_fewer_searches_than_needed_teaches_guessing():
    scripts = [[[RIGHT], [SEARCH, RIGHT]], [[SEARCH, RIGHT], [SEARCH, SEARCH, RIGHT]]]
    played = (await play(scripts, [question("a"), question("b", searches=2)])).lessons
    assert [(episode.id, episode.num_searches) for episode in played.episodes] == [("own-a-a1", 1), ("own-b-a1", 2)]
    assert played.dropped == Counter({"fewer searches than needed": 2})


async def test_a_right_answer_that_rests_on_nothing_shown_is_no_lesson():
    texts = ("Orsolya Venn built the Halm bridge.", "The Oss rises in Halm.")
    first, second = (
        Evidence(tiny.passage(text, number=number).doc_id, 0, len(text), text) for number, text in enumerate(texts)
    )
    unseen = Evidence(first.doc_id, 0, 9, "Not shown.")
    asked = [
        structs.replace(question("both"), kind="comparison", evidence=(first, second)),
        structs.replace(question("one"), kind="comparison", evidence=(first, unseen)),
        structs.replace(question("chain"), kind="chain", evidence=(unseen, second)),  # its last sentence has the answer
        structs.replace(question("other"), kind="chain", evidence=(first, unseen)),
    ]
    scripts = [[[SEARCH, RIGHT]]] * len(asked)
    played = (await play(scripts, asked, attempts=1, searcher=tiny.ListSearcher(texts))).lessons
    assert [episode.id for episode in played.episodes] == ["own-both-a0", "own-chain-a0"]
    assert played.dropped == Counter({"the answer rests on nothing shown": 2})


async def test_an_abstention_is_a_lesson_if_the_question_has_no_answer_and_was_searched():
    asked = [structs.replace(question(name), answers=(), kind="unanswerable") for name in ("a", "b")]
    silent = "<answer>not in these documents</answer>"
    own = await play([[[SEARCH, silent]] * 2, [[silent], [SEARCH, WRONG]]], asked, abstention=True)
    assert [episode.id for episode in own.lessons.episodes] == ["own-a-a0"]
    assert own.lessons.dropped == Counter({"fewer searches than needed": 1, "wrong answer": 1})
    assert [(item.id, item.scores) for item in own.unsure] == [("b", {"solved": 0.5})]


async def test_an_episode_that_broke_the_protocol_is_not_learned_from():
    played = (await play([[["nothing to read", SEARCH, RIGHT], [SEARCH, RIGHT]]], [question("a")])).lessons
    assert [episode.id for episode in played.episodes] == ["own-a-a1"]
    assert played.dropped == Counter({"protocol: malformed": 1})


async def test_questions_that_not_every_attempt_answered_right_are_left_to_practise_on():
    scripts = [[[SEARCH, RIGHT]] * 2, [[SEARCH, WRONG], [SEARCH, RIGHT]], [[SEARCH, WRONG]] * 2]
    own = await play(scripts, [question("always"), question("sometimes"), question("never")])
    assert [(item.id, item.scores) for item in own.unsure] == [
        ("sometimes", {"solved": 0.5}),
        ("never", {"solved": 0.0}),
    ]


async def test_questions_whose_searches_all_failed_say_nothing():
    class Down(tiny.ListSearcher):
        async def search(self, queries, topk):
            raise SearchFailed("down", kind="unreachable")

    own = await play([[[SEARCH, WRONG]]], [question("a")], attempts=1, searcher=Down())
    assert not own.unsure and not own.lessons.episodes


def test_of_each_number_of_facts_as_many_are_drawn_as_there_are():
    ones = [question(f"one{number}") for number in range(20)]
    twos = [question(f"two{number}", searches=2) for number in range(3)]
    four = [question("four", searches=4)]
    drawn = draw_evenly([*ones, *twos, *four], 10, seed=0)
    assert Counter(item.facts for item in drawn) == {1: 6, 2: 3, 4: 1}
    assert len({item.id for item in drawn}) == 10
    assert draw_evenly([*ones, *twos], 100, seed=0) != [*ones, *twos]
    assert sorted(item.id for item in draw_evenly([*ones, *twos], 100, seed=0)) == sorted(q.id for q in [*ones, *twos])
    assert draw_evenly(ones, 5, seed=1) != draw_evenly(ones, 5, seed=0) == draw_evenly(ones, 5, seed=0)
