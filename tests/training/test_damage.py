"""Damage on disk: one line says what it is, the last good state is used, and nothing is lost by it.

A run of a few steps, whose weights are a chain of digests, is interrupted and damaged. Where a good checkpoint is left
it goes on by itself and ends with the weights and the store of a run that nothing happened to. Where something is gone
that no checkpoint holds it refuses, and once the file is restored it goes on as if it had not been asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quaere.cli.main import main
from quaere.errors import BadInput
from quaere.runs import Run
from quaere.runs.checkpoints import find_checkpoints, read_checkpoint, verify_checkpoint
from quaere.training.settings import CheckpointSettings, RunConfig
from quaere.training.step import Step
from quaere.training.training_run import TrainingRun

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))
from builders import build_candidate, build_episode

from village_runs import Told

STEPS, STOPPED = 6, 4
ROLES = ("proposer", "solver")


class Chain:
    """Actors whose weights are digests of all steps so far, and a memory that counts them."""

    def __init__(self) -> None:
        self.weights = {role: role.encode() * 20 for role in ROLES}

    def learn(self, step: Step) -> None:
        for role, before in self.weights.items():
            self.weights[role] = hashlib.sha512(before + str((role, step.seed)).encode()).digest() * 4

    def save(self, folder: Path) -> None:
        for role, weights in self.weights.items():
            (folder / role).mkdir()
            (folder / role / "model.safetensors").write_bytes(weights)
        (folder / "memory.json").write_text(json.dumps(hashlib.md5(self.weights["solver"]).hexdigest()))

    def load(self, folder: Path) -> None:
        self.weights = {role: (folder / role / "model.safetensors").read_bytes() for role in ROLES}
        assert json.loads((folder / "memory.json").read_text()) == hashlib.md5(self.weights["solver"]).hexdigest()

    def saved_at(self, folder: Path) -> None:
        assert find_checkpoints(folder.parent)[-1].path == folder


def train(folder: Path, until: int = STEPS) -> list[str]:
    """Go on with a run, or begin it; what it said."""
    told, actors = Told(), Chain()

    async def iterate(iteration: int) -> None:
        for step in training.steps(iteration, "solver", STEPS):
            if step.step > until:
                raise InterruptedError
            actors.learn(step)
            step.keep(build_episode(step.name, text=f"{step.seed} " * 200), {"reward": 0.5})
            step.candidates.append(build_candidate(step.name, step.step))
            step.metrics["reward/mean"] = step.seed / 2**63

    with Run.open(folder, write=True) if folder.exists() else Run.create(folder, "evolve", {"recipe": "x"}) as store:
        config = RunConfig(seed=7, checkpoints=CheckpointSettings(every=1, keep=3))
        training = TrainingRun(config, store, actors, told, STEPS)  # type: ignore[arg-type]
        try:
            asyncio.run(training.iterate(1, iterate))
        except InterruptedError:
            assert until < STEPS
    return told.notes


def contents(folder: Path) -> Any:
    """The final weights, and everything in the store that is not a time."""
    last = find_checkpoints(folder / "checkpoints")[-1]
    verify_checkpoint(last)
    with Run.open(folder) as run:
        rows = [(row.id, row.step, row.metrics) for row in run.index()]
        store = list(run.episodes()), rows, run.metrics("reward/mean"), run.candidates(), run.events()
    return last.step, {role: (last.path / role / "model.safetensors").read_bytes() for role in ROLES}, store


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    root = tmp_path_factory.mktemp("damage")
    train(root / "straight")
    train(root / "stopped", until=STOPPED)
    assert [found.step for found in find_checkpoints(root / "stopped" / "checkpoints")] == [2, 3, 4]
    return SimpleNamespace(stopped=root / "stopped", straight=contents(root / "straight"))


@pytest.fixture
def folder(runs: SimpleNamespace, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs.stopped, tmp_path / "run"))


# ---------------------------------------------------------------------------------------- checkpoints and manifests

Damage = Callable[[Path], object]


def change(**values: Any) -> Damage:
    """Other values in the manifest, by their place: `files__solver=...`."""

    def damage(path: Path) -> None:
        manifest = json.loads((path / "manifest.json").read_bytes())
        for place, value in values.items():
            *way, last = place.split("__")
            inner = manifest
            for name in way:
                inner = inner[name]
            if value is None:
                del inner[last]
            else:
                inner[last] = value(inner.get(last)) if callable(value) else value
        (path / "manifest.json").write_text(json.dumps(manifest))

    return damage


def write(name: str, content: bytes) -> Damage:
    return lambda path: (path / name).write_bytes(content)


def alter(name: str, how: Callable[[bytes], bytes]) -> Damage:
    return lambda path: (path / name).write_bytes(how((path / name).read_bytes()))


def all_of(*damages: Damage) -> Damage:
    return lambda path: [damage(path) for damage in damages]


def to_folder(name: str) -> Damage:
    return lambda path: ((path / name).unlink(), (path / name).mkdir())


def to_link(name: str) -> Damage:
    return lambda path: ((path / name).unlink(), (path / name).symlink_to(path / "nowhere"))


def swap_roles(path: Path) -> None:
    (path / "solver").rename(path / "x")
    (path / "proposer").rename(path / "solver")
    (path / "x").rename(path / "proposer")


def to_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_bytes(b"not a folder")


def flip(content: bytes) -> bytes:
    return content[:100] + bytes([content[100] ^ 1]) + content[101:]


WEIGHTS = "solver/model.safetensors"
OLD = change(sha256=None)  # as manifests were before they had a digest
CHECKPOINTS: dict[str, Damage] = {
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "empty manifest": write("manifest.json", b""),
    "cut manifest": alter("manifest.json", lambda content: content[: len(content) // 2]),
    "one bit of the manifest": alter("manifest.json", lambda content: content.replace(b'"phase"', b'"phasf"')),
    "manifest not Unicode": write("manifest.json", b'{"step": 4, "\xff\xfe'),
    "manifest nested deeply": write("manifest.json", b"[" * 100_000),
    "manifest a list": write("manifest.json", b"[]"),
    "manifest zeros": alter("manifest.json", lambda content: bytes(len(content))),
    "manifest a folder": to_folder("manifest.json"),
    "manifest a dangling link": to_link("manifest.json"),
    "manifest of another step": lambda path: shutil.copy(path.with_name("step-000003") / "manifest.json", path),
    "step 99": change(step=99),
    "step 99, no digest": all_of(OLD, change(step=99)),
    "step a text": change(step="4"),
    "step negative": all_of(OLD, change(step=-4)),
    "no files": change(files={}),
    "no files, no digest": all_of(OLD, change(files={})),
    "one file not named": change(**{f"files__{WEIGHTS}": None}),
    "one file not named, no digest": all_of(OLD, change(**{f"files__{WEIGHTS}": None})),
    "another hash": change(**{f"files__{WEIGHTS}__sha256": "0" * 64}),
    "another hash, no digest": all_of(OLD, change(**{f"files__{WEIGHTS}__sha256": "0" * 64})),
    "another size": change(**{f"files__{WEIGHTS}__num_bytes": 3}),
    "a size that is none": change(**{f"files__{WEIGHTS}__num_bytes": "many"}),
    "a file from outside": all_of(
        OLD, change(files=lambda files: {**files, "../step-000003/memory.json": files["memory.json"]})
    ),
    "another state": change(state__suspect=True),
    "no state": all_of(OLD, change(state={})),
    "a best that is none": all_of(OLD, change(state__best={"role": 3})),
    "another digest": change(sha256="0" * 64),
    "a digest that is none": change(sha256=[1]),
    "one bit of the weights": alter(WEIGHTS, flip),
    "one bit, no digest": all_of(OLD, alter(WEIGHTS, flip)),
    "weights cut": alter(WEIGHTS, lambda content: content[:-1]),
    "weights grown": alter(WEIGHTS, lambda content: content + b"\0"),
    "weights empty": write(WEIGHTS, b""),
    "weights zeros": alter(WEIGHTS, lambda content: bytes(len(content))),
    "weights gone": lambda path: (path / WEIGHTS).unlink(),
    "weights a folder": to_folder(WEIGHTS),
    "weights a dangling link": to_link(WEIGHTS),
    "a role gone": lambda path: shutil.rmtree(path / "proposer"),
    "roles exchanged": swap_roles,
    "memory changed": alter("memory.json", lambda content: content[::-1]),
    "weights that belong to nobody": write("solver/model-2.safetensors", b"x"),
    "folder empty": lambda path: (shutil.rmtree(path), path.mkdir()),
    "folder a file": to_file,
    "folder of another name": lambda path: path.rename(path.with_name("step-000009")),
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_damaged_newest_checkpoint_is_passed_over(runs: SimpleNamespace, folder: Path, kind: str) -> None:
    newest = folder / "checkpoints" / "step-000004"
    CHECKPOINTS[kind](newest)
    damaged = newest if newest.exists() else newest.with_name("step-000009")
    kept = sorted(path.relative_to(damaged) for path in damaged.rglob("*"))
    notes = train(folder)
    (line,) = [note for note in notes if "damaged" in note]
    assert line.startswith(f"checkpoint {damaged} is damaged: ") and "\n" not in line
    assert line.endswith(f"; it is set aside as {damaged.name}.damaged, and step 3 is used")
    assert "going on after step 3 of 6" in notes
    assert contents(folder) == runs.straight
    aside = damaged.with_name(f"{damaged.name}.damaged")  # nothing in it is lost
    assert sorted(path.relative_to(aside) for path in aside.rglob("*")) == kept


def test_of_two_damaged_ones_the_third_is_used(runs: SimpleNamespace, folder: Path) -> None:
    for step in (3, 4):
        CHECKPOINTS["one bit of the weights"](folder / "checkpoints" / f"step-{step:06d}")
    notes = train(folder)
    assert sum("set aside" in note for note in notes) == 2 and "going on after step 2 of 6" in notes
    assert contents(folder) == runs.straight


def test_where_all_are_damaged_nothing_is_touched(runs: SimpleNamespace, folder: Path) -> None:
    saved = shutil.copytree(folder / "checkpoints", folder.parent / "saved")
    for found in find_checkpoints(folder / "checkpoints"):
        CHECKPOINTS["weights cut"](found.path)
    with pytest.raises(BadInput, match=r"^[^\n]*has no usable checkpoint: checkpoint .*000004 is damaged"):
        train(folder)
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(BadInput, match=r"has 4 steps but no checkpoint to resume from; nothing was changed\n"):
        train(folder)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    saved.rename(folder / "checkpoints")
    train(folder)
    assert contents(folder) == runs.straight


def test_sound_checkpoints_of_before_manifests_had_a_digest_are_used(runs: SimpleNamespace, folder: Path) -> None:
    for found in find_checkpoints(folder / "checkpoints"):
        OLD(found.path)
        (found.path / "notes.txt").write_text("what a person puts there is no damage")
    notes = train(folder)
    assert notes[0] == "going on after step 4 of 6"
    assert contents(folder) == runs.straight


def test_a_damaged_checkpoint_in_between_does_not_push_out_good_ones(runs: SimpleNamespace, folder: Path) -> None:
    CHECKPOINTS["weights cut"](folder / "checkpoints" / "step-000003")
    train(folder)
    assert contents(folder) == runs.straight
    assert read_checkpoint(folder / "checkpoints" / "step-000006").step == 6


# ------------------------------------------------------------------------------------------------ shards, database

SHARD, DATABASE = "episodes/00000.jsonl.zst", "run.db"


def sql(*statements: str) -> Damage:
    def damage(path: Path) -> None:
        database = sqlite3.connect(path / DATABASE)
        for statement in statements:
            database.execute(statement)
        database.commit()
        database.close()

    return damage


HARMLESS: dict[str, Damage] = {
    "bytes behind the last frame": alter(SHARD, lambda content: content + b"torn frame"),
    "a shard nobody knows of": write("episodes/00007.jsonl.zst", b"torn"),
    "a file that is no shard": write("episodes/0x.jsonl.zst", b"mine"),
    "a log of nothing": write("run.db-wal", b"\0" * 100),
    "the lock of a dead writer": write("run.lock", b"4242"),
    "a killed save": lambda path: (path / "checkpoints" / ".step-000005.partial-0123456789abcdef" / "solver").mkdir(
        parents=True
    ),
}
REFUSED: dict[str, tuple[str, Damage, str]] = {
    "shard cut": (SHARD, alter(SHARD, lambda content: content[:-1]), "episodes are lost"),
    "shard empty": (SHARD, write(SHARD, b""), "episodes are lost"),
    "shard gone": (SHARD, lambda path: (path / SHARD).unlink(), "episodes are lost"),
    "database gone": (DATABASE, lambda path: (path / DATABASE).unlink(), "is not a run directory"),
    "database empty": (DATABASE, write(DATABASE, b""), "has schema 0"),
    "database cut": (DATABASE, alter(DATABASE, lambda content: content[:5000]), "cannot be read|cannot write"),
    "database of zeros": (DATABASE, alter(DATABASE, lambda content: b"\0" * len(content)), "cannot be read"),
    "database another file": (DATABASE, write(DATABASE, b"not a database, but a note " * 99), "cannot be read"),
    "database of a newer version": (DATABASE, sql("PRAGMA user_version = 99"), "has schema 99"),
    "a table gone": (DATABASE, sql("DROP TABLE episodes"), "cannot be read"),
    "the run's table gone": (DATABASE, sql("DROP TABLE runs"), "cannot write to the run .*no such table"),
    "the run's row gone": (DATABASE, sql("DELETE FROM runs"), "has no valid row"),
    "settings that are none": (DATABASE, sql("UPDATE runs SET settings = '[[['"), "has no valid row"),
    "rows that point nowhere": (DATABASE, sql("UPDATE episodes SET shard = 5"), "episodes are lost"),
}


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_a_killed_process_leaves_is_cleared_away(runs: SimpleNamespace, folder: Path, kind: str) -> None:
    HARMLESS[kind](folder)
    assert train(folder)[0] == "going on after step 4 of 6"
    assert contents(folder) == runs.straight
    assert not [path for path in (folder / "checkpoints").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("kind", REFUSED)
def test_what_no_checkpoint_holds_is_refused_in_one_line_and_left_alone(
    runs: SimpleNamespace, folder: Path, kind: str
) -> None:
    name, damage, said = REFUSED[kind]
    saved = shutil.copy(folder / name, folder.parent / "saved")
    damage(folder)
    with pytest.raises(BadInput, match=said) as caught:
        train(folder)
    assert "\n" not in str(caught.value)
    for path in folder.glob("run.db-*"):
        path.unlink()
    shutil.copy(saved, folder / name)
    assert train(folder)[0] == "going on after step 4 of 6"
    assert contents(folder) == runs.straight


def test_a_damaged_frame_is_named_when_it_is_read_and_costs_no_other(
    runs: SimpleNamespace, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alter(SHARD, flip)(folder)
    show = ["runs", "show", str(folder)]
    assert main([*show, "i0-s0"]) == 2
    (line, hint) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"quaere: the episodes in {folder / SHARD} at byte 0 are damaged: ") and "backup" in hint
    assert main([*show, "i0-s1"]) == 0
    train(folder)
    with Run.open(folder) as run:
        assert [run.episode(f"i0-s{number}") for number in range(1, 6)] == runs.straight[2][0][1:]


def test_there_are_forty_kinds_and_more() -> None:
    assert len({*CHECKPOINTS, *HARMLESS, *REFUSED}) >= 40
