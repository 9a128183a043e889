"""A run that is killed, wherever, ends as if it had never been; a retriever that dies for a while does not end it."""

import asyncio
import hashlib
import os
import random
import re
import signal
import threading
import time

import msgspec
import pytest

from preloaded import Process
from quaere.errors import TrainingStopped
from quaere.recipes.drzero import train
from quaere.runs import Run, checkpoints
from quaere.runs.checkpoints import find_checkpoints
from quaere.search.index import open_index
from quaere.serving.server import ServerSettings, make_search_server
from village_runs import Told, make_config, run_drzero


class Server:
    """The real search server on a port of its own; it may dawdle, and it may die."""

    def __init__(self, index, port=0, delay_s=0.0):
        self.index, self.port, self.delay_s = index, port, delay_s
        self.num_requests = 0

    def start(self):
        server = make_search_server(open_index(self.index), ServerSettings(port=self.port))
        self.port = server.listener.getsockname()[1]
        app, draw = server.config.app, random.Random(self.port)

        async def slow(scope, receive, send):
            if scope["type"] == "http":
                self.num_requests += 1
                await asyncio.sleep(draw.random() * self.delay_s)
            await app(scope, receive, send)

        server.config.app = slow
        self.server = server
        self.thread = threading.Thread(target=server.run, daemon=True)
        self.thread.start()
        return f"http://127.0.0.1:{self.port}"

    def stop(self):
        self.server.should_exit = self.server.force_exit = True
        self.thread.join(10)


@pytest.fixture
def server(paths):
    made = Server(paths[0])
    yield made
    made.stop()


# ------------------------------------------------------------------------------------------------------------- kill -9


def child(folder, config, marker, threads):
    """Train in a process of its own; with a marker, say when a checkpoint is being written, and dawdle over it."""
    import torch

    torch.set_num_threads(threads)
    if marker:
        sha256 = checkpoints._sha256

        def slow_sha256(path):
            marker.touch()
            time.sleep(0.02)
            return sha256(path)

        checkpoints._sha256 = slow_sha256
    run_drzero(folder, config)


def start(folder, config, marker=None):
    process = Process(target=child, args=(folder, config, marker, 1))
    process.start()
    return process


