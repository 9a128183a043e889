"""A package outside of Quaere adds a recipe, a dialect and a search engine: one run uses all three and resumes."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import FunctionType

import pytest

import village
from preloaded import run_command, start_command
from quaere.dialects.registry import find_dialect, open_solver
from quaere.errors import BadInput, ExtraMissing
from quaere.plugins import Registry
from quaere.recipes.registry import find_recipe
from quaere.runs import Run
from quaere.search.engines import find_engine

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
def index(site, village_paths, tmp_path_factory):
    """The village's documents in an index of the package's engine."""
    corpus = Path(village_paths[0]).parent / "corpus.jsonl"
    out = tmp_path_factory.mktemp("titles") / "index"
    code, said = run_command("index", corpus, "--out", out, "--engine", "titles", source=site)
    assert code == 0, said
    return out


@pytest.fixture(scope="module")
def where(index, village_paths, tmp_path_factory):
    _, model = village_paths
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


@pytest.fixture(scope="module")
def killed(site, where, tmp_path_factory):
    """The folder of two equal runs: `whole`, and `killed`, which was killed after its first checkpoint and resumed."""
    folder = tmp_path_factory.mktemp("runs")
    begun = ["evolve", "frugal", *where, "--set", "solver.steps=4", "--set", "solver.evaluation.price=0.25"]
    code, said = run_command(*begun, "--out", folder / "whole", source=site)
    assert code == 0, said
    process, stderr = start_command(*begun, "--out", folder / "killed", "--json", source=site)
    with stderr:
        while not list(folder.glob("killed/checkpoints/step-000001")):
            assert process.is_alive(), stderr.read()
        process.kill()
        process.join()
    assert len(rewards_of(folder / "killed")) < 4
    code, said = run_command("evolve", "--resume", folder / "killed", source=site)
    assert code == 0, said
    return folder


def test_its_recipe_is_killed_and_goes_on_as_if_it_was_not(killed):
    assert len(rewards_of(killed / "whole")) == 4
    assert rewards_of(killed / "killed") == rewards_of(killed / "whole")


def test_its_dialect_rewards_and_its_engine_searches(killed):
    assert "price: 0.25" in (killed / "killed" / "config.yaml").read_text()
    with Run.open(killed / "killed") as run:
        rows = run.index()
        episodes = [run.episode(row.id) for row in rows]
    for row, episode in zip(rows, episodes, strict=True):
        num_searches = sum(len(turn.results) for turn in episode.turns)
        paid = row.metrics["answer/exact_match"] - 0.25 * max(0, num_searches - 1)
        assert row.metrics["reward/total"] == pytest.approx(paid)
    results = [result for episode in episodes for turn in episode.turns for result in turn.results]
    found = [hit for result in results for hit in result.hits]
    assert found and {hit.score for hit in found} == {1.0}  # the number of words shared: no score of BM25


def test_without_the_package_its_run_and_its_index_say_what_is_missing(killed, index):
    code, said = run_command("evolve", "--resume", killed / "killed")
    assert code == 2 and "there is no recipe frugal" in said
    code, said = run_command("search", "Halm", "--index", index)
    assert code == 2 and "there is no search engine 'titles'" in said


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
        "print(*registry.SOLVER_DIALECTS); print(*registry.TAUGHT_NAMES, registry.find_taught('frugal'));"
        "from quaere.search.engines import ENGINE_NAMES; print(*ENGINE_NAMES)"
    )
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    recipes, dialects, taught, engines = done.stdout.splitlines()
    assert recipes.split()[0] == "drzero" and recipes.split()[-1] == "frugal"
    assert engines.split() == ["bm25", "dense", "hybrid", "lance", "titles"]
    assert dialects.split()[-1] == "frugal" and "Taught(dialect='frugal', evidence=False)" in taught


@pytest.mark.parametrize(
    ("group", "name", "find", "noun"),
    [
        ("quaere.recipes", "broken", find_recipe, "recipe"),
        ("quaere.dialects", "broken.solver", lambda name: find_dialect("broken", "solver"), "dialect"),
        ("quaere.retrievers", "broken", find_engine, "search engine"),
    ],
)
@pytest.mark.parametrize(
    ("place", "reason"),
    [("no_such_module:X", "ModuleNotFoundError: No module named"), ("json:loads", "TypeError: json:loads is not a ")],
)
def test_a_broken_package_is_named_in_one_line(tmp_path, monkeypatch, group, name, find, noun, place, reason):
    install(tmp_path, [(group, {name: place})], "broken-search")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput) as refused:
        find(name)
    said = f"the {noun} {name!r} of the package broken-search cannot be loaded: {reason}"
    assert str(refused.value).startswith(said) and "\n" not in str(refused.value)
    assert "pip uninstall broken-search" in refused.value.hint


def test_a_broken_package_does_not_hide_the_error_of_another_dialect(tmp_path, monkeypatch):
    install(tmp_path, [("quaere.dialects", {"broken.solver": "no_such_module:X"})], "broken-search")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match="only the tool-call dialect can be guided, not search-r1"):
        open_solver("search-r1", guided=True)


def test_a_missing_extra_is_named_rather_than_the_package(tmp_path, monkeypatch):
    install(tmp_path, [("quaere.recipes", {"unmet": "unmet_search:RECIPE"})], "unmet-search")
    missing = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
    (tmp_path / "unmet_search.py").write_text(missing)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ExtraMissing, match="torch is not installed"):
        find_recipe("unmet")


def test_names_are_looked_up_on_demand_and_those_of_quaere_stay_its_own(tmp_path, monkeypatch):
    registry = Registry("recipe", "quaere.recipes", {"drzero": "json:loads"})
    assert list(registry.names) == ["drzero"]
    install(tmp_path, [("quaere.recipes", {"later": "json:dumps", "drzero": "os:path"})], "later-search")
    monkeypatch.syspath_prepend(tmp_path)
    assert list(registry.names) == ["drzero", "later"] and "other" not in registry.names
    assert registry.load("drzero", FunctionType) is json.loads
    assert registry.load("later", FunctionType) is json.dumps


def test_a_name_of_two_packages_is_refused(tmp_path, monkeypatch):
    for name in ("one-search", "two-search"):
        install(tmp_path, [("quaere.recipes", {"twice": "json:loads"})], name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match="the recipe 'twice' is in several packages: one-search, two-search"):
        find_recipe("twice")
