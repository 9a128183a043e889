"""Agents that say that the documents do not answer: when they may, and what their answers are then."""

import math

import pytest
from msgspec import structs

import quaere
from backups import TURNS, call
from quaere.api.agent import choose_solver
from quaere.dialects.notes import Notes
from quaere.dialects.registry import FROM_MEMORY, SOLVER_DIALECTS, can_abstain
from quaere.errors import BadInput
from quaere.policies.openai import OpenAISampler, parse_endpoint
from quaere.rollout.policy import ChatPolicy

SILENT = [call("backups"), call("backups 2031"), "<answer>not in these documents</answer>"]


@pytest.fixture
def index(notes):
    return quaere.Index.build("notes/", "notes-index")


def may_abstain(notes, **how):
    protocol, _ = choose_solver(notes, needs_guide=how.pop("needs_guide", False), limits={}, **how)
    return getattr(protocol, "abstention", False)


def test_a_model_abstains_as_it_was_trained():
    taught = Notes(style="brief", abstention=True)
    assert may_abstain(taught) and not may_abstain(Notes(style="brief")) and not may_abstain(Notes(style="full"))
    assert not may_abstain(taught, abstention=False) and may_abstain(Notes(style="brief"), abstention=True)


def test_a_model_that_was_taught_nothing_may_abstain_unless_it_is_guided_or_has_brief_prompts():
    assert may_abstain(Notes()) and not may_abstain(Notes(), untaught_abstain=False)
    assert not may_abstain(Notes(), needs_guide=True) and not may_abstain(Notes(), style="brief")
    assert not may_abstain(Notes(), closed_book=True)
    with pytest.raises(BadInput, match="from memory cannot say that the documents do not answer"):
        may_abstain(Notes(), closed_book=True, abstention=True)


@pytest.mark.parametrize("dialect", sorted(set(SOLVER_DIALECTS) - set(FROM_MEMORY)))
def test_every_dialect_of_quaere_can_abstain(dialect):
    assert can_abstain(dialect) and may_abstain(Notes(), dialect=dialect)


def test_a_dialect_without_a_way_to_abstain_is_asked_without(monkeypatch):
    from quaere.dialects import tool_call

    def never(options):
        return structs.replace(opened(options), protocol=tool_call.ToolCallSolver())

    opened = tool_call.SOLVER.open
    monkeypatch.setattr(tool_call, "SOLVER", structs.replace(tool_call.SOLVER, open=never))
    assert not can_abstain("tool-call") and not may_abstain(Notes())
    with pytest.raises(BadInput, match="tool-call has no way to abstain"):
        may_abstain(Notes(), abstention=True)


def test_an_abstention_is_not_found_and_has_no_sentence(index, says):
    says(SILENT)
    with quaere.Agent("a-model", index) as agent:
        answer = agent.ask("When will we move the backups?")
    assert answer.abstained and not answer.found and answer.support is None
    assert str(answer) == answer.text == "not in these documents"
    assert [result.query for result in answer.searches] == ["backups", "backups 2031"]
    says(SILENT)
    with quaere.Agent("a-model", index, abstention=False) as agent:
        answer = agent.ask("When will we move the backups?")
    assert not answer.abstained and answer.found


def test_an_answer_below_the_least_confidence_counts_as_an_abstention(index, says):
    """Every token of the script has a log-prob of -1."""
    says(TURNS)
    with quaere.Agent("a-model", index, min_confidence=0.37) as agent:
        answer = agent.ask("When did we move the backups?")
    assert answer.confidence == pytest.approx(math.exp(-1)) and answer.abstained and not answer.found
    assert answer.text == "May 2019" and str(answer) == "not in these documents"
    says(TURNS)
    with quaere.Agent("a-model", index, min_confidence=0.36) as agent:
        (answer,) = agent.ask_many(["When did we move the backups?"], progress=False)
    assert answer.found and not answer.abstained and str(answer) == "May 2019"


@pytest.mark.parametrize(("least", "found"), [(None, True), (0.2, True), (0.3, False)])
def test_the_answer_of_most_attempts_needs_its_share_of_them(index, says, least, found):
    """Of four attempts two abstain, and one each says Oss and May 2019: the first of them has a share of a quarter."""
    turns = [SILENT, TURNS, SILENT, [call("backups"), "<answer>Oss</answer>"]]
    says(None, {f"ask-0-a{number}": script for number, script in enumerate(turns)})
    shown = []
    with quaere.Agent("a-model", index, attempts=4, min_confidence=least) as agent:
        answer = agent.ask("When did we move the backups?", on_turn=shown.append)
    assert answer.text == "May 2019" and answer.confidence == 0.25 and answer.found == (not answer.abstained) == found
    assert tuple(shown) == answer.episode.turns and answer.episode.id == "ask-0"


def test_several_attempts_at_several_questions(index, says):
    says(TURNS)
    with quaere.Agent("a-model", index, attempts=3) as agent:
        answers = agent.ask_many(["When did we move the backups?", "And when was that?"], progress=False)
    assert [(answer.text, answer.confidence, answer.found) for answer in answers] == [("May 2019", 1.0, True)] * 2


def test_without_an_answer_there_is_no_confidence(index, says):
    says([call("backups")] * 2)
    with quaere.Agent("a-model", index, max_turns=2, min_confidence=0.9) as agent:
        answer = agent.ask("When?")
    assert answer.confidence is None and not answer.abstained and not answer.found and str(answer) == ""


def test_refusals(index, monkeypatch):
    with pytest.raises(BadInput, match="min_confidence must be from 0 to 1, not 50"):
        quaere.Agent("a-model", index, min_confidence=50)
    endpoint = "openai:gpt@http://127.0.0.1:9/v1"
    opened = ChatPolicy(OpenAISampler(parse_endpoint(endpoint)))
    monkeypatch.setattr("quaere.rollout.policy.open_policy", lambda model, **engine: opened)
    with pytest.raises(BadInput, match=r"cannot be measured: .* returns no probabilities of tokens") as refused:
        quaere.Agent(endpoint, index, min_confidence=0.5)
    assert "--attempts" in refused.value.hint
    quaere.Agent(endpoint, index).close()
    quaere.Agent(endpoint, index, min_confidence=0.5, attempts=3).close()
    with pytest.raises(BadInput, match="attempts must be at least 1, not 0"):
        quaere.Agent("a-model", index, attempts=0)
