"""The evaluate dialect: how a turn is read, alone and after others, and what the environment says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from evaluating import (
    BAD_SCORE,
    EVALUATED,
    FAILED,
    NO_SEARCH,
    SEARCH,
    SEARCHED,
    TASK,
    UNEVALUATED,
    UNREAD,
    call,
    evaluate,
)
from quaere.chat.protocol import Acted, Quoted
from quaere.dialects.evalact import EVALUATE, SEARCH_ONE, EvaluateSolver, cue, format_fault, search_waits
from quaere.records import Answer, Evaluate, Failure, Malformed, ProposeTask, Search, SearchResult, Turn

# ------------------------------------------------------------------------------------------------------- one turn


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<think>who?</think>\n" + SEARCH, Search(("Halm bridge",))),
        (call("search", query="  Halm  "), Search(("Halm",))),
        ("<answer> Venn </answer>", Answer("Venn")),
        ("<think>" + SEARCH + "</think><answer>Venn</answer>", Answer("Venn")),
        (call("search", query=""), Malformed("the query must be a text that is not empty")),
        (call("search", query_list=["Halm"]), Malformed("the query must be a text that is not empty")),
        (call("search", query="x" * 501), Malformed("a query may have at most 500 characters")),
        (call("search", query="\ud800"), Malformed("a query holds half a character")),
        (call("serch", query="Halm"), Malformed("there is no tool of that name")),
        ("<tool_call>Halm</tool_call>", Malformed("the tool call is not JSON")),
        ("<tool_call>{", Malformed("the tool_call block is not closed")),
        ("<answer></answer>", Malformed("the answer is empty")),
        ("so", Malformed("there is neither a tool call nor an answer")),
        (SEARCH + SEARCH, Malformed("a turn holds one tool call or one answer, not several")),
        (evaluate(), Malformed(NO_SEARCH)),
        (evaluate(score=11), Malformed(NO_SEARCH)),
    ],
)
def test_a_turn_is_read(text, action):
    assert EvaluateSolver().read(text) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (evaluate(), Evaluate("Passage 1 names her.", 7.0)),
        (evaluate(text="  So so. "), Evaluate("So so.", 7.0)),
        (evaluate(text=""), Malformed("the evaluation must be a text that is not empty")),
        (evaluate(text=" \n"), Malformed("the evaluation must be a text that is not empty")),
        (evaluate(text=7), Malformed("the evaluation must be a text that is not empty")),
        (evaluate(text="\ud800"), Malformed("the evaluation must be a text that is not empty")),
        (evaluate(text="x" * 2000), Evaluate("x" * 2000, 7.0)),
        (evaluate(text="x" * 2001), Malformed("the evaluation may have at most 2000 characters")),
        (SEARCH, Malformed(UNEVALUATED)),
        ("<answer>Venn</answer>", Malformed(UNEVALUATED)),
        ("so", Malformed(f"there is neither a tool call nor an answer, and {UNEVALUATED}")),
        (evaluate() * 2, Malformed(f"a turn holds one tool call or one answer, not several, and {UNEVALUATED}")),
    ],
)
def test_only_an_evaluation_may_follow_a_search(text, action):
    assert EvaluateSolver().read(text, [SEARCHED]) == action


@pytest.mark.parametrize(
    ("earlier", "waits"),
    [
        ([], False),
        ([SEARCHED], True),
        ([SEARCHED, UNREAD, UNREAD], True),
        ([SEARCHED, EVALUATED], False),
        ([SEARCHED, EVALUATED, UNREAD], False),
        ([SEARCHED, UNREAD, EVALUATED], False),
        ([SEARCHED, EVALUATED, SEARCHED], True),
        ([FAILED], False),
        ([SEARCHED, EVALUATED, FAILED, UNREAD], False),
    ],
)
def test_what_waits_is_the_last_search_carried_out_without_an_evaluation(earlier, waits):
    assert search_waits(earlier) is waits


SCORES = [  # as it stands in the call, and what each way of reading makes of it; None cannot be read
    ("0", 0.0, 0.0),
    ("-0.0", 0.0, 0.0),
    ("7", 7.0, 7.0),
    ("10.0", 10.0, 10.0),
    ("7.25", 7.25, 7.25),
    ("11", None, 10.0),
    ("-1", None, 0.0),
    ("1" + "0" * 400, None, 10.0),
    ('"7"', None, 7.0),
    ('"7/10"', None, 7.0),
    ('" 7.5 / 10 "', None, 7.5),
    ('"12"', None, 10.0),
    ('"-3"', None, 0.0),
    ('"7/5"', None, None),
    ('"seven"', None, None),
    ('"٧"', None, None),
    ('"nan"', None, None),
    ('""', None, None),
    ("NaN", None, None),
    ("Infinity", None, None),
    ("-Infinity", None, None),
    ("1e999", None, None),
    ("true", None, None),
    ("null", None, None),
    ("[7]", None, None),
    ("{}", None, None),
]


@pytest.mark.parametrize(("written", "strict", "clamped"), SCORES)
def test_a_score_is_a_number_within_bounds(written, strict, clamped):
    text = evaluate("SCORE", "So.").replace('"SCORE"', written)
    for bad_score, score in (("format_fail", strict), ("clamp", clamped)):
        action = EvaluateSolver(bad_score=bad_score).read(text, [SEARCHED])
        assert action == (Malformed(BAD_SCORE) if score is None else Evaluate("So.", score))
        assert not isinstance(action, Evaluate) or str(action.score)[0] != "-"


def test_a_score_must_be_there():
    for bad_score in ("format_fail", "clamp"):
        read = EvaluateSolver(bad_score=bad_score).read(call("evaluate", evaluation="So."), [SEARCHED])
        assert read == Malformed(BAD_SCORE)


# Without "<", for a score that closes the call's own tag leaves no call to read.
@given(st.floats() | st.integers() | st.text(st.characters(exclude_characters="<"), max_size=12))
def test_whatever_the_score_it_is_refused_or_gets_a_cue(score):
    for bad_score in ("format_fail", "clamp"):
        action = EvaluateSolver(bad_score=bad_score).read(evaluate(score=score), [SEARCHED])
        if isinstance(action, Evaluate):
            assert 0 <= action.score <= 10
            assert cue(action.score).startswith("Score ")
        else:
            assert action == Malformed(BAD_SCORE)


fragments = st.sampled_from(
    ["<think>", "</think>", "<answer>", "</answer>", "<tool_call>", "</tool_call>", "<evidence>", "</evidence>",
     '{"name": "search", "arguments": {"query": "', '{"name": "evaluate", "arguments": {"evaluation": "so", "score": ',
     "NaN", "1e9", '"}}', "}}", "{", "\\ud800", "\x00", "Venn", "\ud800", " ", SEARCH, evaluate(), evaluate(11)]
)  # fmt: skip


@given(
    st.lists(fragments | st.text(max_size=8), max_size=20).map("".join),
    st.sampled_from([(), (SEARCHED,)]),
    st.booleans(),
)
def test_any_turn_is_read_without_a_crash(text, earlier, evidence):
    solver = EvaluateSolver(evidence=evidence)
    action = solver.read(text, earlier)
    assert isinstance(action, Evaluate | Malformed if earlier else Search | Answer | Malformed)
    assert solver.reply(Acted(action, SEARCHED.results)).text
    turns = [*earlier, Turn(len(earlier), text, action, "stop_string")]
    assert isinstance(format_fault(turns, "answered"), str)


# ------------------------------------------------------------------------------------------- what the environment says


@pytest.mark.parametrize(
    ("score", "opening"),
    [
        (0, "Score 0/10, low. "),
        (3, "Score 3/10, low. "),
        (3.01, "Score 3.01/10, mid. "),
        (7.0, "Score 7/10, mid. "),
        (7.0000001, "Score 7.0000001/10, high. "),
        (10.0, "Score 10/10, high. "),
    ],
)
def test_a_cue_opens_with_the_score_and_its_tier(score, opening):
    assert cue(score).startswith(opening)


@pytest.mark.parametrize("score", [-0.1, 10.1, float("nan")])
def test_there_is_no_cue_for_what_is_no_score(score):
    with pytest.raises(ValueError, match="a score is a number from 0 to 10"):
        cue(score)


def test_the_tiers_give_different_advice():
    assert len({cue(score).split(". ", 1)[1] for score in range(11)}) == 3


def test_the_reply_to_an_evaluation_is_its_cue_whatever_else_was_said():
    solver, hits = EvaluateSolver(), (SearchResult("Halm", ()),)
    for text in ("Useless.", "Score 10/10, high. Answer now."):
        message = solver.reply(Acted(Evaluate(text, 2.0), hits))
        assert (message.role, message.parts) == ("tool", (cue(2.0),))


def test_replies_say_what_was_wrong_and_what_to_write_next():
    solver = EvaluateSolver()
    broken = Failure("protocol", "malformed", "x")
    for reason in (UNEVALUATED, f"the tool call is not JSON, and {UNEVALUATED}", BAD_SCORE):
        message = solver.reply(Acted(Malformed(reason), (), broken))
        assert message.role == "user"
        assert reason in message.text and '"evaluate"' in message.text and "<answer>" not in message.text
    for reason in (NO_SEARCH, "the answer is empty"):
        text = solver.reply(Acted(Malformed(reason), (), broken)).text
        assert reason in text and '"search"' in text and "<answer>" in text and '"evaluate"' not in text


def test_the_solver_opens_in_its_styles():
    words = {}
    for style in ("full", "brief"):
        for evidence in (False, True):
            for think in ("allow", "fail"):
                solver = EvaluateSolver(style=style, evidence=evidence, think_before_evaluate=think)
                system, question = solver.opening(TASK)
                words[style, evidence, think] = system.text
                assert Quoted(TASK.question.text) in question.parts
                assert ("evidence" in system.text) is evidence
                assert ("\n" not in system.text) is (style == "brief")
                assert solver.tools == ((SEARCH_ONE, EVALUATE) if style == "full" else ())
    assert len(set(words.values())) == 8
    assert "{finish}" not in "".join(words.values())
    with pytest.raises(TypeError):
        EvaluateSolver().opening(ProposeTask("p", tiny.passage("x"), 1))
