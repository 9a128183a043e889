"""Scores of whole question sets, from scripted episodes through the real loop."""

import asyncio
import json

import pytest

import tiny
from quaere.chat.renderer import Renderer
from quaere.dialects.closed_book import ClosedBook
from quaere.dialects.tool_call import ToolCallSolver
from quaere.errors import BadInput, SamplingFailed, SearchFailed
from quaere.evaluation.intervals import Interval
from quaere.evaluation.qa.differences import compare
from quaere.evaluation.qa.scores import (
    Evaluation,
    evaluate,
    read_evaluation,
    score_answering,
    write_evaluation,
)
from quaere.records import Answer, Malformed, Question
from quaere.rollout.episode import Limits
from quaere.rollout.policy import TokenPolicy
from quaere.search.searcher import NoSearcher
from scripted import ScriptedSampler

CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}</tool_call>'
RIGHT = "<answer>Orsolya Venn</answer>"


def question(number, hops=1):
    return Question(f"q{number}", f"Who built bridge {number}?", ("Orsolya Venn",), hops)


async def answer(scripts, questions, searcher=None, protocol=None, limits=None, **options):
    tokenizer = tiny.tokenizer()
    policy = TokenPolicy(ScriptedSampler(tokenizer, scripts), Renderer(tokenizer))
    return await evaluate(
        policy, protocol or ToolCallSolver(), searcher or tiny.ListSearcher(), questions, limits or Limits(), **options
    )


async def test_every_kind_of_end_is_counted():
    questions = [question(1), question(2, 2), question(3, 2), question(4, 0)]
    scripts = {
        "q1": [CALL, CALL, RIGHT],
        "q2": ["dunno", "<answer>the Venn</answer>"],
        "q3": ["dunno"] * 3,
        "q4": [SamplingFailed("the endpoint is down")],
    }
    heard = []
    scores = await answer(
        scripts, questions, limits=Limits(max_turns=3), on_episode=lambda episode, score: heard.append((episode, score))
    )
    assert {episode.id: score for episode, score in heard} == {score.id: score for score in scores}
    assert [score.id for score in scores] == ["q1", "q2", "q3", "q4"]
    assert heard[0][0].id == "q4"  # told of as they end
    assert [score.answer for score in scores] == ["Orsolya Venn", "the Venn", None, None]
    assert [score.exact_match for score in scores] == [1.0, 0.0, 0.0, 0.0]
    assert [score.f1 for score in scores] == pytest.approx([1.0, 2 / 3, 0.0, 0.0])
    assert [score.end for score in scores] == ["answered", "answered", "turn_limit", "failed"]
    assert [score.num_malformed for score in scores] == [0, 1, 3, 0]
    assert [score.num_searches for score in scores] == [2, 0, 0, 0]
    total = score_answering(scores)
    assert total.exact_match.mean == 0.25
    assert total.exact_match.num == 4
    assert total.f1.mean == pytest.approx(5 / 12)
    assert (total.answered, total.mean_searches, total.mean_turns) == (0.5, 0.5, 9 / 4)
    assert (total.num_malformed, total.num_search_failed, total.num_failed) == (4, 0, 1)
    assert total.unanswered == 0.25  # that of q3: q4 failed, which is no limit
    assert total.mean_tokens == sum(sum(turn.num_tokens for turn in episode.turns) for episode, _ in heard) / 4
    assert [(group.facts, group.exact_match.num) for group in total.by_facts] == [(0, 1), (1, 1), (2, 2)]
    (low, *rest) = total.by_facts[1].exact_match.low, total.by_facts[1].exact_match.high, total.by_facts[0].f1.low
    assert low == pytest.approx(1 / (1 + 1.959964**2)) and rest == [1.0, 0.0]  # one of one is little to go by


async def test_an_episode_is_heard_of_though_an_earlier_question_never_ends():
    async def never():
        await asyncio.Event().wait()

    heard = asyncio.Queue()
    going = asyncio.create_task(
        answer(
            {"q1": [CALL, RIGHT], "q2": [RIGHT], "q3": [RIGHT]},
            [question(1), question(2), question(3)],
            tiny.ListSearcher(pause=never),
            on_episode=lambda episode, score: heard.put_nowait((episode.id, score.exact_match)),
        )
    )
    assert [await heard.get(), await heard.get()] == [("q2", 1.0), ("q3", 1.0)]
    assert not going.done()
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)


