"""What is no Python file is installed too: templates, phrases, the mark of a typed package."""

import tomllib
from pathlib import Path

import quaere

PACKAGE = Path(quaere.__file__).parent
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def test_every_file_of_the_package_is_installed():
    patterns = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]["quaere"]
    installed = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    others = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc", ".md")}
    assert others == installed
