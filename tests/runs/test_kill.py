"""A writer is killed at any moment: what it had finished stays, what it had begun is gone, and writing goes on."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from builders import build_episode

from preloaded import start
from quaere.runs import Run


def write(folder: Path) -> None:
    """In a process of its own: write episodes until it is killed."""
    with Run.open(folder, write=True) as run:
        number, _ = run.count_episodes()
        while True:
            batch = [build_episode(f"ask-{number + i}", text=f"{number + i} " * 3000) for i in range(1 + number % 3)]
            run.add_episodes(batch, [{"number": float(number)}] * len(batch))
            number += len(batch)
            run.log_metrics(number, {"episodes": number})
            print(number, flush=True)  # everything below this number was promised


@pytest.mark.parametrize("seed", range(3))
def test_killing_the_writer_loses_only_what_was_in_flight(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    Run.create(tmp_path / "r", "test").close()
    promised = 0
    for _ in range(4):
        writer, stdout = start(write, tmp_path / "r", stream="stdout")
        with stdout:
            said = [int(stdout.readline())]  # wait until it is at work
            time.sleep(dice.uniform(0, 0.15))
            os.kill(writer.pid, signal.SIGKILL)
            said += [int(line) for line in stdout if line.endswith("\n")]
        writer.join()
        assert said[0] > promised  # it went on where the last one was cut off
        promised = said[-1]
        with Run.open(tmp_path / "r") as run:
            episodes = list(run.episodes())
            assert len(episodes) >= promised
            assert [episode.id for episode in episodes] == [f"ask-{n}" for n in range(len(episodes))]
            for number in dice.sample(range(len(episodes)), min(3, len(episodes))):
                (hit,) = run.episode(f"ask-{number}").turns[0].results[0].hits
                assert hit.passage.text == f"{number} " * 3000
            assert run.metrics("episodes")[-1].value >= promised
    with Run.open(tmp_path / "r", write=True) as run:  # the dead writer's lock holds nobody up
        assert run.count_episodes()[0] >= promised
