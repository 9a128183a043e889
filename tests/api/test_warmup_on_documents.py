"""Lessons from documents, as far as nothing is taught: who is asked, what is told, and what follows the seed."""

from pathlib import Path

import pytest
from msgspec import structs

import quaere
import tiny
from backups import DOCUMENT, SENTENCE, call
from quaere.api.warmup_documents import obtain_questions, play_documents
from quaere.api.warmup_settings import WarmupSettings
from quaere.chat.renderer import Renderer
from quaere.records import Evaluate, Evidence
from quaere.rollout.episode import Limits
from quaere.warmup.documents.checked_question import CheckedQuestion

START = DOCUMENT.index(SENTENCE)
EVIDENCE = Evidence("ops.md", START, START + len(SENTENCE), SENTENCE)
QUESTIONS = [
    CheckedQuestion(id, "When did we move the backups?", ("May 2019",), "single", 1, 1, 1, (EVIDENCE,)) for id in "ab"
]
# The tiny tokenizer takes three times as many tokens as a real one.
LIMITS = Limits(turn_tokens=1024, sequence_tokens=20_000, tool_response_tokens=2000)


def settings(**given):
    usual = {"recipe": "drzero", "model": "a-model", "out": Path("warm"), "index": Path("notes-index")}
    return WarmupSettings(**{**usual, "proposer_hops": (1,), "attempts": 2, **given})


@pytest.fixture(autouse=True)
def _index(notes):
    quaere.Index.build("notes/", "notes-index")


def play(told, **given):
    return play_documents(
        settings(**given),
        QUESTIONS,
        Renderer(tiny.tokenizer()),
        limits=lambda dialect: LIMITS,
        note=told.append,
        progress=lambda *counted: None,
    ).episodes


def test_a_solvers_attempts_follow_the_seed_and_the_model_is_let_go_of(says):
    stopped, told = says([call("backups"), "<answer>May 2019</answer>"]), []
    first, again, other = (play(told, roles=("solver",), seed=seed) for seed in (3, 3, 4))
    assert [episode.seed for episode in first] == [episode.seed for episode in again]
    assert not {episode.seed for episode in first} & {episode.seed for episode in other}
    assert stopped == ["a-model"] * 3
    assert told == ["drzero: 2 of 2 questions answered well"] * 3


def test_scores_of_searches_are_those_of_the_evidence_not_the_models_own(says):
    search = '<tool_call>{"name": "search", "arguments": {"query": "backups"}}</tool_call>'
    scored = '<tool_call>{"name": "evaluate", "arguments": {"evaluation": "No.", "score": 2}}</tool_call>'
    says([search, scored, "<answer>May 2019</answer>"])
    told: list[str] = []
    episodes = play(told, recipe="evalact")
    assert told[0] == "evalact: 2 of 2 questions answered well"
    assert told[1].endswith("bad searches scored by the questions' evidence")
    scores = [turn.action.score for episode in episodes for turn in episode.turns if isinstance(turn.action, Evaluate)]
    assert len(episodes) >= 4  # two attempts each, and more with bad searches, which are half
    assert set(scores) == {1, 10} and abs(scores.count(1) - scores.count(10)) <= 2

    def num_learnt(**given):
        return [sum(map(sum, (part.loss_mask for part in one.segments))) for one in play([], recipe="evalact", **given)]

    assert sum(num_learnt(scores_only=True)) < sum(num_learnt())
    assert num_learnt(shuffle_scores=True) != num_learnt()


def test_a_proposers_thoughts_follow_the_seed():
    def thoughts(seed):
        return [turn.text for episode in play([], roles=("proposer",), seed=seed) for turn in episode.turns]

    assert thoughts(1) == thoughts(1) != thoughts(2)


def test_a_model_that_writes_no_question_was_loaded_for_it_and_leaves_no_file(says, tmp_path):
    stopped, told = says(["I cannot."]), []
    with pytest.raises(quaere.BadInput, match="became a question that passed every check"):
        obtain_questions(settings(drafts=2), told.append, lambda *counted: None)
    assert told == ["loading a-model"] and stopped == ["a-model"]
    assert not Path("warm-questions.jsonl").exists()


def test_hardenings_are_taught_out_of_chains(monkeypatch):
    """One chain ends with a question of the file: that is what a proposer is given, and the chain what it writes."""
    start = len("# The Oss\n\n")
    rises = "The Oss rises in the Korrin hills."
    first, told = Evidence("oss.md", start, start + len(rises), rises), []
    question = "When did we move what rises in the Korrin hills?"
    chain = CheckedQuestion("first>a", question, ("May 2019",), "chain", 2, 2, 2, (first, EVIDENCE))
    monkeypatch.setattr(f"{__name__}.QUESTIONS", [*QUESTIONS, chain, structs.replace(chain, id="second>b")])
    episodes = play(told, roles=("proposer",), proposer_task="harden")
    assert [episode.task.given.id for episode in episodes] == ["a", "b"]
    assert {episode.outcome.question for episode in episodes} == {chain.question}
    assert told == ["drzero: 2 questions shown as a proposer arrives at them"]
    given = play([], roles=("proposer",), proposer_task="reword")
    assert [(len(one.turns), one.task.beside.doc_id) for one in given] == [(1, "oss.md")] * 2


def test_hardening_needs_documents():
    with pytest.raises(quaere.BadInput, match="--proposer-task harden needs --index"):
        settings(index=None, proposer_task="harden").check()