def digest(folder):
    """SHA-256 of the final weights of both roles and of the optimizer."""
    last = find_checkpoints(folder / "checkpoints")[-1]
    files = sorted(path for path in last.path.rglob("*.safetensors"))
    return last.step, {
        str(path.relative_to(last.path)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


TIMES = {"step/seconds", "groups/per_minute", "memory/process_gib", "solver/search_s", "proposer/search_s"}
TIMES |= {f"validation{start}/{name}" for start in ("", "_start") for name in ("search_s", "seconds")}


def contents(folder):
    """Everything in the store that is not a time."""
    with Run.open(folder) as run:
        episodes = []
        for episode in run.episodes():
            turns = tuple(msgspec.structs.replace(turn, sample_s=0.0, search_s=0.0) for turn in episode.turns)
            episodes.append(msgspec.structs.replace(episode, turns=turns))
        rows = [(row.id, row.step, row.phase, row.metrics) for row in run.index()]
        names = [name for name in run.metric_names() if name not in TIMES and not name.endswith("tokens_per_s")]
        metrics = {name: run.metrics(name) for name in names}
        return episodes, rows, metrics, run.candidates(), run.events()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("rank", "kills", "iterations"),
    [(0, 2, 1), pytest.param(0, 10, 3, marks=pytest.mark.slow), pytest.param(4, 10, 3, marks=pytest.mark.slow)],
)
def test_killed_anywhere_it_ends_with_the_same_weights_and_store(paths, tmp_path, server, rank, kills, iterations):
    """Every second time it is killed inside a save."""
    server.delay_s = 0.03  # when a search comes back is never the same twice
    changes = {"search_url": server.start(), "iterations": iterations, "adapter.rank": rank, "proposer.batch": 4}
    changes |= {"generation.batch": 4, "generation.attempts": 2, "solver.attempts": 2}
    config = make_config(paths, **changes)
    straight = start(tmp_path / "straight", config)
    straight.join()
    assert straight.exitcode == 0
    # Counted in searches, not in seconds: however fast the machine, all kills come before the run is done.
    share = server.num_requests // (2 * kills)
    draw = random.Random(rank)
    num_kills = 0
    for attempt in range(40):
        in_save = attempt % 2 == 1
        marker = tmp_path / f"saving-{attempt}" if in_save else None
        process = start(tmp_path / "killed", config, marker)
        last_search = server.num_requests + draw.randint(1, share)
        while process.is_alive() and not (marker.exists() if marker else server.num_requests >= last_search):
            time.sleep(0.01)
        if marker:
            time.sleep(draw.uniform(0, 0.4))
        if num_kills == kills or not process.is_alive():
            process.join()
            assert process.exitcode == 0
            break
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        num_kills += 1
    assert num_kills == kills
    assert digest(tmp_path / "killed") == digest(tmp_path / "straight")
    assert contents(tmp_path / "killed") == contents(tmp_path / "straight")


class Stopping(Told):
    """A reporter at which a run stops, after a step."""

    def __init__(self, last):
        super().__init__()
        self.last = last

    def step(self, report):
        super().step(report)
        if report.step == self.last:
            raise InterruptedError


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_steps_have_the_same_losses_however_often_the_run_is_stopped(paths, tmp_path):
    changes = {"proposer.steps": 50, "solver.steps": 50, "proposer.batch": 4, "solver.batch": 2, "generation.batch": 4}
    config = make_config(paths, **changes, **{"checkpoints.every": 7})
    run_drzero(tmp_path / "straight", config)[0].close()
    for last in (1, 20, 50, 59, 83):  # in the phases, at their ends, and between checkpoints
        with pytest.raises(InterruptedError):
            run_drzero(tmp_path / "stopped", config, Stopping(last))
    run_drzero(tmp_path / "stopped", config)[0].close()
    with Run.open(tmp_path / "straight") as straight, Run.open(tmp_path / "stopped") as stopped:
        losses = straight.metrics("loss/policy")
        assert losses == stopped.metrics("loss/policy")
        assert len(straight.metrics("run/iteration")) >= 100 and len({loss.value for loss in losses}) > 20
    assert digest(tmp_path / "stopped") == digest(tmp_path / "straight")


# ----------------------------------------------------------------------------------------------------- a dead retriever


@pytest.mark.parametrize(("dead_s", "wait_s"), [(1, 0.4), pytest.param(10, 3, marks=pytest.mark.slow)])
def test_a_retriever_that_dies_for_a_while_does_not_end_the_run(paths, tmp_path, server, dead_s, wait_s):
    config = make_config(paths, "proposer.hop_ratio=[0,1]", f"search.wait_s={wait_s}", search_url=server.start())
    told, folder = Told(), tmp_path / "run"

    def kill_and_revive():
        while server.num_requests < 6:
            time.sleep(0.005)
        server.stop()
        time.sleep(dead_s)  # longer than two waits, and less than the six of all replays
        server.start()

    killer = threading.Thread(target=kill_and_revive)
    killer.start()
    with Run.create(folder, "evolve") as store:
        asyncio.run(train(config, store, told))
    killer.join()
    assert [report.step for report in told.steps] == list(range(1, 7))
    with Run.open(folder) as run:
        rows = run.index()
        spoiled = [row for row in rows if "episode/spoiled" in row.metrics]
        failed = [
            turn.failure
            for row in spoiled
            for turn in run.episode(row.id).turns
            if turn.failure and turn.failure.boundary == "search"
        ]
    assert spoiled
    assert failed and {failure.kind for failure in failed} <= {"unreachable", "timeout", "broken"}
    # None of them was paid or learned from, and each was played again until its searches worked.
    assert all(set(row.metrics) == {"episode/spoiled"} for row in spoiled)
    # A replay's id ends with its number; that of an attempt at a replayed proposal's question has one further in front.
    again = re.compile(r"~\d+$")
    replayed = {again.sub("", row.id) for row in rows if again.search(row.id) and "episode/spoiled" not in row.metrics}
    assert replayed == {again.sub("", row.id) for row in spoiled}
    assert sum(report.metrics.get("proposer/spoiled", 0) for report in told.steps) + sum(
        report.metrics.get("solver/spoiled", 0) for report in told.steps
    ) == len(spoiled)


class Reviving(Told):
    """A reporter that starts a server again after a step."""

    def __init__(self, server, step):
        super().__init__()
        self.server, self.revived_at = server, step

    def step(self, report):
        super().step(report)
        if report.step == self.revived_at:
            self.server.start()


DEAD = ("proposer.hop_ratio=[0,1]", "search.replays=1", "search.wait_s=0.1")


def test_a_retriever_that_is_dead_for_two_steps_costs_these_and_not_the_run(paths, tmp_path, server):
    """With nothing left to judge, nothing is learned; no failed search is taken for an empty result."""
    url = server.start()
    server.stop()
    config = make_config(paths, *DEAD, "proposer.steps=1", "iterations=2", search_url=url)
    run, told = run_drzero(tmp_path / "run", config, Reviving(server, 2))
    assert not any("gradient/norm" in report.metrics for report in told.steps[:2])
    assert {candidate.reason for candidate in run.candidates(iteration=0)} == {"unfinished"}
    # Every try is in the store, marked for what it is.
    rows = [row for row in run.index() if row.step <= 2]
    assert len(rows) == 2 * 8 * 2 and all(row.metrics == {"episode/spoiled": 1.0} for row in rows)
    assert not any("episode/spoiled" in row.metrics for row in run.index() if row.step > 2)
    assert [report.step for report in told.steps][:4] == [1, 2, 5, 6]  # without questions no solver steps


def test_a_retriever_that_stays_dead_stops_the_run_which_goes_on_when_it_is_back(paths, tmp_path, server):
    url, folder = server.start(), tmp_path / "run"
    server.stop()
    config, told = make_config(paths, *DEAD, "checkpoints.every=9", "proposer.steps=5", search_url=url), Told()
    said = r"^step 3: every search of 3 steps in a row failed: the search server \S+ cannot be reached [^\n]*$"
    with pytest.raises(TrainingStopped) as stop:
        run_drzero(folder, config, told)
    assert re.search(said, str(stop.value)) and stop.value.hint.endswith(f"quaere evolve --resume {folder}")
    assert [report.step for report in told.steps] == [1, 2, 3]
    assert max(found.step for found in find_checkpoints(folder / "checkpoints")) == 3
    server.start()
    run, _ = run_drzero(folder, config, told)
    assert [report.step for report in told.steps] == list(range(1, 13))
    assert any("gradient/norm" in report.metrics for report in told.steps[3:])
    assert len([row for row in run.index() if row.step <= 3]) == 3 * 8 * 2
