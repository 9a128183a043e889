import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.chat.protocol import Acted, Quoted, format_results
from quaere.dialects.tool_call import ToolCallProposer, ToolCallSolver
from quaere.records import (
    Answer,
    Failure,
    Hit,
    Malformed,
    Proposal,
    ProposeTask,
    Question,
    Search,
    SearchResult,
    SolveTask,
)
from tiny import passage

CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<think>who?</think>\n" + CALL, Search(("Halm bridge",))),
        ("<answer> Venn </answer>", Answer("Venn")),
        ("no thought <answer>Venn</answer> trailing", Answer("Venn")),
        ("<think>maybe <answer>Wrong</answer></think><answer>Venn</answer>", Answer("Venn")),
        (CALL + "<answer>Venn</answer>", Search(("Halm bridge",))),
        ("<think>never closed <answer>Venn</answer>", Malformed("the think block is not closed")),
        ("<answer></answer>", Malformed("the answer is empty")),
        ("<answer>" + "x" * 4001 + "</answer>", Malformed("the answer is too long")),
        ("<answer>Venn", Malformed("the answer block is not closed")),
        ('<tool_call>{"name"', Malformed("the tool_call block is not closed")),
        ("I do not know.", Malformed("there is neither a tool call nor an answer")),
        ("", Malformed("there is neither a tool call nor an answer")),
        ("<tool_call>search Halm</tool_call>", Malformed("the tool call is not JSON")),
    ],
)
def test_solver_reads(text, action):
    assert ToolCallSolver().read(text) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (CALL, Search(("Halm bridge",))),
        ("<question>Who?</question><answer>Venn</answer>", Proposal("Who?", "Venn")),
        ("<question>Who?</question>\n<think>so</think>\n<answer>Venn</answer>", Proposal("Who?", "Venn")),
        ("<question>A?</question><question>B?</question><answer>x</answer>", Proposal("A?", "x")),
        ("<answer>Venn</answer>", Malformed("there is an answer but no question before it")),
        ("<question> </question><answer>Venn</answer>", Malformed("the question is empty")),
        ("<question>" + "x" * 4001 + "</question><answer>Venn</answer>", Malformed("the question is too long")),
        ("<question>Who?</question><answer></answer>", Malformed("the answer is empty")),
        ("<question>Who?</question>", Malformed("there is neither a tool call nor an answer")),
        ("<question>Who?", Malformed("the question block is not closed")),
    ],
)
def test_proposer_reads(text, action):
    assert ToolCallProposer().read(text) == action


def test_questions_documents_and_passages_are_quoted():
    question = ToolCallSolver().opening(SolveTask(Question("q", "Who <|im_end|>?")))[-1]
    assert Quoted("Who <|im_end|>?") in question.parts
    document = ToolCallProposer().opening(ProposeTask("p", passage("</tool_response>"), 3))[-1]
    assert Quoted("Halm\n</tool_response>") in document.parts
    parts = format_results([SearchResult("q", (Hit(passage("<answer>"), 1.0),))])
    assert Quoted("Halm\n<answer>") in parts


@pytest.mark.parametrize("evidence", [False, True])
def test_a_brief_prompt_has_the_rules_for_chains_in_a_line_and_for_chains_alone(evidence):
    proposer = ToolCallProposer(style="brief", evidence=evidence)
    one, two, three = (proposer.opening(ProposeTask("p", passage("x"), hops))[0].text for hops in (1, 2, 3))
    assert "1 hop" in one and "1 hops" not in one and "first thing" not in one
    assert two.replace("2 hops", "3 hops") == three
    for rule in ("only the first thing", "each next fact by a search", "nothing in between", "the answer is short"):
        assert rule in two
    assert len(two) < 220 and "\n" not in two
    assert all(("evidence" in text) is evidence for text in (one, two))


@pytest.mark.parametrize(
    ("hops", "words"), [(1, "No search is needed"), (2, "exactly 1 time:"), (4, "exactly 3 times:")]
)
def test_the_proposer_is_told_how_often_to_search(hops, words):
    assert words in ToolCallProposer().opening(ProposeTask("p", passage("x"), hops))[-1].text


def test_replies_say_what_happened():
    solver = ToolCallSolver()
    search = Search(("a", "b"))
    found = [SearchResult("a", (Hit(passage("A bridge."), 1.0),)), SearchResult("b", ())]
    reply = solver.reply(Acted(search, found))
    assert reply.role == "tool"
    assert "A bridge." in reply.text and "No passage was found" in reply.text and "query 2" in reply.text
    assert "could not be carried out" in solver.reply(Acted(search, (), Failure("search", "timeout", "x"))).text
    assert "No searches are left" in solver.reply(Acted(search, (), Failure("limit", "searches", "x"))).text
    wrong = solver.reply(
        Acted(Malformed("the answer is empty"), (), Failure("protocol", "malformed", "the answer is empty"))
    )
    assert wrong.role == "user" and "the answer is empty" in wrong.text


def test_a_guided_episode_is_given_its_first_search_and_the_start_of_its_answer():
    solver, task = ToolCallSolver(guided=True), SolveTask(Question("q", "Who built the Halm bridge?"))
    assert [solver.prefix(turn, turn == 3) for turn in range(4)] == ["", "", "", "<answer>"]
    assert solver.read(solver.given_turn(task, 0).text) == Search(("Who built the Halm bridge?",))
    assert solver.given_turn(task, 1) is None
    assert ToolCallSolver().given_turn(task, 0) is None
    assert ToolCallSolver(guided=True, evidence=True).prefix(0, True) == "<evidence>"
    examples = solver.opening(SolveTask(Question("q", "Who?")))[1:-1]
    calls = [solver.read(message.text) for message in examples if message.role == "assistant"]
    assert [type(action) for action in calls] == [Search, Answer, Search, Answer]


def test_a_given_search_is_written_like_the_question():
    task = SolveTask(Question("q", "Who built the Brücke at Halm?"))
    assert '["Who built the Brücke at Halm?"]' in ToolCallSolver(guided=True).given_turn(task, 0).text


def test_tools_are_declared_to_models_that_were_not_taught_to_call_them():
    assert [tool.name for tool in ToolCallSolver().tools] == ["search"]
    assert ToolCallSolver(style="brief").tools == ToolCallSolver(guided=True).tools == ()


def test_roles_refuse_each_others_tasks():
    with pytest.raises(TypeError):
        ToolCallSolver().opening(ProposeTask("p", passage("x"), 1))
    with pytest.raises(TypeError):
        ToolCallProposer().opening(SolveTask(Question("q", "Who?")))


fragments = st.sampled_from(
    ["<think>", "</think>", "<answer>", "</answer>", "<tool_call>", "</tool_call>", "<question>", "</question>",
     '{"name": "search", "arguments": {"query_list": ["', '"]}}', "{", "[", "\\", "\x00", "Venn", "\ud800", " "]
)  # fmt: skip


@given(st.lists(fragments | st.text(max_size=8), max_size=30).map("".join))
def test_any_turn_is_read_without_a_crash(text):
    for protocol in (ToolCallSolver(), ToolCallProposer()):
        action = protocol.read(text)
        assert isinstance(action, Search | Answer | Proposal | Malformed)
        if isinstance(action, Search | Malformed):
            assert protocol.reply(Acted(action)).text
