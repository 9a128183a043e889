"""Would a test notice? Puts small faults into the code, one at a time, and runs the tests that call what was changed.

    python benchmarks/mutants.py --room rewards         # every room: leave it out
    python benchmarks/mutants.py --room rollout --samples 40 --seed 3

The rooms `objectives` and `rewards` are tried whole, of every other a seeded sample (150). Printed are the share of
faults that a test noticed, with its Wilson interval, and each that none did. All is kept in `.mutants/`: a run that was
stopped goes on, and what survived is tried again once a test has changed.

Which tests: those of the folder that is named like the room, then those that import a module of it (`--reach 2`: or a
module that does). Each such file is run once, when it is first needed, to see that it passes and which functions each
of its tests calls; one that takes more than five minutes is passed over. A mutant meets the tests that call its
function, up to `--seconds`: files that import what was changed first, and of these the quickest. Where a fixture that
tests share calls it, and for code outside functions, all tests of the file are meant. What only another process calls
is not seen.

Every run is a fork of one process that has already imported the large libraries; the mutated source lies in a temporary
copy, so the working tree is never touched. The default settings of pytest apply: slow tests are left out.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from mutations import Mutant, find_mutants
from near_tests import Imports

ROOT = Path(__file__).parents[1]
WHOLE = ("objectives", "rewards")
NUM_SAMPLES = 150
PRELOADED = ("numpy", "torch", "transformers", "hypothesis", "pytest", "msgspec", "starlette")
PASSED = 0
LOOK_S = 300.0
PATIENCE_S = 20.0  # a mutant may take this much, and five times as long as its tests do
# As in tests/conftest.py: some are read when a library is imported.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}


class Outcome(Struct, frozen=True):
    """What became of a mutant: killed by a test, by the clock, or by none.

    Outcome(key="93b1...", fate="killed", tests="5d0c...")
    """

    key: str
    fate: str  # killed, timeout, survived, uncalled
    tests: str  # the state of the tests it met

    @property
    def is_killed(self) -> bool:
        return self.fate in ("killed", "timeout")

    def is_open(self, tests: str) -> bool:
        """True if it is worth trying again: it survived, and the tests are no longer those it met."""
        return not self.is_killed and self.tests != tests


class TestFile(Struct, frozen=True):
    """What one run of a test file showed: processor time by test, and which tests call which functions.

    `shared` are calls of fixtures that several tests have, and of imports. A function is "file.py:Class.method".
    """

    name: str
    passed: bool
    seconds: dict[str, float]
    calls: dict[str, list[str]]
    shared: list[str]

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())

    def tests_of(self, function: str) -> list[str]:
        """The tests to run for a mutant of a function, or of "file.py:<module>"; all where it is called for all."""
        if function in self.shared:
            return list(self.seconds)
        return [test for test, called in self.calls.items() if function in called]


# ------------------------------------------------------------------------------------------------------- runs in forks


def run_forked(work: Callable[[], int], limit_s: float) -> int | None:
    """The exit code of some work in a process of its own; None if it was ended for taking too long.

    The limit is on processor time, so that a busy machine kills no mutant; ten times as much may pass by the clock.
    """
    child = os.fork()
    if not child:
        code = 3
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (ceil(limit_s), ceil(limit_s) + 1))
            silence = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silence, stream)
            code = work()
        finally:
            os._exit(code)
    deadline = time.monotonic() + 10 * limit_s
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.01)


def run_pytest(tests: Sequence[str], source: Path, *plugins: object) -> int:
    """Run tests against a source tree, in this process, until one fails."""
    import pytest

    os.chdir(ROOT)
    sys.path.insert(0, str(source))
    os.environ["PYTHONPATH"] = str(source)  # for those who start other processes
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0"]
    return int(pytest.main([*options, *tests], plugins=list(plugins)))


class Watcher:
    """A plugin that notes which functions of the package each test calls, and how long it takes."""

    def __init__(self, source: Path) -> None:
        self.package = f"{next(source.iterdir())}{os.sep}"
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, set[str]] = defaultdict(set)
        self._test = ""  # none while files are imported and shared fixtures made

    def watch(self) -> None:
        """From now on, in every thread."""
        threading.settrace(self._note)
        sys.settrace(self._note)

    def _note(self, frame: Any, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(self.package):
            # A comprehension or a lambda belongs to its function.
            name = code.co_qualname.split(".<locals>.<")[0]
            self.calls[self._test].add(f"{code.co_filename.removeprefix(self.package)}:{name}")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._test = nodeid.split("[")[0]
        self.calls[self._test] = self.calls[self._test]
        self.seconds[self._test] -= time.process_time()

    def pytest_runtest_logfinish(self) -> None:
        self.seconds[self._test] += time.process_time()
        self._test = ""


def _plugin_for_fixtures(watcher: Watcher) -> object:
    import pytest

    class Fixtures:
        @pytest.hookimpl(wrapper=True)
        def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
            test = watcher._test
            if fixturedef.scope != "function":
                watcher._test = ""
            try:
                return (yield)
            finally:
                watcher._test = test

    return Fixtures()


def look_at(file: Path, source: Path, target: Path) -> int:
    """Run a test file against the package as it is, and write down what was seen."""
    watcher = Watcher(source)
    fixtures = _plugin_for_fixtures(watcher)
    watcher.watch()
    code = run_pytest([str(file)], source, watcher, fixtures)
    sys.settrace(None)
    shared = sorted(watcher.calls.pop("", ()))
    calls = {test: sorted(called) for test, called in watcher.calls.items()}
    seen = TestFile(str(file.relative_to(ROOT)), code in (0, 5), dict(watcher.seconds), calls, shared)
    target.write_bytes(msgspec.json.encode(seen))
    return code


# ---------------------------------------------------------------------------------------------------------- one room


class Trial:
    """Trying the mutants of rooms, with what they share: a copy of the sources, and what is known of the tests."""

    def __init__(self, home: Path, copy: Path, *, reach: int, seconds: float) -> None:
        self.home, self.source, self.reach, self.seconds = home, copy / "src", reach, seconds
        (home / "tests").mkdir(parents=True, exist_ok=True)
        shutil.copytree(ROOT / "src", self.source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        self.package = next(self.source.iterdir())
        _compile(self.source)
        self.imports = Imports(self.source, ROOT / "tests")
        files = sorted((ROOT / "tests").rglob("*.py"))
        self.tests = _digest(files)
        helpers = [path for path in files if not path.name.startswith("test_")]
        self._code = _digest([*sorted(self.source.rglob("*.py")), *helpers])
        self._seen: dict[Path, TestFile] = {}

    def try_room(self, room: str, num: int | None, seed: int) -> list[tuple[Mutant, Outcome]]:
        """Try a room's mutants, all or a sample: what became of each."""
        sources = {path: path.read_bytes() for path in sorted((self.package / room).rglob("*.py"))}
        names = {path: str(path.relative_to(self.package)) for path in sources}
        mutants = {m.key(text): m for path, text in sources.items() for m in find_mutants(names[path], text)}
        keys = sorted(mutants)
        if num is not None and num < len(keys):
            keys = random.Random(f"{seed}/{room}").sample(keys, num)
        keys.sort(key=lambda key: (mutants[key].file, mutants[key].start))
        kept = self.home / f"{room}.jsonl"
        known = {one.key: one for one in _read_outcomes(kept)}
        due = [key for key in keys if key not in known or known[key].is_open(self.tests)]
        near = self.imports.near(room, self.reach)
        with kept.open("a") as file:
            for number, key in enumerate(due, 1):
                known[key] = Outcome(key, self._try(mutants[key], near), self.tests)
                file.write(msgspec.json.encode(known[key]).decode() + "\n")
                file.flush()
                if not known[key].is_killed:
                    print(f"{number}/{len(due)} {known[key].fate}  {mutants[key]}", flush=True)
        return [(mutants[key], known[key]) for key in keys]

    def _try(self, mutant: Mutant, near: Sequence[Sequence[Path]]) -> str:
        """Run what may notice a mutant, nearest first, until something does."""
        fate, left = "uncalled", self.seconds
        path = self.package / mutant.file
        source = path.read_bytes()
        for files in near:
            # Who imports the very file that was changed is asked first, and of these the quickest.
            closest = sorted(files, key=lambda file: (not self.imports.has(file, path), self._look_at(file).total_s))
            function = f"{mutant.file}:{mutant.function or '<module>'}"
            tests, seconds = _choose([self._look_at(file) for file in closest], function, left)
            if not tests:
                continue
            path.write_bytes(mutant.apply(source))
            try:
                code = run_forked(lambda tests=tests: run_pytest(tests, self.source), PATIENCE_S + 5 * seconds)
            finally:
                path.write_bytes(source)
            if code != PASSED:
                return "timeout" if code is None else "killed"
            fate, left = "survived", left - seconds
        return fate

    def _look_at(self, path: Path) -> TestFile:
        """What is known of a test file, which is run unless nothing has changed since."""
        if path not in self._seen:
            state = sha256(f"{self._code} {_digest([path])}".encode()).hexdigest()[:16]
            target = self.home / "tests" / f"{path.stem}-{state}.json"
            if not target.exists():
                for old in target.parent.glob(f"{path.stem}-????????????????.json"):
                    old.unlink()
                print(f"looking at {path.relative_to(ROOT)}", flush=True)
                if run_forked(lambda: look_at(path, self.source, target), LOOK_S) is None:
                    target.write_bytes(msgspec.json.encode(TestFile(path.name, True, {}, {}, [])))
            self._seen[path] = msgspec.json.decode(target.read_bytes(), type=TestFile)
            if not self._seen[path].passed:
                target.unlink()
                sys.exit(f"{path.relative_to(ROOT)} does not pass as it is: no mutant can be tried against it")
        return self._seen[path]


