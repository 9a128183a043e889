"""An episode as a conversation: what a turn says beside its action, in every dialect, and what is marked."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from every_dialect import DIALECTS
from quaere.dialects.registry import SOLVER_DIALECTS, UNTRAINED, find_dialect
from quaere.records import Answer, Evidence, Malformed, Passage, Question, Rubric, Search, SolveTask, Turn
from quaere.runs import Run
from quaere.viewer.conversation import read_thought, view_passage, view_turns
from quaere.viewer.document_reader import TextPart
from viewing import make_episode, make_proposal, open_client, twin


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("<think>Who?</think>\n<search>Halm bridge</search>", "Who?"),
        ('I look. <think>Who?</think><tool_call>{"name": "search"}</tool_call>', "I look.\n\nWho?"),
        ("<think>So.</think><evidence>Venn built it.</evidence><answer>Venn</answer>", "So."),
        ("<refine>No year.</refine><think>On.</think><search>year</search>", "On."),
        ("<question>Who?</question><answer>Venn</answer>", ""),
        ("<rubric>factuality</rubric> done", "done"),
        ("<think>Is it <answer>Venn</answer>?", "Is it <answer>Venn</answer>?"),  # a thought that was cut
        ("Now <search>Halm bri", "Now"),  # the stop string was not returned
        ("no tags at all", "no tags at all"),
        ("", ""),
    ],
)
def test_a_thought_is_what_a_turn_says_beside_its_action(text, thought):
    assert read_thought(text) == thought


@pytest.mark.parametrize("name", DIALECTS)
def test_no_dialect_leaves_its_tags_in_a_thought(name):
    opening = "<answer>" if name == "guided solver" else ""  # a turn is stored with the tag that opened it
    for text in (opening + text for text in DIALECTS[name].turns):
        for turn in (text, f"I look. {text}"):
            assert not re.search(r"</?[a-z_]+>", read_thought(turn)), turn


@pytest.mark.parametrize("dialect", sorted(set(SOLVER_DIALECTS) - set(UNTRAINED)))
def test_the_thought_of_a_demonstration_is_read_in_every_dialect(dialect):
    shown = find_dialect(dialect, "solver").demonstration
    for text in (shown.search("I look.", "Halm", note="No."), shown.answer("I look.", "Venn", span="It.", note="No.")):
        assert read_thought(text) == "I look."


@given(st.lists(st.sampled_from(["<think>", "</think>", "<search>", "</search>", "<answer>", "a", " ", "<b>"])))
def test_a_thought_has_no_more_than_the_turn(pieces):
    """Whatever the tags, the words of the thought are words of the turn, in their order."""
    text = "".join(pieces)
    found = iter(text)
    assert all(letter in found for letter in "".join(read_thought(text).split()))


def test_actions_are_shown_once():
    turns = [
        Turn(0, "Venn", Answer("Venn"), "end_of_turn"),  # an answer without tags
        Turn(1, "<search>", Malformed("not closed"), "length"),
        Turn(2, "<think>On.</think><search>x</search>", Search(("x",), note="No year."), "stop_string"),
    ]
    assert [(turn.thought, turn.note) for turn in view_turns(turns)] == [("", ""), ("", ""), ("On.", "No year.")]


def passage(text="It is old. Venn  built it.", start=100):
    return Passage("b#1", "b", "Bridges", text, start, start + len(text), heading="Builders > Venn")


def test_a_quotation_is_marked_where_it_is():
    card = view_passage(passage(), "passage-1-1-2", 1.5, "Venn built it.")
    assert (card.is_quoted, card.has_answer, card.anchor, card.heading) == (
        True,
        False,
        "passage-1-1-2",
        "Builders > Venn",
    )
    assert card.parts == [TextPart("It is old. "), TextPart("Venn  built it.", is_quoted=True)]
    for span in ("", "The Oss"):
        card = view_passage(passage(), "", 1.5, span)
        assert (card.parts, card.is_quoted) == ([TextPart(passage().text)], False)


@pytest.mark.parametrize(
    ("doc_id", "start", "marked"),
    [("b", 111, ["Venn  built it."]), ("other", 111, []), ("b", 110, []), ("b", 11, []), ("b", 500, [])],
)
def test_the_sentence_with_the_answer_is_marked_in_its_own_passage(doc_id, start, marked):
    support = Evidence(doc_id, start, start + 15, "Venn  built it.")
    card = view_passage(passage(), "", 1.5, "", support)
    assert [part.text for part in card.parts if part.is_quoted] == marked
    assert card.has_answer == bool(marked) and not card.is_quoted


# ---------------------------------------------------------------------------------------------------------------- pages


def show(folder, *episodes, metrics=None):
    """The client of a run with these episodes."""
    with Run.create(folder / "alpha", "evolve") as run:
        run.add_episodes(list(episodes), [metrics or {}] * len(episodes), step=1, phase="solver")
    return open_client(folder)


def test_an_answer_that_quotes_nothing_is_shown_with_the_sentence_that_contains_it(tmp_path):
    made = make_episode("a0")
    client = show(tmp_path, structs.replace(made, outcome=Answer("Orsolya Venn")))
    page = twin(client, "episode?id=a0", run="alpha")
    assert (page["shown"]["chips_are"], page["cited"]) == ("support", "passage-1-1-2")
    first, second = page["turns"][0]["results"][0]["passages"]
    assert (first["has_answer"], second["has_answer"], second["is_quoted"]) == (False, True, False)
    html = client.get("/run/alpha/episode?id=a0").text
    assert '<details class="card cited" id="passage-1-1-2" data-passage open>' in html
    assert 'href="#passage-1-1-2"' in html  # there is no index: the passage on the page is the source


def test_an_abstention_is_right_if_the_answer_was_hidden(tmp_path):
    made = make_episode("a0")
    hidden = Question("q1", "Who built the Halm bridge?", (), hidden=("Venn",))
    abstained = structs.replace(made, task=SolveTask(hidden), outcome=Answer("not in these documents", abstained=True))
    client = show(tmp_path, abstained, metrics={"answer/exact_match": 0.0})
    html = client.get("/run/alpha/episode?id=a0").text
    assert '<b class="good">right</b>' in html and "its answer, Venn, was hidden" in html
    assert ">wrong<" not in html and "Not in these documents" in html


def test_a_proposer_is_shown_its_document_with_the_quotation(tmp_path):
    made = make_proposal("p1", "What is Halm?", "a bridge")
    quoted = structs.replace(made, outcome=structs.replace(made.outcome, span="Halm is a bridge."))
    page = twin(show(tmp_path, quoted), "episode?id=p1", run="alpha")
    assert (page["given"]["is_quoted"], page["quotation"], page["cited"]) == (True, "verbatim", "passage-0")
    assert page["shown"]["answer"] == "a bridge"


@pytest.mark.parametrize(("num_turns", "folds"), [(8, 0), (9, 1), (30, 1)])
def test_the_middle_of_a_long_episode_is_folded(tmp_path, num_turns, folds):
    made = make_episode("a0")
    turns = tuple(structs.replace(made.turns[0], index=number) for number in range(num_turns))
    html = show(tmp_path, structs.replace(made, turns=turns)).get("/run/alpha/episode?id=a0").text
    assert html.count('<details class="middle">') == folds
    inside = re.findall(r'<details class="middle">.*?</article>\s*</details>', html, re.DOTALL)
    assert [fold.count("<article") for fold in inside] == [num_turns - 6] * folds
    assert html.count("<details") == html.count("</details>") and html.count("<article") == num_turns


@pytest.mark.parametrize(("num_chars", "folds"), [(600, 0), (601, 1)])
def test_a_long_thought_is_folded(tmp_path, num_chars, folds):
    made = make_episode("a0")
    turns = (structs.replace(made.turns[0], text="x" * num_chars), *made.turns[1:])
    html = show(tmp_path, structs.replace(made, turns=turns)).get("/run/alpha/episode?id=a0").text
    assert html.count('<details class="thought">') == folds


def test_a_proposal_that_quotes_nothing_is_shown_with_the_sentence_of_its_document(tmp_path):
    page = twin(show(tmp_path, make_proposal("p1", "What is Halm?", "a bridge")), "episode?id=p1", run="alpha")
    assert (page["shown"]["chips_are"], page["cited"], page["given"]["has_answer"]) == ("support", "passage-0", True)


def test_a_role_that_answers_no_question_is_not_said_to_lack_evidence(tmp_path):
    made = make_proposal("p1", "What is Halm?", "a bridge")
    chosen = structs.replace(made, outcome=Rubric("factuality"), id="p2")
    client = show(tmp_path, structs.replace(made, outcome=None, end="turn_limit"), chosen)
    for id, says in (("p1", "it ended without an answer: turn limit"), ("p2", "factuality")):
        html = client.get(f"/run/alpha/episode?id={id}").text
        assert says in html and "no evidence" not in html
        assert twin(client, f"episode?id={id}", run="alpha")["shown"] is None
