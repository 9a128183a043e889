"""Which tests call which function: what one run of every test file showed, kept for as long as it holds.

known = SuiteMap(Path(".mutants/tests"), ROOT)
known.batches_for(mutant, seconds=10)  # the tests it should meet, nearest and quickest first
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec
from forked_tests import TestFile
from msgspec import Struct
from mutations import Mutant
from near_tests import Imports

BATCH_S = 2.0  # so much of a mutant's tests is run at once: most are killed by the first


class Batch(Struct, frozen=True):
    """Tests that are run at once, and the processor seconds they take.

    Batch(tests=["tests/objectives/test_pcar.py::test_factors"], seconds=0.2)
    """

    tests: list[str]
    seconds: float


class SuiteMap:
    """What is known of the test files, while one, the tests' helpers and the modules it calls stay as they are."""

    def __init__(self, home: Path, root: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home, self.root = home, root
        self.package = next(path for path in (root / "src").iterdir() if path.suffix != ".egg-info")
        self.imports = Imports(root / "src", root / "tests")
        self.helpers = digest(sorted(self.imports.helpers.values()))
        self.files: dict[Path, TestFile] = {}
        for path in self._paths():
            if self._place(path).exists():
                self.add(path)

    def list_due(self) -> list[tuple[Path, Path]]:
        """The test files that must be run, and where to write what is seen; the largest first."""
        due = [path for path in self._paths() if path not in self.files]
        return [(path, self._place(path)) for path in sorted(due, key=lambda path: -path.stat().st_size)]

    def add(self, path: Path) -> None:
        """Take up what was seen of a test file, if it still holds."""
        place = self._place(path)
        seen = msgspec.json.decode(place.read_bytes(), type=TestFile) if place.exists() else TestFile(path.name, True)
        names = sorted(seen.modules)
        state = digest([self.package / name for name in names if (self.package / name).exists()], *names)
        if not seen.state:  # it was run just now
            seen = msgspec.structs.replace(seen, state=state)
            place.write_bytes(msgspec.json.encode(seen))
            if not seen.passed:
                print(f"{path.relative_to(self.root)} does not pass as it is: no mutant meets it", flush=True)
        if seen.state == state:
            self.files[path] = seen

    def batches_for(self, mutant: Mutant, seconds: float) -> list[Batch]:
        """The tests that may notice a mutant, as many as there is time for."""
        batches: list[Batch] = []
        left, tests, took = seconds, list[str](), 0.0
        ready: dict[str, set[str]] = defaultdict(set)
        for file, test in self._in_turn(mutant):
            takes = file.cost_of(test, ready[file.name])
            if takes <= left:
                tests.append(test)
                left, took = left - takes, took + takes
                ready[file.name].update(file.needs[test])
            if took > BATCH_S:
                batches.append(Batch(tests, took))
                tests, took = [], 0.0
                ready.clear()
        return [*batches, Batch(tests, took)] if tests else batches

    def why_none(self, mutant: Mutant) -> str:
        """What a mutant is that no test is run for: called by none, or by such as take too long."""
        return "dear" if next(self._in_turn(mutant), None) else "uncalled"

    def _in_turn(self, mutant: Mutant) -> Iterator[tuple[TestFile, str]]:
        """The tests that call a mutant's function: the first of each file, then the second of each, and so on."""
        function = f"{mutant.file}:{mutant.function or '<module>'}"
        module = self.package / mutant.file
        found = [(path, file, file.tests_of(function)) for path, file in self.files.items() if file.passed]
        found = [one for one in found if one[2]]
        if not mutant.function:  # that a module is imported says little: almost all are
            found = [one for one in found if one[1].calls_into(mutant.file)] or found
        found.sort(key=lambda one: self.imports.rank(one[0], module))
        for turn in range(max((len(tests) for _, _, tests in found), default=0)):
            yield from ((file, tests[turn]) for _, file, tests in found if turn < len(tests))

    def _paths(self) -> list[Path]:
        return sorted((self.root / "tests").rglob("test_*.py"))

    def _place(self, path: Path) -> Path:
        return self.home / f"{path.stem}-{digest([path], self.helpers)}.json"


def digest(paths: Sequence[Path], *texts: str) -> str:
    """A short name for what files and texts hold."""
    whole = sha256("\0".join(texts).encode())
    for path in paths:
        whole.update(sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:16]
