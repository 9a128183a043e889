"""`quaere learn` killed at random moments, in every stage: the same command goes on and ends with the same weights."""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
from collections import Counter

import pytest
from test_killed_commands import TOUCHES, child

import quaere
from dictating import dictating
from learning_runs import (
    ADDED,
    BUILDERS,
    FORM,
    MOVED,
    SMALL,
    answer,
    change_pages,
    digest,
    let_write,
    make_place,
    write_pages,
)
from preloaded import Process, Value
from quaere.api.learning import Learning
from quaere.cli.main import main

STAGES = ("plan", "index", "questions", "split", "form", "before", "reinforcement", "after", "agent")  # and the page


def learn(words, stage="", moment=0, counts=None):
    """The command with a writer that can write, which dies at the n-th time it touches a file in a stage.

    Without a stage, it writes how often each one touches files. What comes before the first stage is the plan.
    """
    import torch

    let_write(pytest.MonkeyPatch())
    torch.set_num_threads(1)
    seen, began, under_way = Counter(), Learning._timed, "plan"

    def begin(self, name):
        nonlocal under_way
        under_way = name
        return began(self, name)

    def touched(event, args):
        seen[under_way] += event.partition(".")[0] in TOUCHES
        if under_way == stage and seen[stage] == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    Learning._timed = begin
    sys.addaudithook(touched)
    with open(os.devnull, "w") as nowhere, contextlib.ExitStack() as held:
        for redirect in (contextlib.redirect_stdout, contextlib.redirect_stderr):
            held.enter_context(redirect(nowhere))
        held.enter_context(dictating(answer))  # else there would be nothing to learn
        code = main(words)
    if counts:
        counts.write_text(json.dumps(seen))
    os._exit(code)


def update(words, moment=0, counted=None, place=""):
    """The same after pages have changed; with a place, it dies when it first touches a file whose path has it."""

    def touched(event, args):
        if place and any(place in arg for arg in args if isinstance(arg, str)):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(touched)
    BUILDERS.update({**MOVED, **ADDED})
    let_write(pytest.MonkeyPatch())
    with dictating(answer):
        child(words, moment, counted)


def start(words, *how, target=learn):
    process = Process(target=target, args=(words, *how))
    process.start()
    process.join()
    return process.exitcode


def read(home):
    """What must be the same: the questions, the scores, and the weights of the form, the run and the agent."""
    texts = [(home / name).read_text() for name in ("questions.jsonl", "held.jsonl", "before.json", "after.json")]
    return [*texts, *(digest(home / name) for name in ("form", "run", "agent"))]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_killed_in_every_stage_it_ends_with_the_same_weights(weighing_paths, tmp_path, kills):
    given = make_place(weighing_paths, tmp_path, taught=False)
    home, pages, counts = tmp_path / "home", write_pages(tmp_path / "pages"), tmp_path / "counts.json"
    settings = {**SMALL, **FORM, "writer.minutes": 0}
    words = ["learn", pages, "--model", given["model"], "--out", home, "--device", "cpu", "--anyway"]
    words += [word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    words = list(map(str, words))
    assert start(words, "", 0, counts) == 0
    expected, draw, touches = read(home), random.Random(kills), json.loads(counts.read_text())
    assert set(touches) == set(STAGES) and digest(home / "agent") != digest(home / "form")
    for _ in range(kills):
        shutil.rmtree(home)
        left = list(STAGES)
        while left:  # each kill leaves less to do; a call that goes on may touch less, and end
            code = start(words, left[0], draw.randint(1, touches[left[0]]))
            assert code in (0, -signal.SIGKILL)
            if code == 0:
                assert read(home) == expected
                shutil.rmtree(home)
            else:
                left.pop(0)
        assert start(words) == 0 and read(home) == expected


# ------------------------------------------------------------------------------------------------------- an update

PLACES = ("updates/1/kept.jsonl", "updates/1/after.json", "updates/1/report.html")
ALL_PLACES = ("index", "updates", "updates/1/new.jsonl", "updates/1/held.jsonl", "updates/1/before", "updates/1/run")
ALL_PLACES = (*ALL_PLACES, "updates/1/after/", "updates/1/agent", "updates/1/report.json", "updates/1/update.json")


@pytest.fixture
def changed(weighing_paths, tmp_path):
    """A finished learning whose pages have changed since, and the words of its update."""
    given, pages = make_place(weighing_paths, tmp_path), write_pages(tmp_path / "pages")
    settings = {**SMALL, "writer.minutes": 0, "solver.steps": 10}
    words = ["learn", pages, "--model", given["model"], "--out", tmp_path / "home", "--device", "cpu"]
    words += [word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    words = list(map(str, words))
    assert start(words) == 0
    change_pages(pages)
    return tmp_path / "home", [*words, "--update"]


def ask(home):
    """The agent can be asked, whatever it says."""
    with quaere.Agent(home / "agent", home / "index", device="cpu", max_turns=2, turn_tokens=4) as agent:
        return agent.ask("Who built Halm Mill?")


def is_finished(home):
    return (home / "updates/1/update.json").exists()


@pytest.mark.filterwarnings("ignore::quaere.errors.StaleIndex")
@pytest.mark.parametrize("places", [PLACES, pytest.param(ALL_PLACES, marks=pytest.mark.slow)])
def test_a_killed_update_leaves_the_old_agent_or_the_new_one(changed, places):
    home, words = changed
    old, agents = digest(home / "agent"), []
    for place in places:  # each kill leaves less to do
        assert start(words, 0, None, str(home / place), target=update) == -signal.SIGKILL
        assert not is_finished(home) and ask(home)
        agents.append(digest(home / "agent"))
    assert start(words, target=update) == 0 and is_finished(home)
    new = digest(home / "agent")
    num_old = agents.count(old)
    assert new != old and num_old and agents == [old] * num_old + [new] * (len(places) - num_old)
    assert {one["document"] for one in json.loads((home / "updates/1/update.json").read_text())["retired"]}
    assert start(words, target=update) == 2  # nothing changed since


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore::quaere.errors.StaleIndex")
def test_an_update_killed_at_random_moments_ends_with_the_same(changed, tmp_path):
    home, words = changed
    old, counted, draw = digest(home / "agent"), Value(0), random.Random(0)
    shutil.copytree(home, tmp_path / "kept")
    assert start(words, 0, counted, target=update) == 0
    expected = read_update(home)
    for _ in range(6):
        shutil.rmtree(home)
        shutil.copytree(tmp_path / "kept", home)
        for _ in range(3):
            if is_finished(home):
                break
            assert start(words, draw.randint(1, counted.value), target=update) in (0, -signal.SIGKILL)
            assert digest(home / "agent") in (old, expected[-1]) and ask(home)
        assert is_finished(home) or start(words, target=update) == 0
        assert read_update(home) == expected


def read_update(home):
    """What must be the same: the questions, the scores and the agent."""
    names = ("questions.jsonl", "held.jsonl", "before.json", "after.json", "update.json")
    return [*((home / "updates/1" / name).read_text() for name in names), digest(home / "agent")]