async def test_an_answer_after_a_failed_search_counts_as_wrong_and_is_told():
    class Flaky(tiny.ListSearcher):
        async def search(self, queries, topk):
            if not self.queries:
                self.queries += queries
                raise SearchFailed("overloaded", kind="overloaded")
            return await super().search(queries, topk)

    scores = await answer({"q1": [CALL, CALL, RIGHT]}, [question(1)], Flaky())
    assert scores[0].answer == "Orsolya Venn"
    assert (scores[0].exact_match, scores[0].f1, scores[0].search_failed) == (0.0, 0.0, True)
    assert score_answering(scores).num_search_failed == 1


async def test_a_search_over_the_limit_is_the_policys_own_fault_and_no_failed_search():
    scores = await answer({"q1": [CALL, CALL, RIGHT]}, [question(1)], limits=Limits(max_searches=1))
    assert (scores[0].exact_match, scores[0].search_failed, scores[0].num_searches) == (1.0, False, 1)


async def test_episodes_are_greedy():
    asked = []

    class Watched(ScriptedSampler):
        async def sample(self, session, token_ids, params):
            asked.append(params.temperature)
            return await super().sample(session, token_ids, params)

    tokenizer = tiny.tokenizer()
    policy = TokenPolicy(Watched(tokenizer, {"q1": [CALL, RIGHT]}), Renderer(tokenizer))
    await evaluate(policy, ToolCallSolver(), tiny.ListSearcher(), [question(1)], Limits())
    assert asked == [0.0, 0.0]


async def test_closed_book_takes_one_turn_and_never_searches():
    searcher = tiny.ListSearcher()
    scripts = {"q1": [RIGHT], "q2": [CALL]}
    scores = await answer(
        scripts, [question(1), question(2)], searcher, protocol=ClosedBook(), limits=Limits(max_turns=1)
    )
    assert [score.exact_match for score in scores] == [1.0, 0.0]
    assert searcher.queries == []
    assert scores[1].num_malformed == 1


def test_closed_book_reads_the_answer_outside_a_thought():
    read = ClosedBook().read
    assert read("<think><answer>no</answer></think> It is <answer> Venn </answer>") == Answer("Venn")
    assert read("Venn") == Malformed("there is no answer")
    assert read("<answer> </answer>") == Malformed("the answer is empty")
    assert read(f"<answer>{'x' * 5000}</answer>") == Malformed("the answer is too long")
    assert ClosedBook(guided=True).prefix(0, True) == "<answer>"
    assert ClosedBook().prefix(0, True) == ""


async def test_closed_book_has_nothing_to_search():
    with pytest.raises(SearchFailed, match="closed-book"):
        await NoSearcher().search(["x"], 3)


async def evaluation(name, scripts, questions):
    scores = await answer(scripts, questions)
    return Evaluation(name, "scripted", {"seed": 0}, score_answering(scores), tuple(scores))


async def test_two_evaluations_are_compared_question_by_question(tmp_path):
    questions = [question(number) for number in range(4)]
    wrong = "<answer>nobody</answer>"
    good = await evaluation("good", {f"q{number}": [RIGHT] for number in range(4)}, questions)
    # The other was asked in another order, and one question that ours was not.
    poor = await evaluation("poor", {"q3": [wrong], "q1": [RIGHT], "q7": [RIGHT]}, [*questions[3:0:-2], question(7)])
    found = compare(good, poor)
    assert (found.other, found.exact_match) == ("poor", Interval(0.5, -1.0, 1.0, 2))
    assert compare(poor, good).exact_match.mean == -0.5
    other_words = await evaluation("other", {"q1": [RIGHT]}, [Question("q1", "Who else?", ("x",))])
    assert compare(good, other_words) is None
    write_evaluation(good, tmp_path / "good.json")
    assert read_evaluation(tmp_path / "good.json") == good
    # The names in a file are those of earlier versions, whose results can be read.
    assert [group["hops"] for group in json.loads((tmp_path / "good.json").read_bytes())["score"]["by_hops"]] == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["good.json"]


def test_a_file_that_is_no_evaluation_is_refused(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        read_evaluation(tmp_path / "none.json")
    for text in (b"{}", b"not json", b"\xff\xfe"):
        (tmp_path / "bad.json").write_bytes(text)
        with pytest.raises(BadInput, match="is not an evaluation"):
            read_evaluation(tmp_path / "bad.json")
