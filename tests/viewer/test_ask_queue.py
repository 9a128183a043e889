"""Questions to one agent: their order, their cancelling, their history."""

import json
import os
import threading
from types import SimpleNamespace

import pytest
from msgspec import structs

import quaere
import tiny
from asked import ask_and_wait, open_queue, wait_until, write_documents
from backups import SENTENCE
from quaere.chat.renderer import Renderer
from quaere.errors import BadInput
from quaere.policies.native.bridge import use_packed_attention
from quaere.policies.native.sampler import NativeSampler
from quaere.rollout.policy import TokenPolicy
from quaere.viewer import ask_queue
from quaere.viewer.ask_queue import AskHistory, AskQueue, AskRecord, QueueFull


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return write_documents(tmp_path_factory.mktemp("asked"))


def test_an_answer_has_its_turns_and_evidence(index):
    with open_queue(index) as queue:
        record = ask_and_wait(queue, "When did we move the backups?")
    assert (record.state, record.answer, record.quotes, record.problem) == ("answered", "May 2019", True, "")
    assert record.evidence.text == SENTENCE and record.evidence.doc_id == "ops.md"
    assert [type(turn.action).__name__ for turn in record.turns] == ["Search", "Answer"]


@pytest.mark.parametrize(
    ("question", "state", "evidence", "span", "support"),
    [
        ("made up", "answered", False, "We never moved.", False),
        ("without proof", "answered", False, "", True),
        ("out of nowhere", "answered", False, "", False),
        ("no answer", "unanswered", False, "", False),
        ("not said", "abstained", False, "", False),
        ("breaks", "failed", False, "", False),
    ],
)
def test_each_end_is_told_apart(index, question, state, evidence, span, support):
    with open_queue(index, max_turns=3) as queue:
        record = ask_and_wait(queue, question)
        assert record.state == state and (record.evidence is not None) == evidence and record.span == span
        assert (record.support is not None) == support and bool(record.problem) == (state != "answered")
        assert ask_and_wait(queue, "When did we move the backups?").state == "answered"  # the next one is


def test_questions_are_answered_one_at_a_time_in_their_order(index):
    with open_queue(index) as queue:
        ids = [queue.add(f"{text}?").id for text in ("wait for it", "move the backups", "made up")]
        wait_until(lambda: len(queue.find(ids[0]).turns) == 1)
        assert [queue.find(id).state for id in ids] == ["running", "waiting", "waiting"]
        assert [queue.place(id) for id in ids] == [0, 1, 2]
        assert [line.id for line in queue.lines()] == ids[::-1]
        assert len(queue.sampler.sessions) == 1  # the model is asked nothing else meanwhile
        queue.cancel(ids[1])
        queue.cancel(ids[0])
        wait_until(lambda: queue.find(ids[2]).is_over)
        assert [queue.find(id).state for id in ids] == ["cancelled", "cancelled", "answered"]
        assert queue.sampler.cancelled and len(queue.find(ids[0]).turns) == 1
        queue.cancel(ids[2])
        assert queue.find(ids[2]).state == "answered"
        assert queue.find("nowhere") is None


def test_a_full_queue_and_an_empty_question_are_refused(index, monkeypatch):
    monkeypatch.setattr(ask_queue, "MAX_WAITING", 2)
    with open_queue(index) as queue:
        first = queue.add("wait for it").id
        wait_until(lambda: queue.find(first).state == "running")
        queue.add("made up")
        queue.add("made up")
        with pytest.raises(QueueFull, match="2 questions are waiting"):
            queue.add("made up")
        for text in ("", "  \n", "x" * 4001):
            with pytest.raises(BadInput, match="1 to 4000 characters"):
                queue.add(text)
        with pytest.raises(QueueFull):  # not too long
            queue.add("x" * 4000)


class Endless(NativeSampler):
    """Stops at nothing but the number of tokens."""

    async def sample(self, session, token_ids, params, on_tokens=None):
        params = structs.replace(params, stop=(), stop_token_ids=())
        return await super().sample(session, token_ids, params, on_tokens)


def test_cancelling_stops_the_engine_in_the_middle_of_a_turn(index, monkeypatch):
    tokenizer = tiny.tokenizer()
    sampler = Endless.over(use_packed_attention(tiny.model()), tokenizer.decode, name="tiny", max_rows=1)
    monkeypatch.setattr(
        "quaere.rollout.policy.open_policy", lambda model, **engine: TokenPolicy(sampler, Renderer(tokenizer))
    )
    agent = quaere.Agent("tiny", index, style="brief", turn_tokens=3000, sequence_tokens=4000)
    with agent, AskQueue(agent, AskHistory()) as queue:
        id = queue.add("When?").id
        wait_until(lambda: any(row.num_launched > 5 for row in sampler.engine.rows))
        (row,) = sampler.engine.rows
        queue.cancel(id)
        wait_until(lambda: queue.find(id).is_over and not sampler.engine.busy)
        assert queue.find(id).state == "cancelled" and 5 < row.num_launched < 3000


