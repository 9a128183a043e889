"""Scores of abstention, computed by hand, and the risk-coverage curve."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from properties import examples
from quaere.chat.renderer import Renderer
from quaere.dialects.registry import open_protocol
from quaere.errors import BadInput
from quaere.evaluation.qa.abstaining import add_hidden, find_curve, find_lost, score_abstention
from quaere.evaluation.qa.differences import compare, compare_arms
from quaere.evaluation.qa.items import Item, keep_whole_gold, read_items, write_items
from quaere.evaluation.qa.scores import ItemEvaluation, evaluate, judge_spans, score_answering
from quaere.records import Question
from quaere.rollout.episode import Limits
from quaere.rollout.policy import TokenPolicy
from scripted import ScriptedSampler

CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}</tool_call>'
SILENT = "<answer>not in these documents</answer>"


def item(name, right=0.0, confidence=None, **more):
    usual = {"answer": "Venn", "f1": right, "end": "answered", "num_turns": 2, "num_searches": 1, "num_tokens": 9}
    return Item(name, name, exact_match=right, confidence=confidence, **{**usual, **more})


def silent(name, **more):
    return item(name, confidence=0.95, **{"answer": "not in these documents", "abstained": True, **more})


ITEMS = [
    item("a1", 1.0, 0.9),
    item("a2", 0.0, 0.8),
    item("a3", 1.0, 0.7),
    item("a4", 1.0, 0.6),
    silent("a5"),
    item("a6", answer=None, end="turn_limit"),
    item("u1", 0.0, 0.85, answerable=False),
    item("u2", 0.0, 0.5, answerable=False),
    silent("u3", answerable=False),
    silent("u4", answerable=False, search_failed=True),  # it did not see what it searched for
]


def test_shares_by_hand():
    score = score_abstention(ITEMS)
    assert (score.refused.mean, score.refused.num) == (0.25, 4)
    assert (score.refused_answerable.mean, score.refused_answerable.num) == (pytest.approx(1 / 6), 6)
    assert (score.wrong.mean, score.wrong.num) == (0.5, 6)  # a2, u1 and u2 of six answers
    assert score.by_kind == {}


def test_the_curve_by_hand():
    """Surest first: right, wrong, wrong, right, right, wrong; then a5, a6, u3 and u4, of which one is right."""
    wrong = [0, 1, 2, 2, 2, 3, 3.75, 4.5, 5.25, 6]
    expected = [(number / 10, pytest.approx(sum_ / number)) for number, sum_ in enumerate(wrong, start=1)]
    assert list(find_curve(ITEMS)) == expected
    assert score_abstention(ITEMS).wrong_at_80 == pytest.approx(4.5 / 8)


def test_coverage_is_rounded_up_and_answers_without_a_confidence_come_first_and_count_alike():
    curve = dict(find_curve([item("a", 1.0), item("b", 0.0), silent("c")]))
    assert curve[0.1] == curve[0.6] == 0.5  # one and two of the two answers
    assert curve[0.7] == curve[1.0] == pytest.approx(2 / 3)
    assert dict(find_curve([item("a", 1.0, 0.0), silent("b")]))[0.5] == 0.0  # a confidence of 0 before an abstention


def test_by_kind_of_answer():
    found = score_abstention([item("a", 1.0, 0.9, kind="name"), silent("b", kind="name"), silent("c", kind="number")])
    assert list(found.by_kind) == ["name", "number"]
    assert (found.by_kind["name"].refused_answerable.mean, found.by_kind["number"].refused_answerable.mean) == (0.5, 1)
    assert found.by_kind["number"].wrong is None and found.refused is None


def test_without_anything_to_say_there_is_no_score():
    assert score_abstention([item("a", 1.0)]) is None
    assert score_abstention([item("a", 1.0, 0.5)]) is not None
    assert score_abstention([item("a", answerable=False)]) is not None and score_abstention([silent("a")]) is not None


def test_right_answers_lost():
    other = [item("a1", 1.0), item("a2", 1.0), item("a3", 0.0), silent("u", answerable=False)]
    ours = [silent("a1"), item("a2", 1.0), silent("a3"), silent("u", answerable=False)]
    lost = find_lost(list(zip(ours, other, strict=True)))
    assert (lost.mean, lost.num) == (0.5, 2)
    assert find_lost(list(zip(other[:3], other[:3], strict=True))) is None  # it never abstained
    assert find_lost([(silent("a"), item("a", 0.0))]) is None  # there was nothing to lose


probabilities = st.none() | st.sampled_from([0.1, 0.5, 0.9, 1.0])
any_item = st.builds(
    lambda right, confidence, abstained, answerable: item(
        "a", right * answerable * (not abstained), confidence, abstained=abstained, answerable=answerable
    ),
    st.sampled_from([0.0, 1.0]),
    probabilities,
    st.booleans(),
    st.booleans(),
)


@settings(max_examples=examples(100))
@given(st.lists(any_item, min_size=1, max_size=25), st.randoms())
def test_at_full_coverage_the_curve_is_the_share_of_questions_that_are_not_right_in_any_order(found, dice):
    """Not right: answerable ones without an exact match, and unanswerable ones that were not refused."""
    curve = find_curve(found)
    wrong = sum(one.exact_match != 1.0 if one.answerable else not one.abstained for one in found)
    assert curve[-1] == (1.0, pytest.approx(wrong / len(found)))
    assert [coverage for coverage, _ in curve] == [number / 10 for number in range(1, 11)]
    assert all(0 <= risk <= 1 for _, risk in curve)
    dice.shuffle(found)
    assert [risk for _, risk in find_curve(found)] == pytest.approx([risk for _, risk in curve])


# ---------------------------------------------------------------------------------------------------- whole evaluations


def test_scores_are_over_answerable_questions():
    hard = [item("u", answerable=False, facts=2, kind="name", present=False, verbatim=False)]
    easy = [item("a", 1.0, facts=1, kind="number", present=True, verbatim=True)]
    score = score_answering(easy + hard)
    assert (score.exact_match.mean, score.exact_match.num, score.answered) == (1.0, 1, 1.0)
    assert [group.facts for group in score.by_facts] == [1] and [group.name for group in score.by_kind] == ["number"]
    assert score.evidence.present.num == 1
    alone = score_answering(hard)
    assert (alone.exact_match.num, alone.f1.num, alone.evidence, alone.by_facts) == (0, 0, None, ())
    assert alone.abstention.refused.mean == 0.0
    assert score_answering([silent("a")]).answered == 0.0


def evaluation(name, *found):
    return ItemEvaluation(name, score_answering(found), found)


def test_results_are_compared_over_answerable_questions():
    ours = evaluation("ours", item("a", 1.0), silent("b"), silent("u", answerable=False))
    theirs = evaluation("theirs", item("a", 0.0), item("b", 1.0), item("u", answerable=False))
    found = compare(ours, theirs)
    assert (found.exact_match.mean, found.exact_match.num) == (0.0, 2)
    assert (found.lost.mean, found.lost.num, found.refused.mean, found.refused.num) == (1.0, 1, 1.0, 1)
    back = compare(theirs, ours)
    assert back.lost is None and back.refused.mean == -1.0
    assert compare(evaluation("x", ours.items[2]), theirs) is None
    assert compare(evaluation("x", ours.items[0]), theirs).refused is None
    arms = compare_arms("ours", [ours], "theirs", [theirs])
    assert (arms.exact_match.mean, arms.exact_match.num) == (0.0, 2)
    assert (arms.refused.mean, arms.refused.num) == (1.0, 1)
    with pytest.raises(BadInput, match="share no answerable question"):
        compare_arms("x", [evaluation("x", ours.items[2])], "theirs", [theirs])


def test_a_file_has_what_is_not_usual_only(tmp_path):
    write_items(ITEMS, tmp_path / "a.jsonl")
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert read_items(tmp_path / "a.jsonl") == ITEMS
    assert '"abstained":true' in lines[4] and "abstained" not in lines[0] and '"answerable":false' in lines[6]


async def test_episodes_are_scored_with_hidden_copies():
    """The copy of q1 sees no passage, as the searcher's all hold its answer."""
    asked = [Question("q1", "Who built the Halm bridge?", ("Orsolya Venn",)), Question("q2", "Who brews beer?")]
    questions, num_open = add_hidden(asked)
    assert [one.id for one in questions] == ["q1", "q1-hidden", "q2"] and num_open == 0
    tokenizer = tiny.tokenizer()
    scripts = {"q1": [CALL, "<answer>Orsolya Venn</answer>"], "q1-hidden": [CALL, SILENT], "q2": ["<answer>x</answer>"]}
    policy = TokenPolicy(ScriptedSampler(tokenizer, scripts), Renderer(tokenizer))
    protocol = open_protocol("tool-call", abstention=True)
    scores = await evaluate(policy, protocol, tiny.ListSearcher(), questions, Limits())
    assert [(one.answerable, one.abstained, one.exact_match) for one in scores] == [
        (True, False, 1.0),
        (False, True, 0.0),
        (False, False, 0.0),
    ]
    assert [one.kind for one in scores] == ["name", "name", ""]
    assert [one.confidence for one in scores] == [0.3679] * 3  # a log-prob of -1 each
    score = score_answering(scores)
    assert (score.exact_match.mean, score.exact_match.num, score.abstention.refused.mean) == (1.0, 1, 0.5)


