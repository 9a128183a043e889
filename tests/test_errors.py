"""What the hint for a missing extra says, in a clone and from an installed package."""

import importlib.metadata
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import quaere
from quaere.errors import ExtraMissing, install_hint

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


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


def test_an_installed_package_names_what_the_extra_stands_for(tmp_path, monkeypatch):
    lines = [
        "numpy>=1.26",
        'pypdf<8,>=5; extra == "pdf"',
        "faiss-cpu>=1.9 ; extra == 'dense'",
        'st>=5; extra == "dense"',
    ]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    package = package_in(tmp_path, "lib", "site-packages")
    assert install_hint("pdf", package) == "pip install 'pypdf<8,>=5'"
    assert install_hint("dense", package) == "pip install 'faiss-cpu>=1.9' 'st>=5'"


@pytest.mark.parametrize("lines", [None, ["numpy>=1.26"], importlib.metadata.PackageNotFoundError("quaere")])
def test_without_metadata_the_extra_itself_is_named(tmp_path, monkeypatch, lines):
    def requires(name):
        if isinstance(lines, Exception):
            raise lines
        return lines

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert install_hint("pdf", package_in(tmp_path, "lib", "site-packages")) == "pip install 'quaere[pdf]'"


def test_the_metadata_of_this_package_is_understood(tmp_path):
    """As the packager wrote it, whatever its quotes and blanks."""
    package = package_in(tmp_path, "lib", "site-packages")
    for extra, requirements in EXTRAS.items():
        named = [re.split(r"[<>=]", word)[0].lower() for word in shlex.split(install_hint(extra, package))[2:]]
        assert named == [re.split(r"[<>=]", line)[0].lower() for line in requirements]


def test_every_extra_that_is_asked_for_exists():
    asked = set()
    for path in Path(quaere.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        asked |= set(re.findall(r"extra=\"(\w+)\"|install_hint\([\"'](\w+)", text))
        assert not re.search(r"pip install (-U )?'?quaere\b", text), f"{path}: Quaere is not on PyPI"
    names = {name for pair in asked for name in pair if name}
    assert {"pdf", "dense", "train", "select", "parquet"} <= names <= set(EXTRAS)


def test_what_is_raised_carries_the_hint():
    error = ExtraMissing("reading PDF files needs pypdf", extra="pdf")
    assert (str(error), error.hint) == ("reading PDF files needs pypdf", install_hint("pdf"))