def _choose(files: Sequence[TestFile], function: str, limit_s: float) -> tuple[list[str], float]:
    """The tests that may notice a change of a function, as many as there is time for, and how long they take."""
    tests, seconds = [], 0.0
    for file in files:
        for test in sorted(file.tests_of(function), key=file.seconds.__getitem__):
            if seconds + file.seconds[test] <= limit_s:
                tests.append(test)
                seconds += file.seconds[test]
    return tests, seconds


def report(room: str, outcomes: Sequence[tuple[Mutant, Outcome]]) -> str:
    """The share of a room's mutants that a test noticed, and those that none did."""
    from quaere.evaluation.intervals import wilson_interval

    lost = [(mutant, outcome) for mutant, outcome in outcomes if not outcome.is_killed]
    share = wilson_interval(len(outcomes) - len(lost), len(outcomes))
    head = f"{room}: {len(outcomes) - len(lost)} of {len(outcomes)} noticed, "
    head += f"{100 * share.mean:.1f} % [{100 * share.low:.1f}, {100 * share.high:.1f}]"
    return "\n".join([head, *(f"  {outcome.fate}  {mutant}" for mutant, outcome in lost)])


def _read_outcomes(path: Path) -> list[Outcome]:
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Outcome) for line in lines if line.endswith(b"}")]


