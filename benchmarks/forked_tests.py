"""Test files run in forks of one process: what each of their tests calls and takes, and whether a change is noticed.

run_forked(lambda: look_at(file, source, target, root), 60)
msgspec.json.decode(target.read_bytes(), type=TestFile).tests_of("rewards/answers.py:contains")
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec
from msgspec import Struct

WRITE_EVERY_S = 5.0
IDLE_AFTER_S, IDLE_S = 15.0, 0.2  # who has used so little in so long waits for something that never comes


class TestFile(Struct, frozen=True):
    """What one run of a test file showed: processor time by test, and which tests call which functions.

    `shared` are calls of fixtures that several tests have, and of imports; `fixtures` are the seconds that each of
    those fixtures takes, `needs` which of them a test has. A function is "file.py:Class.method".
    """

    name: str
    passed: bool
    seconds: dict[str, float] = {}
    calls: dict[str, list[str]] = {}
    shared: list[str] = []
    fixtures: dict[str, float] = {}
    needs: dict[str, list[str]] = {}
    is_whole: bool = False  # not, if it was ended before its last test
    state: str = ""  # of the modules it calls, as they were then

    @property
    def modules(self) -> set[str]:
        """The modules of the package that its tests import or call."""
        called = [*self.shared, *(name for names in self.calls.values() for name in names)]
        return {name.partition(":")[0] for name in called}

    def tests_of(self, function: str) -> list[str]:
        """The tests to run for a mutant of a function, or of "file.py:<module>", the likeliest and quickest first.

        All of them where it is called for all; then those that call something of its file come first.
        """
        module = function.partition(":")[0] + ":"
        tests = [test for test, called in self.calls.items() if function in called or function in self.shared]
        is_near = {test: any(name.startswith(module) for name in self.calls[test]) for test in tests}
        return sorted(tests, key=lambda test: (not is_near[test], self.seconds[test]))

    def cost_of(self, test: str, ready: set[str]) -> float:
        """The seconds a test takes with the shared fixtures it needs, but for those that are ready."""
        return self.seconds[test] + sum(self.fixtures[name] for name in self.needs[test] if name not in ready)


def run_forked(work: Callable[[], int], limit_s: float) -> int | None:
    """The exit code of some work in a process of its own; None if it was ended for taking too long.

    The limit is on processor time, so that a busy machine kills no mutant. By the clock it goes on for as long as it
    does something.
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
    deadline, used = time.monotonic() + IDLE_AFTER_S, 0.0
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
        if time.monotonic() > deadline:
            before, used = used, session_seconds(child)
            if used - before < IDLE_S:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return None
            deadline = time.monotonic() + IDLE_AFTER_S
        time.sleep(0.01)


def session_seconds(leader: int) -> float:
    """Processor seconds of a process and of all that it started, ended ones included; 0 where there is no /proc."""
    ticks = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == leader:
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def run_pytest(tests: Sequence[str], source: Path, root: Path, *plugins: object) -> int:
    """Run tests against a source tree, in this process, until one fails."""
    import pytest

    os.chdir(root)
    sys.path.insert(0, str(source))
    os.environ["PYTHONPATH"] = str(source)  # for those who start other processes
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0"]
    return int(pytest.main([*options, "--hypothesis-profile=quick", *tests], plugins=list(plugins)))


def spent() -> float:
    """Processor seconds of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Watcher:
    """A plugin that notes which functions of the package each test calls, and how long it takes.

    What it knows is written to a file every few seconds, so that something is known of a test file that takes too long.
    """

    def __init__(self, source: Path, name: str, target: Path) -> None:
        self.package = f"{next(source.iterdir())}{os.sep}"
        self.name, self.target = name, target
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, set[str]] = defaultdict(set)
        self.fixtures: dict[str, float] = defaultdict(float)
        self.needs: dict[str, list[str]] = {}
        self._codes: set[CodeType] = set()  # called since it was last asked
        self._written = spent()
        self._test = ""  # none while files are imported and shared fixtures made
        self._began = 0.0

    def watch(self) -> None:
        """From now on, in every thread."""
        threading.settrace(self._note)
        sys.settrace(self._note)

    def _note(self, frame: Any, event: str, argument: object) -> None:
        self._codes.add(frame.f_code)  # and no more: this is asked at every call of anything

    def _count(self) -> None:
        """Whatever was called since the last count was called by the test that is under way."""
        codes, self._codes = self._codes, set()
        for code in codes:
            if code.co_filename.startswith(self.package):
                # A comprehension or a lambda belongs to its function.
                name = code.co_qualname.split(".<locals>.<")[0]
                self.calls[self._test].add(f"{code.co_filename.removeprefix(self.package)}:{name}")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._count()
        self._test = nodeid.split("[")[0]
        self.calls[self._test] = self.calls[self._test]
        self._began = spent()

    def pytest_runtest_setup(self, item: Any) -> None:
        self.needs[self._test] = list(item.fixturenames)

    def pytest_runtest_logfinish(self) -> None:
        self._count()
        self.seconds[self._test] += spent() - self._began
        self._test = ""
        if spent() - self._written > WRITE_EVERY_S:
            self._written = spent()
            self.write(passed=True, is_whole=False)

    @contextmanager
    def shared_fixture(self, name: str) -> Iterator[None]:
        """While a fixture is made that several tests have: its time and calls are not those of the first of them."""
        self._count()
        test, began, self._test = self._test, spent(), ""
        try:
            yield
        finally:
            self._count()
            took = spent() - began
            self.fixtures[name] += took
            self._began += took
            self._test = test

    def write(self, *, passed: bool, is_whole: bool) -> None:
        self._count()
        shared = sorted(self.calls.get("", ()))
        calls = {test: sorted(called) for test, called in self.calls.items() if test in self.seconds}
        needs = {test: [name for name in self.needs.get(test, ()) if name in self.fixtures] for test in calls}
        seen = TestFile(self.name, passed, dict(self.seconds), calls, shared, dict(self.fixtures), needs, is_whole)
        fresh = self.target.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(seen))
        fresh.replace(self.target)


def _plugin_for_fixtures(watcher: Watcher) -> object:
    import pytest

    class Fixtures:
        @pytest.hookimpl(wrapper=True)
        def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
            if fixturedef.scope == "function":
                return (yield)
            with watcher.shared_fixture(fixturedef.argname):
                return (yield)

    return Fixtures()


def look_at(file: Path, source: Path, target: Path, root: Path) -> int:
    """Run a test file against the package as it is, and write down what was seen."""
    sys.dont_write_bytecode = False  # pytest's, of the tests: the package's own is there
    watcher = Watcher(source, str(file.relative_to(root)), target)
    fixtures = _plugin_for_fixtures(watcher)
    watcher.watch()
    code = run_pytest([str(file)], source, root, watcher, fixtures)
    sys.settrace(None)
    watcher.write(passed=code in (0, 5), is_whole=True)
    return code
