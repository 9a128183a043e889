"""With everything that makes it EVE-Agent switched off, it is Dr. Zero, to the last bit of the weights."""

from hashlib import sha256

import pytest

from quaere.runs.checkpoints import find_checkpoints
from village_runs import make_config, make_eve, run_drzero, run_eve

OFF = {
    "evidence.cite": False,
    "evidence.value_weight": 0.0,
    "evidence.brevity_weight": 0.0,
    "evidence.span_weight": 0.0,
    "phase_b_documents": "same",
    "proposer.reward.format_rule": "released",
    "generation.questions": 1,
    "proposer.learner.max_grad_norm": 1.0,
    "solver.learner.max_grad_norm": 1.0,
}


def episodes(run):
    """What was written and what it earned, by id."""
    rows = [row for row in run.index() if "reward/total" in row.metrics]
    return {row.id: (row.phase, row.metrics["reward/total"], run.episode(row.id).token_ids) for row in rows}


def weights(run):
    """The hash of every file of weights in the last checkpoint."""
    folder = find_checkpoints(run.path / "checkpoints")[-1].path
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.safetensors")
    }


@pytest.fixture(scope="module")
def both(paths, tmp_path_factory):
    folder = tmp_path_factory.mktemp("both")
    changes = {"iterations": 2, "proposer.steps": 1, "proposer.attempts": 2, "solver.steps": 1}
    drzero, _ = run_drzero(folder / "drzero", make_config(paths, **changes))
    eve, _ = run_eve(folder / "eve", make_eve(paths, **changes, **OFF))
    return drzero, eve


def test_the_runs_are_equal(both):
    drzero, eve = both
    assert len(episodes(drzero)) > 30
    assert episodes(eve) == episodes(drzero)
    assert eve.candidates() == drzero.candidates()
    assert weights(eve) == weights(drzero) != {}