def _digest(paths: Sequence[Path]) -> str:
    whole = sha256()
    for path in paths:
        whole.update(sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:16]


def _compile(source: Path) -> None:
    """Bytecode that holds for as long as its source is the same, to the byte: times are no witness of a mutant."""
    import compileall
    import py_compile

    compileall.compile_dir(source, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rooms = sorted(path.parent.name for path in (ROOT / "src" / "quaere").glob("*/__init__.py"))
    parser.add_argument("--room", choices=rooms, action="append", help="one of the package's rooms; may be repeated")
    parser.add_argument("--samples", type=int, help=f"so many of each room, not all or {NUM_SAMPLES}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reach", type=int, default=1, help="how many imports away a test may be (1)")
    parser.add_argument("--seconds", type=float, default=30, help="of tests a mutant meets at most (30)")
    parser.add_argument("--home", type=Path, default=ROOT / ".mutants")
    args = parser.parse_args()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    outcomes = {}
    with tempfile.TemporaryDirectory() as scratch:
        # Examples that made a mutant fail are nobody's business afterwards.
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{scratch}/hypothesis"
        trial = Trial(args.home, Path(scratch), reach=args.reach, seconds=args.seconds)
        for name in PRELOADED:
            import_module(name)
        for room in args.room or rooms:
            num = args.samples or (None if room in WHOLE else NUM_SAMPLES)
            outcomes[room] = trial.try_room(room, num, args.seed)
    # Only now: a fork must find no module of the package imported.
    for room, tried in outcomes.items():
        text = report(room, tried)
        (args.home / f"{room}.txt").write_text(text + "\n")
        print(text)


if __name__ == "__main__":
    main()
