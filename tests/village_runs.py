"""Dr. Zero and EVE-Agent on the village, without the command line.

`python tests/village_runs.py DIR` writes the documents, the index and the model of the village to DIR, with a
`village.yaml` for `quaere evolve drzero --config DIR/village.yaml`; docs/curriculum.md uses it.
"""

import asyncio
import sys
from pathlib import Path

import quoting
from quaere.recipes.drzero import PRESETS, DrZeroConfig
from quaere.recipes.drzero import train as train_drzero
from quaere.recipes.eve import PRESETS as EVE_PRESETS
from quaere.recipes.eve import EveConfig
from quaere.recipes.eve import train as train_eve
from quaere.runs import Run
from quaere.training.config import config_to_yaml, load_config
from quaere.training.given import copy_given
from village import LIMITS, build

SMALL = {
    "iterations": 1,
    "prompts": "brief",
    "proposer.steps": 2,
    "proposer.batch": 8,
    "proposer.hop_ratio": (1, 1),
    "proposer.attempts": 3,
    "proposer.limits": LIMITS,
    "proposer.learner.learning_rate": 1e-3,
    "generation.batch": 8,
    "generation.attempts": 3,
    "solver.steps": 2,
    "solver.batch": 4,
    "solver.attempts": 3,
    "solver.limits": LIMITS,
    "solver.learner.learning_rate": 1e-3,
    "engine.mode": "deterministic",
    "checkpoints.every": 1,
}
QUOTING = {
    **SMALL,
    "proposer.limits": quoting.LIMITS,
    "solver.limits": quoting.LIMITS,
    "generation.questions": 2,
    "held_out_share": 0.4,
    "verifier.samples": 3,
    "verifier.turn_tokens": 8,
    "verifier.sequence_tokens": 128,
}


class Told:
    """A reporter that remembers."""

    def __init__(self):
        self.steps, self.notes, self.progressed = [], [], []

    def step(self, report):
        self.steps.append(report)

    def progress(self, progress):
        self.progressed.append(progress)

    def note(self, line):
        self.notes.append(line)

    def close(self):
        pass


def make_config(paths, *assignments, **changes) -> DrZeroConfig:
    index, model = paths
    given = {**SMALL, "index": str(index), "model": str(model), **changes}
    return load_config(DrZeroConfig, presets=PRESETS, preset=None, file=None, assignments=assignments, given=given)


def make_eve(paths, *assignments, **changes) -> EveConfig:
    index, model = paths
    given = {**SMALL, "index": str(index), "model": str(model), **changes}
    return load_config(EveConfig, presets=EVE_PRESETS, preset=None, file=None, assignments=assignments, given=given)


def make_quoting(paths, *assignments, **changes) -> EveConfig:
    """EVE-Agent with evidence, on the village that quotes."""
    return make_eve(paths, *assignments, **{**QUOTING, **changes})


def run_drzero(folder, config, told=None, train=train_drzero):
    """Start or go on; returns the run, open for reading, and what was reported."""
    told = told or Told()
    exists = folder.exists()
    kept = {} if exists else {"config": config_to_yaml(config), "files": copy_given(config)}
    store = Run.open(folder, write=True) if exists else Run.create(folder, "evolve", {}, **kept)
    with store:
        asyncio.run(train(config, store, told))
    return Run.open(folder), told


def run_eve(folder, config, told=None):
    return run_drzero(folder, config, told, train_eve)


def proposals(run, phase="proposer"):
    """Stored proposer episodes of a phase of EVE-Agent, with what was measured on them."""
    return [(run.episode(row.id), row.metrics) for row in run.index(phase=phase, protocol="eve-proposer")]


def about(run, phase, *protocols):
    """The rows of these protocols by the question they are about."""
    found = {}
    for protocol in protocols:
        for row in run.index(phase=phase, protocol=protocol):
            found.setdefault(row.task_id, []).append(row)
    return found


def write_village(folder):
    """The village in a folder that need not be there, with the settings of `make_config` as a file."""
    folder.mkdir(parents=True, exist_ok=True)
    config = make_config(build(folder.absolute()))
    (folder / "village.yaml").write_text(config_to_yaml(config), encoding="utf-8")


if __name__ == "__main__":
    write_village(Path(sys.argv[1]))
