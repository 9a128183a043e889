"""How a model is asked: as the caller says, else as it was trained, else as is usual."""

import pytest

from quaere.api.agent import check_limits, choose_solver, make_question, open_search
from quaere.api.report import choose_writer
from quaere.dialects.notes import Notes
from quaere.dialects.registry import FROM_MEMORY
from quaere.errors import BadInput
from quaere.records import Question, SolveTask
from quaere.rollout.episode import Limits


def choose(notes=Notes(), needs_guide=False, limits=None, **options):  # noqa: B008 (it is frozen)
    return choose_solver(notes, needs_guide=needs_guide, limits=limits or {}, **options)


def test_a_model_without_notes_is_asked_as_usual():
    protocol, limits = choose()
    assert (limits.turn_tokens, limits.sequence_tokens) == (256, 4096)
    assert not protocol.evidence
    assert choose(limits={"max_turns": 9})[1].max_turns == 9


def test_a_model_is_asked_as_it_was_trained_unless_the_caller_says_otherwise():
    notes = Notes(style="brief", limits=Limits(max_turns=7, turn_tokens=99), evidence=True, dialect="tool-call")
    protocol, limits = choose(notes)
    assert (limits.max_turns, limits.turn_tokens, protocol.evidence) == (7, 99, True)
    told, changed = choose(notes, evidence=False, limits={"turn_tokens": 12})
    assert (changed.max_turns, changed.turn_tokens, told.evidence) == (7, 12, False)
    # Limits of another dialect than the one it is asked in say nothing.
    assert choose(notes, dialect="evalact")[1].turn_tokens == 256


def test_without_documents_there_is_one_turn():
    protocol, limits = choose(Notes(limits=Limits(max_turns=7)), closed_book=True)
    assert limits.max_turns == 1
    assert protocol.name != choose()[0].name


@pytest.mark.parametrize("dialect", ["tool-call", "rag", "ircot", "direct", "cot"])
def test_a_dialect_that_searches_is_no_closed_book(dialect):
    if dialect in FROM_MEMORY:
        assert choose(dialect=dialect, closed_book=True)[0].name == choose(dialect=dialect)[0].name
    else:
        with pytest.raises(BadInput, match=f"{dialect} searches, but a closed book has no documents"):
            choose(dialect=dialect, closed_book=True)


@pytest.mark.parametrize(
    ("options", "is_guided"),
    [
        ({}, True),
        ({"guided": False}, False),
        ({"dialect": "evalact"}, False),
        ({"closed_book": True}, True),
    ],
)
def test_a_small_model_is_guided_where_the_protocol_can(options, is_guided):
    task = SolveTask(Question("q", "Who?"))
    plain, guided = choose(**{**options, "guided": False})[0], choose(needs_guide=True, **options)[0]
    assert (guided.opening(task) != plain.opening(task)) is is_guided


def test_any_model_can_be_guided_where_the_caller_says_so():
    task = SolveTask(Question("q", "Who?"))
    assert choose(guided=True)[0].opening(task) != choose()[0].opening(task)


def test_too_few_turns_are_refused_in_the_callers_words():
    with pytest.raises(BadInput, match="--turns"):
        choose(dialect="evalact", limits={"max_turns": 1}, turns_option="--turns")


def test_a_report_has_room_for_ten_long_turns_and_is_short_where_the_model_is_guided():
    usual = Limits(10, turn_tokens=2048, sequence_tokens=12288, tool_response_tokens=1024, answer_tokens=1024)
    assert choose_writer(Notes(), guided=False, limits={})[1] == usual
    guided = choose_writer(Notes(), guided=True, limits={"topk": 1})[1]
    assert (guided.max_turns, guided.turn_tokens, guided.sequence_tokens, guided.topk) == (2, 128, 4096, 1)


def test_only_a_model_that_was_taught_to_write_reports_writes_them_as_it_was_trained():
    trained = Limits(max_turns=7)
    taught = Notes(recipe="score", style="brief", limits=trained)
    writer, limits = choose_writer(taught, guided=False, limits={})
    assert (writer.style, limits) == ("brief", trained)
    writer, limits = choose_writer(Notes(recipe="drzero", style="brief", limits=trained), guided=False, limits={})
    assert (writer.style, limits.max_turns) == ("full", 10)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_turn": 3}, "there is no option of an agent called 'max_turn': did you mean max_turns"),
        ({"max_turns": 0}, "max_turns must be a whole number of at least 1, not 0"),
        ({"topk": 2.5}, "topk must be a whole number"),
    ],
)
def test_limits_that_cannot_be_are_refused(given, said):
    check_limits({"max_turns": 1, "topk": 1, "answer_turn": False})
    with pytest.raises(BadInput, match=said):
        check_limits(given)


def test_a_question_is_a_text_or_a_record():
    assert make_question("Who?", "ask-0") == Question("ask-0", "Who?")
    asked = Question("q1", "Who?")
    assert make_question(asked, "ask-0") is asked
    for wrong in ("", "  ", 3):
        with pytest.raises(BadInput, match="a question is a text"):
            make_question(wrong, "ask-0")


@pytest.mark.parametrize(
    "given",
    [
        {"index": None, "search": None},
        {"index": None, "search": print, "closed_book": True},
        {"index": "notes", "search": print},
        {"index": "notes", "search": None, "closed_book": True},
    ],
)
def test_exactly_one_thing_is_searched(given):
    with pytest.raises(BadInput, match="give an agent one of"):
        open_search(**given)
