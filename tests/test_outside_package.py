"""A package outside of Quaere adds a recipe and a dialect by entry points: it trains, is killed and goes on."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import village
from preloaded import run_command, start_command
from quaere import plugins
from quaere.errors import BadInput
from quaere.runs import Run

PACKAGE = Path(__file__).parent / "outside_package"


def install(folder, groups, name="frugal-search"):
    """What an installer writes for a package: its metadata, with the entry points."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"[{group}]\n" + "".join(f"{key} = {place}\n" for key, place in found.items()) for group, found in groups]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    shutil.copytree(PACKAGE / "frugal_search", folder / "frugal_search", ignore=shutil.ignore_patterns("__pycache__"))
    install(folder, project["entry-points"].items(), project["name"])
    return folder


@pytest.fixture(scope="module")
def where(village_paths, tmp_path_factory):
    index, model = village_paths
    folder = tmp_path_factory.mktemp("given")
    rows = [
        {"id": name, "question": f"Who built {name}?", "answers": [village.builder(number)]}
        for number, name in enumerate(village.BRIDGES)
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = {
        "prompts": "brief",
        "engine.mode": "deterministic",
        "checkpoints.every": 1,
        "solver.limits": village.LIMITS,
    }
    (folder / "run.yaml").write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items()))
    given = ["--index", index, "--model", model, "--questions", folder / "questions.jsonl"]
    return [*given, "--config", folder / "run.yaml", "--preset", "demo"]


def rewards_of(path):
    with Run.open(path) as run:
        return [(metric.step, metric.value) for metric in run.metrics("reward/mean")]


def test_its_recipe_trains_with_its_dialect_is_killed_and_goes_on(site, where, tmp_path):
    begun = ["evolve", "frugal", *where, "--set", "solver.steps=4", "--set", "solver.evaluation.price=0.25"]
    code, said = run_command(*begun, "--out", tmp_path / "whole", source=site)
    assert code == 0, said
    process, stderr = start_command(*begun, "--out", tmp_path / "killed", "--json", source=site)
    with stderr:
        while not list(tmp_path.glob("killed/checkpoints/step-000001")):
            assert process.is_alive(), stderr.read()
        process.kill()
        process.join()
    assert len(rewards_of(tmp_path / "killed")) < 4
    code, said = run_command("evolve", "--resume", tmp_path / "killed", source=site)
    assert code == 0, said
    assert rewards_of(tmp_path / "killed") == rewards_of(tmp_path / "whole")
    assert "price: 0.25" in (tmp_path / "killed" / "config.yaml").read_text()


def test_its_dialect_brings_its_own_settings(site, where, tmp_path):
    out = ["--out", tmp_path / "run"]
    code, said = run_command("evolve", "frugal", *where, *out, "--set", "solver.evaluation.price=-1", source=site)
    assert code == 2 and "solver.evaluation.price must be at least 0, not -1" in said
    other = ["--set", "solver.dialect=search-r1", "--set", "solver.evaluation.price=1"]
    code, said = run_command("evolve", "frugal", *where, *out, *other, source=site)
    assert code == 2 and "unknown setting solver.evaluation.price" in said


def test_its_names_are_listed_with_the_others(site):
    code = (
        "from quaere.recipes.registry import RECIPES; from quaere.dialects import registry; print(*RECIPES);"
        "print(*registry.SOLVER_DIALECTS); print(*registry.TAUGHT_NAMES, registry.find_taught('frugal'))"
    )
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    recipes, dialects, taught = done.stdout.splitlines()
    assert recipes.split()[0] == "drzero" and recipes.split()[-1] == "frugal"
    assert dialects.split()[-1] == "frugal" and "Taught(dialect='frugal', evidence=False)" in taught


def test_a_broken_package_is_named_in_one_line(tmp_path, monkeypatch):
    install(tmp_path, [("quaere.recipes", {"broken": "no_such_module:RECIPE", "drzero": "os:path"})], "broken-search")
    monkeypatch.syspath_prepend(tmp_path)
    registry = plugins.Registry("quaere.recipes", {"drzero": "json:loads"})
    assert registry.load("drzero") is json.loads
    assert registry.names[0] == "drzero" and "broken" in registry.names and "other" not in registry.names
    with pytest.raises(BadInput) as refused:
        registry.load("broken")
    said = "broken (quaere.recipes) of the package broken-search cannot be loaded: ModuleNotFoundError: No module named"
    assert str(refused.value).startswith(said) and "\n" not in str(refused.value)
    assert "pip uninstall broken-search" in refused.value.hint