def test_what_cannot_be_hidden_is_counted():
    asked = [
        Question("q1", "Is Halm older than Oss?", ("yes",)),
        Question("q2", "Which is older, Halm or Oss?", ("Oss",)),
        Question("q3", "Who built it?", ("Venn",)),
        Question("q4", "Who brews beer?"),
    ]
    questions, num_open = add_hidden(asked)
    assert [one.id for one in questions] == ["q1", "q2", "q3", "q3-hidden", "q4"] and num_open == 2
    with pytest.raises(
        BadInput, match="question q3 cannot be asked with hidden answers: there is a question q3-hidden"
    ):
        add_hidden(questions)


def test_an_unanswerable_question_has_no_gold_and_leaves_that_of_its_set_whole():
    asked = [Question("q1", "Who?", ("Venn",), gold_ids=("halm.md",), set="s"), Question("q2", "Who?", set="s")]
    assert [one.gold_ids for one in keep_whole_gold(asked, None)] == [("halm.md",), ()]


async def test_a_span_for_an_unanswerable_question_is_not_judged():
    class Judge:
        async def judge(self, citations):
            self.asked = citations
            return [True] * len(citations)

    from quaere.evaluation.qa.scores import QuestionScore

    def cited(name, answerable):
        counts = {"num_turns": 1, "num_malformed": 0, "num_searches": 1, "num_tokens": 9, "search_failed": False}
        return QuestionScore(
            name, "Who?", 1, "Venn", 0.0, 0.0, "answered", **counts, span="Venn.", answerable=answerable
        )

    judge = Judge()
    questions = [Question("q1", "Who?", ("Venn",)), Question("q2", "Who?")]
    judged, _ = await judge_spans(judge, [cited("q1", True), cited("q2", False)], questions)
    assert [one.supported for one in judged] == [True, False] and len(judge.asked) == 1
