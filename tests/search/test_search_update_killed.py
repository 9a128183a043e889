"""An update that is killed at any moment leaves the old index or the new one."""

import contextlib
import os
import random
import shutil
import signal
import sys

import pytest

from preloaded import Process, Value
from quaere.cli.main import main
from quaere.search.index import open_index
from quaere.search.index_build import build_index, update_index

TOUCHES = {"open", "os", "shutil", "fcntl", "ctypes"}
QUERIES = ["halm bridge", "eel weir", "korrin lamp"]


def child(words, moment, counted):
    """Run a command and die at the n-th time it touches a file; or, with moment 0, count how often it does."""
    seen = 0

    def touched(event, args):
        nonlocal seen
        seen += event.partition(".")[0] in TOUCHES
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(touched)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        code = main(words)
    counted.value = seen
    os._exit(code)


def start(words, moment, counted):
    process = Process(target=child, args=(words, moment, counted))
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_a_killed_update_leaves_the_old_index_or_the_new_one(folder, tmp_path, kills):
    index, kept = tmp_path / "index", tmp_path / "kept"
    build_index(folder, index)
    shutil.copytree(index, kept)
    (folder / "new.txt").write_text("eel weir")
    (folder / "rivers.md").unlink()
    words, counted = ["index", "--update", str(index)], Value(0)
    old = open_index(kept, check_sources=False)
    assert start(words, 0, counted) == 0
    new = open_index(index)
    found = {each.fingerprint: each.search(QUERIES, 3) for each in (old, new)}
    assert len(found) == 2
    draw, moments = random.Random(0), counted.value
    ended = set()
    # The last moments are those around the exchange of the two folders.
    tried = [draw.randint(1, moments) for _ in range(kills)] + [moments - number for number in range(0, 60, 10)]
    for moment in tried:
        shutil.rmtree(index)
        shutil.copytree(kept, index)
        assert start(words, moment, counted) in (0, -signal.SIGKILL)
        left = open_index(index, check_sources=False)
        assert left.search(QUERIES, 3) == found[left.fingerprint]
        ended.add(left.fingerprint)
        update_index(index)
        assert open_index(index).fingerprint == new.fingerprint
        assert {path.name for path in tmp_path.iterdir()} == {"docs", "index", "kept"}  # no leftovers
    assert ended == set(found)
