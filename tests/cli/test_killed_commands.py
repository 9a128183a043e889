"""Commands that are killed at random moments: what stands at their target is whole, and run again they give the same.

Training is killed in tests/recipes/test_drzero_resume.py.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sys

import pytest
from test_eval_command import QUESTIONS
from test_export_command import make_base, make_run, write_adapters

from preloaded import Process, Value
from quaere.cli.main import main
from quaere.runs import Run, list_runs

TOUCHES = {"open", "os", "shutil", "fcntl", "sqlite3"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("killed")
    (root / "docs").mkdir()
    for number in range(40):
        text = f"# Bridge {number}\n\nOrsolya Venn built bridge {number} in 1702.\n"
        (root / "docs" / f"{number}.md").write_text(text)
    (root / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    assert main(["index", str(root / "docs"), "--out", str(root / "index")]) == 0
    make_base(root)
    make_run(root, "lora", write_adapters)
    return root


def command(kind, place, home):
    """What is typed, and what it writes."""
    warmup = ["--facts", "1", "--proposer-hops", "1", "--epochs", "1", "--batch", "4", "--articles", "200"]
    warmup += ["--episodes", "4", "--topk", "1", "--turn-tokens", "1024", "--tool-response-tokens", "200"]
    evaluation = ["--model", place / "base", "--device", "cpu", "--deterministic", "--guided", "--max-turns", "2"]
    evaluation += ["--turn-tokens", "8", "--runs", home / "runs", "--items", home / "out.jsonl"]
    words = {
        "index": ["index", place / "docs", "--out", home / "out"],
        "world": ["world", "--articles", "200", "--questions", "50", "--out", home / "out"],
        "warmup": ["warmup", "drzero", "--model", place / "base", "--device", "cpu", *warmup, "--out", home / "out"],
        "export": ["export", "lora", "--runs", place / "runs", "--merge", "--out", home / "out"],
        "eval": ["eval", "--questions", place / "questions.jsonl", "--index", place / "index", *evaluation],
    }[kind]
    return list(map(str, words)), home / ("out.jsonl" if kind == "eval" else "out")


def child(words, moment, counted):
    """Run a command and die at the n-th time it touches a file; or, with moment 0, count how often it does."""
    import torch

    torch.set_num_threads(1)
    seen = 0

    def touched(event, args):
        nonlocal seen
        seen += event.partition(".")[0] in TOUCHES
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(touched)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        code = main(words)
    if counted is not None:
        counted.value = seen
    os._exit(code)


def start(words, moment=0, counted=None):
    process = Process(target=child, args=(words, moment, counted))
    process.start()
    process.join()
    return process.exitcode


def digest(out):
    """What a command wrote, byte by byte; times in items of an evaluation apart."""
    if out.is_file():
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        return [{name: value for name, value in row.items() if not name.endswith(("_s", "seconds"))} for row in rows]
    files = sorted(path for path in out.rglob("*") if path.is_file())
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def stored(home):
    """The episodes of the evaluation that was finished, by their tokens."""
    finished = [summary for summary in list_runs(home / "runs") if summary.num_episodes == len(QUESTIONS)]
    with Run.open(home / "runs" / finished[-1].id) as run:
        return {episode.id: (episode.token_ids, episode.end) for episode in run.episodes()}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["index", "world", "warmup", "export", "eval"])
@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_killed_command_gives_the_same_when_it_is_run_again(place, tmp_path, kind, kills):
    (tmp_path / "home").mkdir()
    words, out = command(kind, place, tmp_path / "home")
    counted = Value(0)
    assert start(words, counted=counted) == 0
    expected = digest(out)
    episodes = stored(tmp_path / "home") if kind == "eval" else None
    draw, num_kills = random.Random(kind), 0
    for _ in range(3 * kills):
        shutil.rmtree(tmp_path / "home")
        (tmp_path / "home").mkdir()
        # Some of what is touched depends on what was touched before: caches of Python's, for one.
        code = start(words, moment=draw.randint(1, counted.value))
        assert code in (0, -signal.SIGKILL)
        num_kills += code != 0
        assert not out.exists() or digest(out) == expected  # nothing, or all of it
        if code != 0 and not out.exists():
            assert start(words) == 0
            assert digest(out) == expected
            assert {path.name for path in out.parent.iterdir()} <= {out.name, "runs"}  # no leftovers
            assert kind != "eval" or stored(tmp_path / "home") == episodes
        if num_kills == kills:
            break
    assert num_kills == kills
