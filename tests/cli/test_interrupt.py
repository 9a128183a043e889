"""Ctrl-C in a command that waits for a model: said at once, and over although the model cannot be broken off."""

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


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    root = tmp_path_factory.mktemp("interrupt")
    (root / "halm.md").write_text("Venn built Halm.")
    assert main(["index", str(root / "halm.md"), "--out", str(root / "index")]) == 0
    return root / "index"


@pytest.mark.parametrize("doing", ["load", "sample"])
@pytest.mark.parametrize("times", [1, 2])
def test_it_is_said_and_the_process_leaves(index, doing, times):
    command = [sys.executable, "-c", SCRIPT, doing, str(index)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr.readline() == b"under way\n"
            for _ in range(times):
                process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=120)  # it would wait for ever
        finally:
            process.kill()
    assert process.returncode == 130
    assert b"stopping; what is finished is stored" in said and b"Traceback" not in said
