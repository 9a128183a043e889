from types import SimpleNamespace

import pytest
from msgspec import structs

from quaere.errors import BadInput
from quaere.recipes.score.harness import FILE, HarnessVersion, Statistics, Versions, default_harness, describe_change
from quaere.recipes.score.memory import EVALUATOR_FILE, SchedulerSettings, ScoreMemory
from quaere.records import Dimension

FIRST = HarnessVersion(0, default_harness(), why="default")
SECOND = HarnessVersion(
    5,
    structs.replace(default_harness(), version=1, notes="Ünïcode\nnote"),
    Statistics(step=5, mean_reward=0.5, entropy=0.7, dimension_counts={"depth": 3}),
    why="saturated",
)
THIRD = HarnessVersion(10, SECOND.harness, Statistics(step=10), fault="the harness is not JSON")


@pytest.fixture
def versions(tmp_path):
    found = Versions(tmp_path)
    for version in (FIRST, SECOND, THIRD):
        found.append(version)
    return found


def test_what_was_appended_is_read(versions):
    assert versions.read() == [FIRST, SECOND, THIRD]
    assert len(versions.path.read_text().splitlines()) == 3
    assert [path.name for path in versions.path.parent.iterdir()] == [FILE]


def test_no_file_is_no_versions(tmp_path):
    versions = Versions(tmp_path)
    assert versions.read() == []
    versions.truncate_after(3)
    assert not versions.path.exists()


@pytest.mark.parametrize(("step", "left"), [(10, 3), (9, 2), (5, 2), (4, 1), (0, 1), (-1, 0)])
def test_resuming_cuts_back(versions, step, left):
    versions.truncate_after(step)
    assert versions.read() == [FIRST, SECOND, THIRD][:left]


def test_a_resumed_run_leaves_the_file_of_one_never_stopped(versions):
    whole = versions.path.read_bytes()
    versions.truncate_after(5)
    versions.append(THIRD)
    assert versions.path.read_bytes() == whole
    # Also where a step is taken again without having been cut off.
    versions.append(structs.replace(SECOND, why="other"))
    assert [one.why for one in versions.read()] == ["default", "other"]


def test_a_line_that_was_cut_off_is_none(versions):
    whole = versions.path.read_bytes()
    versions.path.write_bytes(whole[:-20])
    assert versions.read() == [FIRST, SECOND]
    versions.append(THIRD)
    assert versions.path.read_bytes() == whole
    versions.path.write_bytes(whole[:-20])
    versions.truncate_after(10)
    assert versions.read() == [FIRST, SECOND] and versions.path.read_bytes().endswith(b"\n")


def test_a_line_that_is_none_of_ours_is_refused(versions):
    versions.path.write_bytes(b"{}\n" + versions.path.read_bytes())
    with pytest.raises(BadInput, match=r"harness\.jsonl has a line that is not a harness version"):
        versions.read()


def test_a_failed_write_leaves_what_was_there(versions, monkeypatch):
    before = versions.path.read_bytes()

    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("quaere.disk.sync", full)
    with pytest.raises(BadInput, match="No space left"):
        versions.append(structs.replace(THIRD, step=15))
    assert versions.path.read_bytes() == before
    assert [path.name for path in versions.path.parent.iterdir()] == [FILE]


def test_what_changed_is_said_in_a_few_words():
    first = default_harness()
    assert describe_change(first, first) == ""
    rules = structs.replace(first.dimensions, k=5, weight_min=0.05)
    process = structs.replace(first.process, citation_cross_check=False)
    pool = (structs.replace(first.pool[0], text="Other words."), *first.pool[2:], Dimension("chronology", "In order."))
    after = structs.replace(first, dimensions=rules, process=process, pool=pool, notes="Look deeper.")
    assert describe_change(first, after) == (
        "k 4 → 5, weight_min 0.1 → 0.05, citation_cross_check yes → no, pool + chronology, "
        f"pool - {first.pool[1].name}, reworded {first.pool[0].name}, notes"
    )


def test_an_evaluators_optimizer_goes_on_where_the_checkpoint_has_it(tmp_path):
    """A run that goes back to a checkpoint without one begins with a new one."""
    memory = ScoreMemory(default_harness(), SchedulerSettings(), Versions(tmp_path))
    loaded = []
    learner = SimpleNamespace(load_optimizer=loaded.append, save_optimizer=lambda file: file.write_text("moments"))
    (tmp_path / "first").mkdir()
    (tmp_path / "later").mkdir()
    memory.save(tmp_path / "first")
    memory.open_evaluator(learner)
    memory.save(tmp_path / "later")
    for name, expected in (("later", [tmp_path / "later" / EVALUATOR_FILE]), ("first", [])):
        loaded.clear()
        memory.load(tmp_path / name)
        memory.open_evaluator(learner)
        assert loaded == expected
