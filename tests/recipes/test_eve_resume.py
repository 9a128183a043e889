"""A run with the selector that is killed, wherever, ends as if it had never been."""

import os
import signal

import pytest
from test_drzero_resume import contents, digest

from preloaded import Process
from quaere.recipes.selector import STATE_FILE, Selector
from quaere.runs import checkpoints
from village_runs import Told, make_quoting, run_eve

pytest.importorskip("sklearn")

# One step a phase, so that step 4 is the first of the second iteration.
CONFIG = {
    "iterations": 2,
    "prompt_source": "selector",
    "selector.num_clusters": 3,
    "selector.growth": 1.0,
    "verify_candidates": True,
    "proposer.steps": 1,
    "generation.candidates": 8,
    "generation.attempts": 0,
    "solver.steps": 1,
    "solver.attempts": 2,
    "proposer.attempts": 2,
    "verifier.samples": 1,
}


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_before(owner, name, call):
    """Die as this function is called for the so-manieth time."""
    original, calls = getattr(owner, name), iter(range(1, 100))

    def deadly(*args, **kwargs):
        if next(calls) == call:
            die()
        return original(*args, **kwargs)

    setattr(owner, name, deadly)


class Deadly(Told):
    """Dies when a step has been reported."""

    def __init__(self, last_step):
        super().__init__()
        self.last_step = last_step

    def step(self, report):
        if report.step == self.last_step:
            die()


# Each in a run gone on with after the one before: counted from where that one stood.
MOMENTS = {
    "choosing for the generation": lambda: die_before(Selector, "draw", 2),
    "writing the checkpoint of the solver's step": lambda: die_before(checkpoints, "_seal", 2),
    "teaching the selector": lambda: die_before(Selector, "learn", 1),
    "the second iteration has begun": lambda: Deadly(4),
    "nothing": lambda: None,
}


def child(folder, config, moment):
    import torch

    torch.set_num_threads(1)
    run_eve(folder, config, MOMENTS[moment]())


@pytest.mark.slow
def test_killed_anywhere_it_ends_with_the_same_weights_selector_and_store(quoting_paths, tmp_path):
    """The suite kills Dr. Zero's runs, and stops EVE's in every phase (`test_iterations.py`)."""
    config = make_quoting(quoting_paths, **CONFIG)
    run_eve(tmp_path / "straight", config)
    for moment in MOMENTS:
        process = Process(target=child, args=(tmp_path / "killed", config, moment))
        process.start()
        process.join()
        assert process.exitcode == (0 if moment == "nothing" else -signal.SIGKILL), moment
    step, files = digest(tmp_path / "straight")
    assert step == 6 and {STATE_FILE, "solver/model.safetensors", "proposer/model.safetensors"} <= set(files)
    assert digest(tmp_path / "killed") == (step, files)
    assert contents(tmp_path / "killed") == contents(tmp_path / "straight")
