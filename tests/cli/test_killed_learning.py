"""`quaere learn` killed at random moments, in every stage: the same command goes on and ends with the same weights."""

import json
import random
import shutil
import signal

import pytest
from test_killed_commands import child

from learning_runs import FORM, SMALL, digest, let_write, make_place, write_pages
from preloaded import Process, Value


def learn(words, moment, counted):
    """The command with a writer that can write, which dies at the n-th time it touches a file."""
    let_write(pytest.MonkeyPatch())
    child(words, moment, counted)


def start(words, moment=0, counted=None):
    process = Process(target=learn, args=(words, moment, counted))
    process.start()
    process.join()
    return process.exitcode


def read(home):
    """What must be the same: the questions, the scores, and the weights of the form, the run and the agent."""
    texts = [(home / name).read_text() for name in ("questions.jsonl", "held.jsonl", "before.json", "after.json")]
    return [*texts, *(digest(home / name) for name in ("form", "run", "agent"))]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_learning_goes_on(weighing_paths, tmp_path):
    given = make_place(weighing_paths, tmp_path, taught=False)
    home, pages = tmp_path / "home", write_pages(tmp_path / "pages")
    settings = {**SMALL, **FORM, "writer.minutes": 0}
    words = ["learn", pages, "--model", given["model"], "--out", home, "--device", "cpu", "--anyway"]
    words += [word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    words, counted = list(map(str, words)), Value(0)
    assert start(words, counted=counted) == 0
    expected, draw, stages = read(home), random.Random(0), set()
    for _ in range(8):
        shutil.rmtree(home)
        for _ in range(3):  # each kill leaves less to do
            code = start(words, moment=draw.randint(1, counted.value))
            assert code in (0, -signal.SIGKILL)
            stages.add(tuple(sorted(path.name for path in home.glob("[!.]*")) if home.exists() else ()))
        assert start(words) == 0 and read(home) == expected
    assert len(stages) > 3
