"""A trained role found in a run: which checkpoint, with which settings, and what is said of damaged ones."""

import shutil

import pytest

from quaere.dialects.notes import CheckpointGone, find_role, reading_checkpoint
from quaere.errors import BadInput
from quaere.runs import Run
from quaere.runs.checkpoints import Best, save_checkpoint

BEST = Best("solver", 1, rating=0.5, num_questions=8)


def write_roles(folder):
    for role in ("solver", "proposer"):
        (folder / role).mkdir()
        (folder / role / "config.json").write_text("{}")


def make_run(path, *, num_checkpoints=2, best=None, config="model: smollm2-135m\n"):
    with Run.create(path / "run", "evolve", {"recipe": "drzero"}, config=config):
        pass
    for step in range(1, num_checkpoints + 1):
        save_checkpoint(path / "run" / "checkpoints", step, write_roles, {"best": best} if best else {})
    return path / "run"


def damage(run, step):
    (run / "checkpoints" / f"step-{step:06d}" / "solver" / "config.json").write_text("[]")


def test_a_role_comes_with_the_settings_it_was_trained_with(tmp_path):
    config = """
        model: smollm2-135m
        prompts: brief
        solver: {dialect: evalact, limits: {max_turns: 3}, evaluation: {bad_score: clamp}}
        evidence: {cite: true}
    """
    weights = find_role(make_run(tmp_path, config=config), "solver")
    assert (weights.base, weights.notes.style, weights.notes.dialect) == ("smollm2-135m", "brief", "evalact")
    notes = weights.notes
    assert (notes.limits.max_turns, notes.evaluation.bad_score, notes.evidence) == (3, "clamp", True)


def test_a_run_without_a_model_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"config\.yaml of run .* has no `model`"):
        find_role(make_run(tmp_path, config="model: ''\n"), "solver")


def test_only_the_best_weights_come_with_their_validation(tmp_path):
    run = make_run(tmp_path, best=BEST)
    found = {(role, which): find_role(run, role, which) for role in ("solver", "proposer") for which in (None, 1, 2)}
    assert {place: weights.step for place, weights in found.items() if place[1] is None} == {
        ("solver", None): 1,
        ("proposer", None): 2,
    }
    assert {place for place, weights in found.items() if weights.best == BEST} == {("solver", None), ("solver", 1)}
    assert {weights.best for weights in found.values()} == {BEST, None}


@pytest.mark.parametrize("which", [None, "last"])
def test_a_damaged_last_checkpoint_is_passed_over_and_named(tmp_path, which):
    run, told = make_run(tmp_path), []
    damage(run, 2)
    assert find_role(run, "solver", which, told.append).step == 1
    (line,) = told
    assert line.startswith("passed over: ") and "step-000002 is damaged: solver/config.json" in line


@pytest.mark.parametrize(
    ("damaged", "which", "settings"),
    [(2, 2, {}), (1, 1, {}), (1, None, {"best": BEST}), (1, None, {"num_checkpoints": 1})],
    ids=["named-last", "named-first", "best", "only"],
)
def test_a_damaged_checkpoint_that_was_meant_is_refused(tmp_path, damaged, which, settings):
    run = make_run(tmp_path, **settings)
    damage(run, damaged)
    with pytest.raises(BadInput, match=f"step-00000{damaged} is damaged"):
        find_role(run, "solver", which)


def test_a_checkpoint_deleted_while_it_is_read_is_said_to_be_gone(tmp_path):
    folder = tmp_path / "step-000001"
    folder.mkdir()

    def read_late():
        with reading_checkpoint(folder):
            shutil.rmtree(folder)
            (folder / "config.json").read_text()

    with pytest.raises(FileNotFoundError), reading_checkpoint(folder):
        (folder / "config.json").read_text()
    with pytest.raises(CheckpointGone, match="was deleted while it was being read"):
        read_late()
