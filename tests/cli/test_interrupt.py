"""Ctrl-C in a long command: said at once, and over although a model cannot be broken off.

Training, which stops in two steps, is interrupted in test_evolve_command.py.
"""

import signal
import subprocess
import sys

import pytest

from quaere.cli.main import main

SCRIPT = """
import asyncio, sys, threading
from quaere.cli import ask
from quaere.cli.main import main

def never():
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

ask._ask = globals()[sys.argv[1]]
sys.exit(main(["ask", "Who?", "--index", sys.argv[2]]))
"""
LONG = """
import sys, threading
from importlib import import_module
from quaere.cli.main import main

def never(*args, **options):
    print("under way", file=sys.stderr, flush=True)
    threading.Event().wait()

module, name = sys.argv[1].rsplit(".", 1)
setattr(import_module(module), name, never)
sys.exit(main(sys.argv[2:]))
"""
# By command: what is at work in it, what is typed, and what is said to become of the work.
COMMANDS = {
    "index": ("quaere.search.index.build_index", ["DIR", "--out", "DIR/new"], b"an index that was there stays"),
    "questions": (
        "quaere.cli.questions._ask_index",
        ["--index", "INDEX", "--out", "DIR/q.jsonl"],
        b"nothing is written",
    ),
    "warmup": (
        "quaere.api.warmup.warm_up",
        ["drzero", "--model", "tiny", "--out", "DIR/warm"],
        b"no model is written",
    ),
    "eval": (
        "quaere.cli.eval._evaluate",
        ["--model", "tiny", "--questions", "DIR/asked.jsonl", "--index", "INDEX"],
        b"episodes that are finished are stored",
    ),
    "verify": (
        "quaere.cli.verify._verify",
        ["DIR/claims.jsonl", "--model", "tiny"],
        b"no result is written",
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


@pytest.mark.parametrize("doing", ["load", "sample"])
@pytest.mark.parametrize("times", [1, 2])
def test_it_is_said_and_the_process_leaves(index, doing, times):
    said = interrupt([sys.executable, "-c", SCRIPT, doing, str(index)], times)
    assert b"stopping; what is finished is stored; press Ctrl-C again to stop now" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_every_long_command_answers(index, name):
    at_work, typed, kept = COMMANDS[name]
    places = [word.replace("DIR", str(index.parent)).replace("INDEX", str(index)) for word in typed]
    said = interrupt([sys.executable, "-c", LONG, at_work, name, *places], 1)
    assert b"stopping; " + kept in said and b"press Ctrl-C again to stop now" in said


def interrupt(command, times):
    """Press Ctrl-C so often while a command works that would never end; what it says."""
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            assert b"under way\n" in iter(process.stderr.readline, b"")
            for _ in range(times):
                process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=120)  # it would wait for ever
        finally:
            process.kill()
    assert process.returncode == 130
    assert b"Traceback" not in said
    return said
