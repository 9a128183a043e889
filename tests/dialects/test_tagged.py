import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from quaere.chat.markup import MAX_QUERY_CHARS
from quaere.chat.protocol import Acted, Quoted, as_chat
from quaere.dialects.tag_dialects import TagSolver, read_note
from quaere.records import (
    Answer,
    Evaluate,
    Failure,
    Hit,
    Malformed,
    ProposeTask,
    Question,
    Search,
    SearchResult,
    SolveTask,
    Turn,
)
from tiny import passage

DIALECTS = ("search-r1", "evalrar", "autorefine")
NEITHER = "there is neither a search nor an answer"
FOUND = (SearchResult("q", (Hit(passage("A bridge </information>."), 1.0),)),)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<think>who?</think>\n<search> Halm bridge </search>", Search(("Halm bridge",))),
        ("<answer> Venn </answer>", Answer("Venn")),
        ("<search>Halm</search><answer>Venn</answer>", Search(("Halm",))),
        ("<answer>Venn</answer><search>Halm</search>", Answer("Venn")),
        ("<think><search>no</search></think><search>Halm</search>", Search(("Halm",))),
        ('<search>{"name": "search"}</search>', Search(('{"name": "search"}',))),
        ("<search>" + "x" * MAX_QUERY_CHARS + "</search>", Search(("x" * MAX_QUERY_CHARS,))),
        (
            "<search>" + "x" * (MAX_QUERY_CHARS + 1) + "</search>",
            Malformed(f"a query may have at most {MAX_QUERY_CHARS} characters"),
        ),
        ("<search> \n</search>", Malformed("the query is empty")),
        ("<search>\ud800</search>", Malformed("a query holds half a character")),
        ("<search>Halm", Malformed("the search block is not closed")),
        ("<answer>Venn", Malformed("the answer block is not closed")),
        ("<answer></answer>", Malformed("the answer is empty")),
        ("<evidence>It is.</evidence><answer>Venn</answer>", Answer("Venn")),
        ('<tool_call>{"name": "search", "arguments": {"query_list": ["Halm"]}}</tool_call>', Malformed(NEITHER)),
        ("I do not know.", Malformed(NEITHER)),
        ("", Malformed(NEITHER)),
    ],
)
def test_every_dialect_reads(dialect, text, action):
    assert TagSolver(dialect).read(text) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<N>No year.</N><think>so</think><search>Halm year</search>", Search(("Halm year",), note="No year.")),
        ("<N> Venn. </N>\n<answer>Venn</answer>", Answer("Venn", note="Venn.")),
        ("<N>one</N><think>hm</think><N>two</N><answer>Venn</answer>", Answer("Venn", note="one\ntwo")),
        ("<answer>Venn</answer><N>later</N>", Answer("Venn", note="later")),
        ("<N>Venn, I think.</N>", Malformed(NEITHER, note="Venn, I think.")),
        ("<N>Venn</N><search></search>", Malformed("the query is empty", note="Venn")),
        ("<N>Venn</N><answer>Ve", Malformed("the answer block is not closed", note="Venn")),
        ("<think><N>Venn</N></think><answer>x</answer>", Answer("x")),
        ("<N><think>Venn</think></N><answer>x</answer>", Answer("x", note="<think>Venn</think>")),
        ("<N>I would write <answer>Venn</answer></N>", Malformed(NEITHER, note="I would write <answer>Venn</answer>")),
        ("<N>never closed <answer>x</answer>", Answer("x")),
        ("<N>  </N><answer>x</answer>", Answer("x")),
        ("<answer><N>x</N></answer>", Answer("<N>x</N>")),
    ],
)
@pytest.mark.parametrize(("dialect", "tag"), [("evalrar", "evaluate"), ("autorefine", "refine")])
def test_notes_go_with_the_action_of_their_turn(dialect, tag, text, action):
    def named(words):
        return words.replace("<N>", f"<{tag}>").replace("</N>", f"</{tag}>")

    expected = structs.replace(action, text=named(action.text)) if isinstance(action, Answer) else action
    assert TagSolver(dialect).read(named(text)) == expected


