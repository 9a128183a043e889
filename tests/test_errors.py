"""What the hint for a missing extra says, in a clone and from an installed package."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

import quaere
from quaere.errors import MODEL_LIBRARIES, ExtraMissing, find_nearest, install_hint

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def package_in(folder: Path, *parts: str) -> Path:
    package = folder.joinpath(*parts, "quaere")
    package.mkdir(parents=True)
    return package


def test_in_a_clone_the_clone_is_installed_with_the_extra(tmp_path, monkeypatch):
    package = package_in(tmp_path, "my clone", "src")
    clone = tmp_path / "my clone"
    (clone / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    assert shlex.split(install_hint("pdf", package)) == ["pip", "install", "-e", f"{clone.resolve()}[pdf]"]
    monkeypatch.chdir(clone)
    assert install_hint("pdf", package) == "pip install -e '.[pdf]'"


def test_an_installed_package_is_named(tmp_path):
    """pip takes the extras from the metadata of what is installed, which `make wheel-check` tries out."""
    assert install_hint("pdf", package_in(tmp_path, "lib", "site-packages")) == "pip install 'quaere[pdf]'"


def test_the_extra_torch_has_every_library_that_models_need():
    needed = {re.split(r"[<>=]", line)[0] for line in EXTRAS["torch"]}
    assert needed == set(MODEL_LIBRARIES)
    assert "quaere[torch]" in EXTRAS["train"]


def test_no_library_that_models_need_is_installed_for_all():
    everywhere = {re.split(r"[<>=]", line)[0] for line in PROJECT["dependencies"]}
    assert "bm25s" in everywhere and not everywhere & {*MODEL_LIBRARIES, "peft"}


def test_every_extra_that_is_asked_for_exists():
    asked = set()
    for path in Path(quaere.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        asked |= set(re.findall(r"extra=\"(\w+)\"|install_hint\([\"'](\w+)", text))
        if path.name != "errors.py":
            assert "pip install" not in text, f"{path}: install_hint knows what can be typed"
    names = {name for pair in asked for name in pair if name}
    assert {"pdf", "dense", "train", "select", "parquet", "torch"} <= names <= set(EXTRAS)


def test_what_is_raised_carries_the_hint():
    error = ExtraMissing("reading PDF files needs pypdf", extra="pdf")
    assert (str(error), error.hint) == ("reading PDF files needs pypdf", install_hint("pdf"))


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("stepps", ["seed", "steps"], "steps"),
        ("episods", ["epochs", "episodes"], "episodes"),
        ("ask-l", ["demo-7", "ask-1"], "ask-1"),
        ("lim", ["limit"], "limit"),
        ("nosuch", ["sh", "rd", "search-r1"], ""),
        ("validation*", ["run/iteration", "reward/mean"], ""),
        ("iterations", ["questions"], ""),
    ],
)
def test_only_a_name_that_is_probably_meant_is_suggested(name, known, meant):
    assert find_nearest(name, known) == meant
