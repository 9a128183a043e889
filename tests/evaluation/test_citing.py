"""Evidence in evaluations: rates by hand, spans traced to what was really returned, files of before."""

import json

import pytest

import tiny
from quaere.chat.renderer import Renderer
from quaere.dialects.closed_book import ClosedBook
from quaere.dialects.tool_call import ToolCallSolver
from quaere.errors import SearchFailed
from quaere.evaluation.intervals import Interval
from quaere.evaluation.judges.judge import StringCheck
from quaere.evaluation.judges.judge_accuracy import validate_judge
from quaere.evaluation.qa.differences import compare
from quaere.evaluation.qa.scores import (
    Evaluation,
    Judging,
    evaluate,
    judge_spans,
    read_evaluation,
    score_answering,
    write_evaluation,
)
from quaere.records import Answer, Evidence, Malformed, Question, SolveTask
from quaere.rollout.episode import Limits
from quaere.rollout.policy import TokenPolicy
from scripted import ScriptedSampler

CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}</tool_call>'
SENTENCE = "Orsolya Venn built the Halm bridge."
RIGHT = "<answer>Orsolya Venn</answer>"


def said(span, answer=RIGHT):
    return f"<evidence>{span}</evidence>{answer}"


def questions(num):
    return [Question(f"q{number}", f"Who built bridge {number}?", ("Orsolya Venn",), 1) for number in range(num)]


async def answer(scripts, protocol=None, searcher=None, limits=None):
    asked = questions(len(scripts))
    named = {question.id: script for question, script in zip(asked, scripts, strict=True)}
    tokenizer = tiny.tokenizer()
    policy = TokenPolicy(ScriptedSampler(tokenizer, named), Renderer(tokenizer))
    protocol = protocol or ToolCallSolver(evidence=True)
    return await evaluate(policy, protocol, searcher or tiny.ListSearcher(), asked, limits or Limits(max_turns=3))


SCRIPTS = [
    [CALL, said(SENTENCE)],  # right, present, verbatim, supported
    [CALL, said(SENTENCE, "<answer>Kell</answer>")],  # wrong, yet its span would have shown it
    [CALL, said("Orsolya Venn built a bridge for Halm.")],  # right and supported, but made up
    [CALL, said("Orsolya  Venn")],  # right, verbatim up to a space, supports nothing
    [said(SENTENCE)],  # the sentence is there, but was never returned
    [CALL, RIGHT],  # no span
    [CALL, "dunno", "dunno"],  # no answer
    [CALL, said("")],  # an empty span
]


async def test_rates_by_hand():
    scores = await answer(SCRIPTS)
    assert [score.present for score in scores] == [True, True, True, True, True, False, False, False]
    assert [score.verbatim for score in scores] == [True, True, False, True, False, False, False, False]
    assert scores[0].evidence == Evidence("d0", 0, len(SENTENCE), SENTENCE)
    assert (scores[3].span, scores[3].evidence) == ("Orsolya  Venn", Evidence("d0", 0, 12, "Orsolya Venn"))
    assert [score.span for score in scores[5:]] == ["", "", ""]
    assert {score.supported for score in scores} == {None}
    before = score_answering(scores).evidence
    assert (before.present.mean, before.verbatim.mean) == (5 / 8, 3 / 8)
    assert before.supported is before.joint is None

    judged, num_unread = await judge_spans(StringCheck(), scores, questions(8))
    assert [score.supported for score in judged] == [True, True, True, False, True, False, False, False]
    total = score_answering(judged)
    assert total.exact_match.mean == 6 / 8
    assert total.evidence.supported.mean == 4 / 8
    assert total.evidence.joint.mean == 3 / 8
    assert (total.evidence.joint.num, num_unread) == (8, 0)
    assert 0 < total.evidence.joint.low < 3 / 8 < total.evidence.joint.high < 1


async def test_what_is_absent_is_not_put_to_the_judge_and_what_cannot_be_read_is_counted_apart():
    heard = []

    class Mumbler(StringCheck):
        async def judge(self, citations):
            heard.extend(citations)
            return [None] * len(citations)

    judged, num_unread = await judge_spans(Mumbler(), await answer(SCRIPTS), questions(8))
    assert len(heard) == num_unread == 5
    assert heard[0].span == SENTENCE and heard[0].answers == ("Orsolya Venn",)
    assert [score.supported for score in judged] == [False] * 8


