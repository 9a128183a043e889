"""Checkpoints on disk: whole or not there, damage is named, and the best stays."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preloaded import start
from properties import examples
from quaere.errors import BadInput
from quaere.runs.checkpoints import (
    Best,
    find_checkpoints,
    newest_checkpoint,
    pick_checkpoint,
    prune_checkpoints,
    save_checkpoint,
    verify_checkpoint,
)


def write_files(content):
    def write(folder):
        (folder / "inner").mkdir()
        (folder / "a.bin").write_bytes(content)
        (folder / "inner" / "b.bin").write_bytes(content * 2)

    return write


def test_a_checkpoint_is_found_with_its_state_and_verified(tmp_path):
    saved = save_checkpoint(tmp_path, 3, write_files(b"x" * 1000), {"phase": "solver"})
    (found,) = find_checkpoints(tmp_path)
    assert found == saved
    verify_checkpoint(found)
    assert sorted(path.name for path in found.path.iterdir()) == ["a.bin", "inner", "manifest.json"]


def test_what_a_kill_left_is_pruned_later(tmp_path):
    for step in range(4):
        save_checkpoint(tmp_path, step, write_files(b"x"), {})  # killed before it could prune
    (tmp_path / ".step-000000.partial-0123456789abcdef").mkdir()
    prune_checkpoints(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000003"]


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_is_named(tmp_path, damage):
    saved = save_checkpoint(tmp_path, 3, write_files(b"x" * 1000), {})
    file = saved.path / "inner" / "b.bin"
    if damage == "flip":
        file.write_bytes(b"y" + file.read_bytes()[1:])
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        file.unlink()
    with pytest.raises(BadInput, match=r"b\.bin is damaged or missing"):
        verify_checkpoint(saved)
    told = []
    # What can be told without reading the files is told when checkpoints are listed.
    assert bool(find_checkpoints(tmp_path, told.append)) == (damage == "flip") != bool(told)
    with pytest.raises(BadInput, match=r"has no usable checkpoint: .*damaged or missing"):
        newest_checkpoint(tmp_path, told.append, usable=lambda checkpoint: True)


def test_a_checkpoint_with_an_invalid_best_is_passed_over_and_said(tmp_path):
    folder = tmp_path / "new" / "checkpoints"
    save_checkpoint(folder, 1, write_files(b"x"), best(1))
    save_checkpoint(folder, 2, write_files(b"x"), {"best": {"role": "solver", "step": "two"}})
    told = []
    assert [checkpoint.step for checkpoint in find_checkpoints(folder, told.append)] == [1]
    (line,) = told
    assert "step-000002" in line and "the entry `best` of manifest.json is invalid" in line


def test_only_the_newest_are_kept_and_order_is_by_number(tmp_path):
    for step in (2, 10, 9, 1):
        save_checkpoint(tmp_path, step, write_files(b"x"), {})
    assert [checkpoint.step for checkpoint in find_checkpoints(tmp_path)] == [1, 2, 9, 10]
    save_checkpoint(tmp_path, 11, write_files(b"x"), {}, keep=2)
    assert [checkpoint.step for checkpoint in find_checkpoints(tmp_path)] == [10, 11]


def best(step):
    return {"best": {"role": "solver", "step": step, "exact_match": 0.5, "num_questions": 64}}


def test_the_best_is_never_pruned_and_goes_when_another_is_better(tmp_path):
    kept = []
    for step, best_step in ((1, 1), (2, 1), (3, 1), (4, 4), (5, 4)):
        save_checkpoint(tmp_path, step, write_files(b"x"), best(best_step), keep=1)
        kept.append([found.step for found in find_checkpoints(tmp_path)])
    assert kept == [[1], [1, 2], [1, 3], [4], [4, 5]]


@settings(max_examples=examples(30))
@given(data=st.data(), keep=st.integers(1, 4), num_steps=st.integers(1, 8))
def test_of_what_is_kept_every_best_is_there_and_nothing_else(tmp_path_factory, data, keep, num_steps):
    folder = tmp_path_factory.mktemp("kept")
    bests = {}
    for step in range(num_steps):
        # The best stays what it was or becomes the newest.
        bests[step] = data.draw(st.sampled_from([bests.get(step - 1, step), step]))
        save_checkpoint(folder, step, write_files(b"x"), best(bests[step]), keep=keep)
        newest = range(max(0, step - keep + 1), step + 1)
        expected = {*newest, *(bests[number] for number in newest)}
        assert [found.step for found in find_checkpoints(folder)] == sorted(expected)


def test_which_checkpoint_is_picked(tmp_path):
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, write_files(b"x"), best(2) if step > 1 else {})
    found = find_checkpoints(tmp_path)
    assert [pick_checkpoint(found, "solver", which).step for which in (None, "best", "last", 1)] == [2, 2, 3, 1]
    assert pick_checkpoint(found, "proposer").step == 3
    assert [pick_checkpoint(found[:1], "solver", which).step for which in (None, "last")] == [1, 1]
    for checkpoints, role in ((found[:1], "solver"), (found, "proposer")):
        with pytest.raises(BadInput, match=f"the {role} was not validated"):
            pick_checkpoint(checkpoints, role, "best")
    with pytest.raises(BadInput, match="no checkpoint of step 9; it has 1, 2, 3"):
        pick_checkpoint(found, "solver", 9)
    with pytest.raises(BadInput, match="no checkpoint of step 2; it has 1, 3"):
        pick_checkpoint([found[0], found[2]], "solver")  # the best was deleted by hand


def test_the_standard_error_of_a_score():
    assert Best("solver", 20, 0.5, 64).standard_error == 0.0625  # sqrt(0.5 * 0.5 / 64)
    assert Best("solver", 20, 1.0, 64).standard_error == 0.0
    assert Best("solver", 20, -0.3, 16, variance=0.64).standard_error == 0.2  # sqrt(0.64 / 16): a rating may be below 0


def test_a_failed_write_leaves_the_older_ones_and_its_rest_is_cleared_away(tmp_path):
    save_checkpoint(tmp_path, 1, write_files(b"x"), {})

    def fail(folder):
        (folder / "a.bin").write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(BadInput, match=r"cannot write .*step-000002: disk full"):
        save_checkpoint(tmp_path, 2, fail, {})
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert [checkpoint.step for checkpoint in find_checkpoints(tmp_path)] == [1]
    save_checkpoint(tmp_path, 2, write_files(b"x"), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000001", "step-000002"]


def test_a_checkpoint_that_is_replaced_is_gone_or_whole_at_every_moment(tmp_path, monkeypatch):
    """Whatever the deletion has reached when the process dies, no half of the old checkpoint passes for one."""
    save_checkpoint(tmp_path, 1, write_files(b"x"), {})
    save_checkpoint(tmp_path, 2, write_files(b"old"), {})

    def die(path, *_, **__):
        (Path(path) / "a.bin").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr("shutil.rmtree", die)
        save_checkpoint(tmp_path, 2, write_files(b"new"), {})
    found = find_checkpoints(tmp_path)
    assert found[0].step == 1
    for checkpoint in found:
        verify_checkpoint(checkpoint)


@pytest.mark.parametrize("keep", [0, 1])
def test_the_checkpoint_that_was_just_written_is_always_kept(tmp_path, keep):
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, write_files(b"x"), {}, keep=keep)
        assert [checkpoint.step for checkpoint in find_checkpoints(tmp_path)] == [step]


def save_for_ever(folder):
    """In a process of its own: save checkpoints until it is killed."""

    def write(folder):
        for name in range(20):
            (folder / str(name)).write_bytes(bytes([name]) * 200_000)

    for step in range(100_000):
        save_checkpoint(folder, step, write, {"step": step}, keep=3)
        print("saved", flush=True)


@pytest.mark.parametrize("num_rounds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_any_moment_what_is_found_is_whole(tmp_path, num_rounds):
    draw = random.Random(3)
    for round_number in range(num_rounds):
        folder = tmp_path / str(round_number)
        process, stdout = start(save_for_ever, folder, stream="stdout")
        with stdout:
            assert [stdout.readline() for _ in range(4)] == ["saved\n"] * 4
            time.sleep(draw.uniform(0, 0.2))
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        found = find_checkpoints(folder)
        assert len(found) >= 3
        for checkpoint in found:
            verify_checkpoint(checkpoint)
            assert checkpoint.state == {"step": checkpoint.step}
        save_checkpoint(folder, 999_999, write_files(b"x"), {}, keep=1)
        assert [path.name for path in folder.iterdir()] == ["step-999999"]