def test_closing_cancels_what_runs_and_what_waits(index):
    with open_queue(index) as queue:
        ids = [queue.add("wait for it").id, queue.add("made up").id]
        wait_until(lambda: len(queue.find(ids[0]).turns) == 1)
    assert [queue.history.read(id).state for id in ids] == ["cancelled", "cancelled"]
    with pytest.raises(BadInput, match="ending"):
        queue.add("one more?")


def test_no_thread_of_a_queue_keeps_the_process_alive(index):
    """A second Ctrl-C ends the viewer, also in the middle of a turn that cannot be stopped."""
    before = set(threading.enumerate())
    with open_queue(index):
        begun = set(threading.enumerate()) - before
        assert begun and all(thread.daemon for thread in begun)


# ------------------------------------------------------------------------------------------------------------- history


def test_a_history_file_outlives_its_viewer(index, tmp_path):
    file = tmp_path / "asked.jsonl"
    with open_queue(index, history=AskHistory(file)) as queue:
        first = ask_and_wait(queue, "When did we move the backups?")
        with pytest.raises(BadInput, match="another viewer"):
            AskHistory(file)
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == [first.id]
    with file.open("a") as half:
        half.write('{"id": "half')  # of a process that was killed
    history = AskHistory(file)
    assert history.read(first.id) == first and [line.answer for line in history.lines()] == ["May 2019"]
    history.add(AskRecord("second", "Who?", first.time, "cancelled"))
    history.close()
    again = AskHistory(file)
    assert [line.id for line in again.lines()] == ["second", first.id] and again.read("second").question == "Who?"
    again.close()


def test_a_file_of_something_else_is_left_alone(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("my notes\n")
    with pytest.raises(BadInput, match="line 1: not a question"):
        AskHistory(file)
    assert file.read_text() == "my notes\n"
    (tmp_path / "link").symlink_to(file)
    for path in (tmp_path / "link", tmp_path / "nowhere/asked.jsonl", tmp_path):
        with pytest.raises(BadInput, match="cannot write"):
            AskHistory(path)


@pytest.mark.parametrize("fails", ["pwrite", "fsync"])  # some disks say only at the end that they are full
def test_what_cannot_be_written_is_kept_and_said(tmp_path, monkeypatch, fails):
    history = AskHistory(tmp_path / "asked.jsonl")
    first, second = (AskRecord(id, "Who?", "2025-03-01T10:15:00+00:00", "answered", id) for id in ("a", "b"))
    history.add(first)

    def full(*given):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ask_queue, "os", SimpleNamespace(**{**vars(os), fails: full}))
        history.add(second)
    assert history.read("a") == first and history.read("b") == second and "No space left" in history.said
    history.close()
    assert len((tmp_path / "asked.jsonl").read_text().splitlines()) == 1


def test_an_answer_that_does_not_count_as_found_is_none(index):
    with open_queue(index, min_overlap=1.0) as queue:  # no passage has all words of the question
        record = ask_and_wait(queue, "When did we move the backups to Bergen, Tromsø and Narvik?")
    assert (record.state, record.answer, record.evidence) == ("unanswered", "", None)
    assert record.problem.startswith("not found in these documents") and "May 2019" in record.problem


def test_an_abstention_is_a_state_of_its_own_with_what_was_searched(index):
    with open_queue(index) as queue:
        record = ask_and_wait(queue, "not said")
        assert queue.lines()[0].state == "abstained"
    assert (record.answer, record.support) == ("", None)
    assert record.problem == "not in these documents"
    assert [result.query for turn in record.turns for result in turn.results] == ["Korrin", "Korrin hills"]


def test_an_answer_of_low_confidence_is_an_abstention(index):
    with open_queue(index, min_confidence=0.5) as queue:  # every token of the script has a probability of 0.37
        record = ask_and_wait(queue, "without proof")
    assert (record.state, record.answer) == ("abstained", "")
    assert record.problem.endswith("(it has an answer, with a confidence of 0.37, below 0.5)")


def test_a_record_that_is_no_unicode_does_not_end_the_queue(index, tmp_path, monkeypatch):
    """As a passage of a search function may have it, read from a file with names of other bytes."""
    with open_queue(index, history=AskHistory(tmp_path / "asked.jsonl")) as queue:
        with monkeypatch.context() as patch:
            patch.setattr(ask_queue, "describe_answer", lambda *given: {"state": "answered", "answer": "\udcff"})
            first = ask_and_wait(queue, "When did we move the backups?")
        second = ask_and_wait(queue, "When did we move the backups?")
        assert (first.answer, second.state) == ("\udcff", "answered") and "cannot be written" in queue.history.said
    assert len((tmp_path / "asked.jsonl").read_text().splitlines()) == 1
