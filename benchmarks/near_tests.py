"""Which test files are near a module of the package: those that import it, those of its room's folder, and so on.

Imports(Path("src"), Path("tests")).near(Path("src/quaere/rewards/answers.py"), reach=1)
-> [[tests/rewards/test_answers.py, ...], [tests/evaluation/test_answering.py, ...]]
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


class Imports:
    """Who imports what, read from the sources of package and tests."""

    def __init__(self, source: Path, tests: Path) -> None:
        self.source, self.tests = source, tests
        self.helpers = {path.stem: path for path in sorted(tests.rglob("*.py")) if not _is_test(path)}
        package = {_dotted(path.relative_to(source)): path for path in sorted(source.rglob("*.py"))}
        self.modules = {**self.helpers, **package}
        self._known: dict[Path, set[str]] = {}

    def near(self, module: Path, reach: int) -> list[list[Path]]:
        """Test files by their distance from a module of the package, nearest first.

        First come those that import it and those of the folder named like its room, then those that import a module
        that imports it, and so on: `reach` such steps.
        """
        name, room = _dotted(module.relative_to(self.source)), module.relative_to(self.source).parts[1]
        found: list[list[Path]] = [[] for _ in range(reach + 1)]
        for path in sorted(self.tests.rglob("test_*.py")):
            distance = 0 if path.parent.name == room else self._distance(path, name, reach)
            if distance <= reach:
                found[distance].append(path)
        return [sorted(files, key=lambda path: self._rank(path, name, room)) for files in found]

    def _rank(self, test: Path, name: str, room: str) -> tuple[int, bool, bool, int]:
        """By distance; those of its folder first, though not if they do not seem to reach it; then what imports least.

        What imports much is slow, and says little of any one module. Commands are imported by their names, which is
        seen by nobody: of a folder, the tests that are called like the module come first.
        """
        distance = min(self._distance(test, name, 2), 2)
        is_named = name.rpartition(".")[2].split("_")[0] in test.stem.split("_")
        return (distance, test.parent.name != room, not is_named, len(self._imports(test)))

    def _distance(self, test: Path, wanted: str, reach: int) -> int:
        """How many modules lie between a test file and a module; more than `reach` where it is not reached."""
        reached = self._imports(test)
        for distance in range(reach + 1):
            if wanted in reached:
                return distance
            reached = {other for name in reached for other in self._imports(self.modules[name])}
        return reach + 1

    def _imports(self, path: Path) -> set[str]:
        """The modules a file imports, helpers of the tests among them; where a package passes names on, its modules."""
        if path not in self._known:
            self._known[path] = set()  # a package may import itself
            found = set()
            for name in self._names(path):
                if name in self.helpers and path.is_relative_to(self.tests):
                    found.add(name)
                elif name in self.modules:
                    found |= {name} if self.modules[name].stem != "__init__" else self._imports(self.modules[name])
            self._known[path] = found
        return self._known[path]

    def _names(self, path: Path) -> Iterator[str]:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _is_test(path: Path) -> bool:
    return path.name.startswith("test_") or path.name == "conftest.py"
