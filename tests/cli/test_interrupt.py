"""Ctrl-C in a long command: said at once, and over although a model cannot be broken off.

Training, which stops in two steps, is interrupted in test_evolve_command.py.
"""

import asyncio
import os
import signal
import sys
import threading
from argparse import Namespace
from importlib import import_module

import pytest

import tiny
from backups import call
from preloaded import start
from quaere.api.agent import OpenAgent
from quaere.chat.renderer import Renderer
from quaere.cli import ask, terminal
from quaere.cli.main import main
from quaere.dialects.notes import Notes
from quaere.dialects.tool_call import ToolCallSolver
from quaere.records import Question
from quaere.rollout.episode import Limits
from quaere.rollout.policy import TokenPolicy
from quaere.runs import Run
from scripted import ScriptedSampler


def never(*args, **options):
    print("under way", file=sys.stderr, flush=True)
    threading.Event().wait()


async def load(*args):
    never()  # as weights are read: no coroutine has a turn meanwhile


async def sample(*args):
    try:
        print("under way", file=sys.stderr, flush=True)
        await asyncio.Event().wait()
    finally:
        await asyncio.to_thread(never)  # the engine's thread is joined, after the step it is in


def ask_for_ever(doing, index, grace_s):
    """In a process of its own: a question to a model that never comes to an end."""
    terminal.GRACE_S, terminal.ONE_PRESS_S = grace_s, 0
    ask._ask = doing
    sys.exit(main(["ask", "Who?", "--index", index]))


def work_for_ever(at_work, words):
    """In a process of its own: a command in which this function never comes to an end."""
    module, name = at_work.rsplit(".", 1)
    setattr(import_module(module), name, never)
    sys.exit(main(words))


# By command: what is at work in it, what is typed, and what is said to become of the work.
COMMANDS = {
    "index": ("quaere.search.index_build.build_index", ["DIR", "--out", "DIR/new"], "an index that was there stays"),
    "questions": (
        "quaere.cli.questions._ask_index",
        ["--index", "INDEX", "--out", "DIR/q.jsonl"],
        "nothing is written",
    ),
    "warmup": (
        "quaere.api.warmup.warm_up",
        ["drzero", "--model", "tiny", "--out", "DIR/warm"],
        "no model is written",
    ),
    "eval": (
        "quaere.cli.eval._evaluate",
        ["--model", "tiny", "--questions", "DIR/asked.jsonl", "--index", "INDEX"],
        "episodes that are finished are stored, and `quaere",
    ),
    "verify": (
        "quaere.cli.verify._verify",
        ["DIR/claims.jsonl", "--model", "tiny"],
        "no result is written",
    ),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    root = tmp_path_factory.mktemp("interrupt")
    (root / "halm.md").write_text("# Halm\n\nVenn built Halm.")
    (root / "asked.jsonl").write_text('{"question": "Who built Halm?", "answers": ["Venn"]}\n')
    claim = '{"question": "Who built Halm?", "answer": "Venn", "evidence": "Venn built Halm."}\n'
    (root / "claims.jsonl").write_text(claim)
    assert main(["index", str(root / "halm.md"), "--out", str(root / "index")]) == 0
    return root / "index"


@pytest.mark.parametrize("doing", [load, sample])
@pytest.mark.parametrize(("times", "grace_s"), [(1, 0.2), (2, 1e6)])
def test_it_is_said_and_the_process_leaves(index, doing, times, grace_s):
    said = press(times, ask_for_ever, doing, str(index), grace_s)
    assert "stopping; what is finished is stored; press Ctrl-C again to stop now" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_every_long_command_answers(index, name):
    at_work, typed, kept = COMMANDS[name]
    places = [word.replace("DIR", str(index.parent)).replace("INDEX", str(index)) for word in typed]
    said = press(1, work_for_ever, at_work, [name, *places])
    assert f"stopping; {kept}" in said and "press Ctrl-C again to stop now" in said


def test_after_the_work_ctrl_c_is_what_it_was():
    before = signal.getsignal(signal.SIGINT)
    try:
        with terminal.interruptible():
            assert signal.getsignal(signal.SIGINT) is not before
        assert signal.getsignal(signal.SIGINT) is before
        with pytest.raises(ValueError, match="broken"), terminal.interruptible():
            raise ValueError("broken")
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, before)


def press(times, target, *args):
    """Press Ctrl-C so often while a command works that would never end; what it says."""
    process, stderr = start(target, *args)
    said = ""
    with stderr:
        try:
            assert "under way\n" in iter(stderr.readline, "")
            for number in range(times):
                if number:  # or the system takes two for one
                    said += next(line for line in iter(stderr.readline, "") if "stopping" in line)
                if process.is_alive():  # with no work to wait for, the first may have been enough
                    os.kill(process.pid, signal.SIGINT)
            said += stderr.read()
            process.join(timeout=120)  # it would wait for ever
        finally:
            process.kill()
    assert process.exitcode == 130
    assert "Traceback" not in said
    return said


async def test_answers_that_are_finished_are_stored_although_an_earlier_question_is_not(tmp_path):
    """The rest is stored in the order of the questions, and so with the first of them."""

    class Held(tiny.ListSearcher):
        async def search(self, queries, topk):
            if self.queries:
                await asyncio.Event().wait()
            return await super().search(queries, topk)

    tokenizer = tiny.tokenizer()
    scripts = {"slow": [call("a"), call("b"), "<answer>Oss</answer>"], "quick": ["<answer>Venn</answer>"]}
    ended = asyncio.Event()

    class Policy(TokenPolicy):
        def close(self, session):
            super().close(session)
            ended.set()

    policy = Policy(ScriptedSampler(tokenizer, scripts), Renderer(tokenizer))
    agent = OpenAgent(policy, Held(), ToolCallSolver(), Limits(), Notes(), 0.0)
    questions = [Question(name, "Who?", answers=("Venn",)) for name in scripts]
    with Run.start(tmp_path, "ask") as stored:
        asking = asyncio.create_task(ask._ask_many(Namespace(json=True), questions, agent, stored))
        await ended.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert [(row.id, row.answer) for row in stored.index()] == [("quick", "Venn")]