async def test_after_a_failed_search_no_span_is_supported():
    class Flaky(tiny.ListSearcher):
        async def search(self, queries, topk):
            if not self.queries:
                self.queries += queries
                raise SearchFailed("overloaded", kind="overloaded")
            return await super().search(queries, topk)

    scores = await answer([[CALL, CALL, said(SENTENCE)]], searcher=Flaky())
    judged, _ = await judge_spans(StringCheck(), scores, questions(1))
    assert (judged[0].verbatim, judged[0].supported, judged[0].item.joint) == (True, False, False)


async def test_without_evidence_nothing_is_said_of_it():
    scores = await answer([[CALL, said(SENTENCE)]], ToolCallSolver())
    assert (scores[0].answer, scores[0].span, scores[0].evidence) == ("Orsolya Venn", None, None)
    assert score_answering(scores).evidence is None


async def test_with_the_book_closed_a_span_can_be_judged_and_is_never_verbatim():
    protocol = ClosedBook(evidence=True)
    scores = await answer([[said(SENTENCE)], [RIGHT]], protocol, limits=Limits(max_turns=1))
    judged, _ = await judge_spans(StringCheck(), scores, questions(2))
    assert [(score.present, score.verbatim, score.supported) for score in judged] == [
        (True, False, True),
        (False, False, False),
    ]
    guided = ClosedBook(evidence=True, guided=True)
    assert guided.prefix(0, True) == "<evidence>"
    told = [message.text for message in guided.opening(SolveTask(questions(1)[0])) if message.role == "assistant"]
    assert guided.read(told[0]) == Answer("Marta Oleen", "Marta Oleen painted its ceiling over three winters.")
    assert protocol.read(said("x" * 5000)) == Malformed("the evidence is too long")
    assert ClosedBook().read(said(SENTENCE)) == Answer("Orsolya Venn")


async def evaluation(name, scripts, judge=None, **options):
    scores = await answer(scripts, **options)
    judging = None
    if judge:
        scores, num_unread = await judge_spans(judge, scores, questions(len(scripts)))
        judging = Judging(judge.name, await validate_judge(judge, 8), num_unread)
    return Evaluation(name, "scripted", {}, score_answering(scores), tuple(scores), judging)


async def test_evidence_is_compared_where_both_have_it_from_the_same_judge(tmp_path):
    class Other(StringCheck):
        name = "another"

    good = await evaluation("good", [[CALL, said(SENTENCE)]] * 4, StringCheck())
    poor = await evaluation("poor", [[CALL, said(SENTENCE)], [CALL, RIGHT], [CALL, RIGHT], [RIGHT]], StringCheck())
    found = compare(good, poor)
    assert found.exact_match.mean == 0.0
    assert found.present == found.verbatim == found.supported == found.joint
    assert (found.joint.mean, found.joint.num) == (0.75, 4)
    assert set(found.smallest) == {"exact_match", "f1", "present", "verbatim", "supported", "joint"}
    # Four differences of 0, and the imagined pairs: (0 + 1) / 5.
    assert found.smallest["exact_match"] == pytest.approx(2.80159 * (0.2 / 4) ** 0.5, rel=1e-5)
    assert found.smallest["joint"] == pytest.approx(2.80159 * ((4 / 5 - (3 / 5) ** 2) / 4) ** 0.5, rel=1e-5)
    unlike = compare(good, await evaluation("unlike", [[CALL, said(SENTENCE)]] * 4, Other()))
    assert (unlike.verbatim.mean, unlike.supported, unlike.joint) == (0.0, None, None)
    plain = compare(good, await evaluation("plain", [[CALL, RIGHT]] * 4, protocol=ToolCallSolver()))
    assert plain.present is plain.joint is None and set(plain.smallest) == {"exact_match", "f1"}
    write_evaluation(good, tmp_path / "good.json")
    assert read_evaluation(tmp_path / "good.json") == good


async def test_a_file_from_before_evidence_still_reads(tmp_path):
    new = await evaluation("new", [[CALL, RIGHT]] * 3, protocol=ToolCallSolver())
    write_evaluation(new, tmp_path / "old.json")
    told = json.loads((tmp_path / "old.json").read_text())
    del told["judging"], told["score"]["evidence"]
    for row in told["questions"]:
        for name in ("span", "evidence", "supported"):
            del row[name]
    (tmp_path / "old.json").write_text(json.dumps(told))
    old = read_evaluation(tmp_path / "old.json")
    assert old == new
    assert compare(await evaluation("cited", SCRIPTS[:3]), old).exact_match == Interval(-1 / 3, -1.0, 1.0, 3)
