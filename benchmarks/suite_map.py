"""Which tests call which function: what one run of every test file showed, kept for as long as it holds.

known = SuiteMap(Path(".mutants/tests"), ROOT)
known.batches_for(mutant, seconds=10)  # the tests it should meet, nearest and quickest first
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
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
        """The tests that may notice a mutant, while there is time: two thirds of it for those that are near."""
        near, far = self._callers(mutant)
        chosen = _choose(near, seconds * 2 / 3, in_turn=False)
        chosen += _choose(far, seconds - sum(takes for _, takes in chosen), in_turn=True)
        batches: list[Batch] = []
        for test, takes in chosen:
            if not batches or batches[-1].seconds > BATCH_S:
                batches.append(Batch([], 0.0))
            batches[-1] = Batch([*batches[-1].tests, test], batches[-1].seconds + takes)
        return batches

    def why_none(self, mutant: Mutant) -> str:
        """What a mutant is that no test is run for: called by none, or by such as take too long."""
        return "dear" if any(self._callers(mutant)) else "uncalled"

    def _callers(self, mutant: Mutant) -> tuple[list[tuple[TestFile, list[str]]], ...]:
        """Files and their tests that call a mutant's function: near ones, and others, the nearest first.

        Near is what lies in the folder of its room, or imports its module.
        """
        function = f"{mutant.file}:{mutant.function or '<module>'}"
        module = self.package / mutant.file
        calling = {path: file.tests_of(function) for path, file in self.files.items() if file.passed}
        found = sorted((path for path in calling if calling[path]), key=lambda path: self.imports.rank(path, module))
        room = mutant.file.partition("/")[0]
        near = [path for path in found if path.parent.name == room or not self.imports.rank(path, module)[0]]
        far = [path for path in found if path not in near]
        return tuple([(self.files[path], calling[path]) for path in paths] for paths in (near, far))

    def _paths(self) -> list[Path]:
        return sorted((self.root / "tests").rglob("test_*.py"))

    def _place(self, path: Path) -> Path:
        return self.home / f"{path.stem}-{digest([path], self.helpers)}.json"


def _choose(files: Sequence[tuple[TestFile, list[str]]], seconds: float, *, in_turn: bool) -> list[tuple[str, float]]:
    """Tests and what they take, while there is time: the quickest first, or the first of each file, then the second."""
    tests = [(file, test, turn) for file, calling in files for turn, test in enumerate(calling)]
    tests.sort(key=lambda one: one[2] if in_turn else one[0].cost_of(one[1], set()))
    chosen: list[tuple[str, float]] = []
    ready: dict[str, set[str]] = defaultdict(set)
    for file, test, _ in tests:
        takes = file.cost_of(test, ready[file.name])
        if takes <= seconds:
            chosen.append((test, takes))
            seconds -= takes
            ready[file.name].update(file.needs[test])
    return chosen


def digest(paths: Sequence[Path], *texts: str) -> str:
    """A short name for what files and texts hold."""
    whole = sha256("\0".join(texts).encode())
    for path in paths:
        whole.update(sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:16]