def test_a_dialect_knows_only_its_own_notes():
    text = "<evaluate>one</evaluate><refine>two</refine><answer>x</answer>"
    notes = {dialect: TagSolver(dialect).read(text).note for dialect in DIALECTS}
    assert notes == {"search-r1": "", "evalrar": "one", "autorefine": "two"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_evidence_is_the_last_quotation_before_the_answer(dialect):
    text = "<evidence>a</evidence><evidence> b </evidence><answer>Venn</answer><evidence>c</evidence>"
    assert TagSolver(dialect, evidence=True).read(text) == Answer("Venn", span="b")
    assert TagSolver(dialect, evidence=True).read("<answer>Venn</answer>") == Answer("Venn")


@pytest.mark.parametrize(
    ("dialect", "tag"), [("search-r1", "information"), ("evalrar", "information"), ("autorefine", "documents")]
)
def test_results_come_back_between_tags_and_quoted(dialect, tag):
    reply = TagSolver(dialect).reply(Acted(Search(("q",)), FOUND))
    assert (reply.role, reply.tag) == ("user", tag)
    assert reply.text == f"<{tag}>\n[1]\nHalm\nA bridge </information>.\n</{tag}>"
    assert Quoted("Halm\nA bridge </information>.") in reply.parts
    assert as_chat(reply) == {"role": "user", "content": reply.text}
    nothing = TagSolver(dialect).reply(Acted(Search(("q",)), (SearchResult("q", ()),)))
    assert nothing.text == f"<{tag}>\nNo passage was found.\n</{tag}>"


def test_replies_say_what_went_wrong():
    solver = TagSolver("evalrar")
    wrong = solver.reply(
        Acted(Malformed("the query is empty"), (), Failure("protocol", "malformed", "the query is empty"))
    )
    assert "wrong: the query is empty" in wrong.text and "<search>" in wrong.text and "<answer>" in wrong.text
    assert "could not be carried out" in solver.reply(Acted(Search(("q",)), (), Failure("search", "timeout", "x"))).text
    assert "No searches are left" in solver.reply(Acted(Search(("q",)), (), Failure("limit", "searches", "x"))).text
    cited = TagSolver("evalrar", evidence=True).reply(Acted(Malformed("x")))
    assert "<evidence>" in cited.text and "<evidence>" not in wrong.text


@pytest.mark.parametrize("evidence", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_opening_tells_of_the_tags_and_quotes_the_question(dialect, evidence):
    task = SolveTask(Question("q", "Who <|im_end|>?"))
    solver = TagSolver(dialect, evidence=evidence)
    system, question = solver.opening(task)
    names = {
        "search-r1": ("information",),
        "evalrar": ("information", "evaluate"),
        "autorefine": ("documents", "refine"),
    }
    wanted = {"think", "search", "answer", *names[dialect], *(["evidence"] if evidence else [])}
    tags = {"think", "search", "answer", "information", "documents", "evaluate", "refine", "evidence", "tool_call"}
    assert {tag for tag in tags if f"<{tag}>" in system.text and f"</{tag}>" in system.text} == wanted
    assert Quoted("Who <|im_end|>?") in question.parts
    brief = TagSolver(dialect, style="brief", evidence=evidence).opening(task)[0].text
    assert len(brief) < 100 < len(system.text) and ("evidence" in brief) == evidence
    assert (solver.name, solver.stop, solver.tools) == (f"{dialect}-solver", ("</search>", "</answer>"), ())
    assert solver.prefix(0, False) == solver.prefix(3, True) == ""


def test_proposing_is_refused():
    with pytest.raises(TypeError, match="solves questions"):
        TagSolver("evalrar").opening(ProposeTask("p", passage("x"), 1))


# ------------------------------------------------------------------------------------------------------------ notes


def test_an_action_without_a_note_has_an_empty_one():
    assert read_note(Turn(0, "", Evaluate("good", 9.0), "stop_string")) == ""
    assert read_note(Turn(1, "", Answer("x", note="n"), "stop_string")) == "n"


fragments = st.sampled_from(
    [f"<{mark}{tag}>" for tag in ("think", "search", "answer", "evaluate", "refine", "evidence") for mark in ("", "/")]
    + ["Venn", " ", "\n", "\x00", "\ud800", "<", "x" * 501]
)


@given(st.lists(fragments | st.text(max_size=8), max_size=30).map("".join), st.sampled_from(DIALECTS), st.booleans())
def test_any_turn_is_read_and_answered(text, dialect, evidence):
    solver = TagSolver(dialect, evidence=evidence)
    action = solver.read(text)
    assert isinstance(action, Search | Answer | Malformed)
    assert action.note in text or "\n" in action.note
    if isinstance(action, Search):
        assert len(action.queries) == 1 and 0 < len(action.queries[0]) <= MAX_QUERY_CHARS
    if not isinstance(action, Answer):
        assert solver.reply(Acted(action)).text
