"""CONTRIBUTING.md's walks, followed to the letter in a copy of the sources, and two steps trained with the result."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import quaere
import test_layers
import village
from preloaded import run_command
from quaere.runs import Run

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"^(?:`(?P<path>src/\S+)`\n\n)?```(?P<kind>python|diff)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


def read_walks():
    """What the walks write and change: (path, kind, text), in their order. A block without a path is about the last."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks, path = [], ""
    for found in BLOCK.finditer(text[text.index("## Add a dialect") : text.index("## Errors and figures")]):
        path = found["path"] or path
        blocks.append((path, found["kind"], found["text"]))
    return blocks


def change(file, diff):
    """Apply a diff whose context stands in the file exactly once."""
    lines = diff.splitlines()
    before = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
    after = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{file}: {before}"
    file.write_text(text.replace(before, after), encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("walks")
    shutil.copytree(Path(quaere.__file__).parent, folder / "src/quaere", ignore=shutil.ignore_patterns("__pycache__"))
    for path, kind, text in read_walks():
        if kind == "python":
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        else:
            change(folder / path, text)
    return folder


def test_the_walks_touch_their_own_files_and_the_registries_alone():
    changed = {path for path, kind, _ in read_walks() if kind == "diff"}
    assert changed == {"src/quaere/dialects/registry.py", "src/quaere/recipes/registry.py"}
    written = {path.removeprefix("src/quaere/") for path, kind, _ in read_walks() if kind == "python"}
    assert written == {"dialects/frugal.py", "recipes/frugal.py", "recipes/terse.py"}


def village_settings(role):
    """The limits of a role's episodes that the village's model was taught with."""
    return [
        part
        for name, value in village.LIMITS.items()
        for part in ("--set", f"{role}.limits.{name}={json.dumps(value)}")
    ]


def test_a_recipe_of_the_walks_trains_two_steps(copy, village_paths, tmp_path):
    index, model = village_paths
    questions = tmp_path / "questions.jsonl"
    rows = [
        {"id": name, "question": f"Who built {name}?", "answers": [village.builder(number)]}
        for number, name in enumerate(village.BRIDGES)
    ]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sets = ["--set", "prompts=brief", *village_settings("solver")]  # those the model was taught, and short
    where = ["--index", index, "--model", model, "--questions", questions, "--out", tmp_path / "run"]
    code, said = run_command("evolve", "frugal", "--preset", "demo", *where, *sets, source=copy / "src")
    assert code == 0, said
    with Run.open(tmp_path / "run") as stored:
        rewards = stored.metrics("reward/mean")
        rows = stored.index()
    assert len(rewards) == 2 and {row.protocol for row in rows} == {"drzero-solver"}
    where[-1] = tmp_path / "other"
    code, said = run_command("evolve", "frugal", "--set", "solver.dialect=frogal", *where, source=copy / "src")
    assert code == 2 and "frugal" in said


@pytest.fixture(scope="module")
def terse(copy, village_paths, tmp_path_factory):
    """A run of the self-evolving recipe, with its own price per word."""
    index, model = village_paths
    out = tmp_path_factory.mktemp("terse") / "run"
    sets = [*village_settings("proposer"), *village_settings("solver"), "--set", "word_price=0.5"]
    where = ["--index", index, "--model", model, "--out", out]
    code, said = run_command("evolve", "terse", "--preset", "demo", *where, *sets, source=copy / "src")
    assert code == 0, said
    with Run.open(out) as stored:
        yield stored


def test_a_self_evolving_recipe_of_the_walks_asks_writes_and_answers(terse):
    phases = {phase: {row.step for row in terse.index(phase=phase)} for phase in ("proposer", "generation", "solver")}
    assert [len(steps) for steps in phases.values()] == [2, 1, 2]
    kept = {candidate.id for candidate in terse.curriculum(0)}
    asked = {terse.episode(row.id).task.question.id for row in terse.index(phase="solver")}
    assert asked and asked <= kept  # the solver answers what the proposer asked, and nothing else


def test_both_roles_of_the_self_evolving_recipe_have_their_own_reward(terse):
    for row in terse.index(phase="proposer", protocol="drzero-proposer"):
        asked, parts = terse.episode(row.id).outcome, row.metrics
        assert parts["reward/words"] == -0.5 * len(getattr(asked, "question", "").split())
        summed = parts["reward/format"] + parts["reward/difficulty"] + parts["reward/words"]
        assert parts["reward/total"] == pytest.approx(summed)
    assert all(metric.value < 0 for metric in terse.metrics("reward/words"))
    for row in terse.index(phase="solver"):
        num_searches = sum(len(turn.results) for turn in terse.episode(row.id).turns)
        paid = row.metrics["answer/exact_match"] - 0.1 * max(0, num_searches - 1)
        assert row.metrics["reward/total"] == pytest.approx(paid)


def test_settings_of_the_self_evolving_recipe_are_bounded(copy, village_paths, tmp_path):
    index, model = village_paths
    where = ["--index", index, "--model", model, "--out", tmp_path / "run"]
    code, said = run_command("evolve", "terse", *where, "--set", "word_price=-1", source=copy / "src")
    assert code == 2 and "word_price must be at least 0, not -1" in said


def test_the_package_shown_is_the_one_that_is_tested():
    path = "tests/outside_package/pyproject.toml"
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"`{path}`\n\n```toml\n{(ROOT / path).read_text(encoding='utf-8')}```\n" in text


def test_a_dialect_of_the_walks_can_be_demonstrated(copy):
    code = (
        "from quaere.warmup.dialects import DIALECTS, solver_turns; print([*DIALECTS], solver_turns('frugal').remarks)"
    )
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "'frugal'" in done.stdout and done.stdout.endswith(" none\n"), done.stderr
    code, said = run_command("warmup", "frogal", "--model", "m", "--out", "o", source=copy / "src")
    assert code == 2 and "frugal" in said


def test_the_code_of_the_walks_passes_style_and_layers(copy, monkeypatch):
    written = [path for path, kind, _ in read_walks() if kind == "python"]
    checks = ["ruff", "check", "--config", str(ROOT / "pyproject.toml"), *written]
    done = subprocess.run([sys.executable, "-m", *checks], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    monkeypatch.setattr(test_layers, "ROOT", copy / "src/quaere")
    assert list(test_layers.violations(copy / path for path in written)) == []
