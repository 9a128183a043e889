"""How near a test file is to a module of the package: whether it imports it, lies in its room's folder, and so on.

imports = Imports(Path("src"), Path("tests"))
sorted(files, key=lambda file: imports.rank(file, Path("src/quaere/rewards/answers.py")))
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

    def rank(self, test: Path, module: Path) -> tuple[int, bool, bool, int]:
        """How near a test file is to a module of the package, for sorting.

        By how many modules lie between them; those of the folder that is named like its room first; of these, those
        that are called like the module: commands are imported by their names, which is seen by nobody. Then what
        imports least: what imports much is slow, and says little of any one module.
        """
        dotted, room = _dotted(module.relative_to(self.source)), module.relative_to(self.source).parts[1]
        is_named = dotted.rpartition(".")[2].split("_")[0] in test.stem.split("_")
        return (self._distance(test, dotted, 1), test.parent.name != room, not is_named, len(self._imports(test)))

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
