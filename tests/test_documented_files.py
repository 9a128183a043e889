"""Files that the documentation and docstrings name are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/quaere"
NAMED = re.compile(r"(?<![\w/.-])((?:[\w-]+/)*[\w-]+\.(?:py|toml|sh))\b")
# Of other projects, of what a reader writes, or of a walk that `test_walks.py` follows.
ELSEWHERE = re.compile(r"frugal|terse|NAME|research\.py|setup\.py|pyproject\.toml|linear\.py")
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *PACKAGE.rglob("*.md"), *PACKAGE.rglob("*.py")]
FILES = {
    path.relative_to(ROOT).as_posix() for room in ("src", "tests", "benchmarks") for path in (ROOT / room).rglob("*.*")
}


def is_there(name):
    """A path may begin at any folder, and a bare name may be that of any file."""
    return any(file == name or file.endswith(f"/{name}") for file in FILES)


def missing(text):
    return [name for name in NAMED.findall(text) if not ELSEWHERE.search(name) and not is_there(name)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_that_are_named_exist(path):
    if path.name != "CHANGELOG.md":  # which speaks of what was
        assert missing(path.read_text(encoding="utf-8")) == []


def test_a_file_that_is_gone_is_noticed():
    assert missing("See `training/gone_for_good.py` and training/learner.py.") == ["training/gone_for_good.py"]
