"""Would a test notice? Puts small faults into the code, one at a time, and runs the tests that call what was changed.

    python benchmarks/mutants.py --room rewards         # every room: leave it out
    python benchmarks/mutants.py --room rollout --samples 40 --seed 3

The rooms `objectives` and `rewards` are tried whole, of every other a seeded sample (150). Printed are the share of
faults that a test noticed, with its Wilson interval, and each that none did. All is kept in `.mutants/`: a run that was
stopped goes on, and what survived is tried again once a test has changed.

Which tests: those that import the module that was changed, then those of the folder that is named like its room
(`--reach 1`: then those that import a module that imports it). Each such file is run once, when it is first needed, to
see that it passes and which functions each of its tests calls; of one that takes much longer than `--seconds` only the
first tests are known. A mutant meets the tests that call its function, nearest and quickest first, of up to `--files`
files and up to `--seconds` of them. Where a fixture that tests share calls it, and for code outside functions, all
tests of the file are meant. What only another process calls is not seen.

Where the tests of a module are whole runs, looking at all that are near takes longer than the rest, and those of a
command may lie in any folder. For such modules `mutant_tests.json` names files or tests by the beginning of the
module's path: these are run first, whole, without being looked at. `--files 0` runs them alone.

What becomes of a mutant: "killed" by a test, or by the clock ("timeout"); "survived" its tests; "uncalled" by any;
"dear" if each of its tests would take longer than `--seconds`.

Every run is a fork of one process that has already imported the large libraries; the mutated source lies in a temporary
copy, so the working tree is never touched. Slow tests are left out and properties are tried with the examples of `make
test`.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path

import msgspec
from forked_tests import TestFile, look_at, run_forked, run_pytest
from msgspec import Struct
from mutations import Mutant, find_mutants
from near_tests import Imports

ROOT = Path(__file__).parents[1]
WHOLE = ("objectives", "rewards")
NUM_SAMPLES = 150
PRELOADED = (
    "numpy",
    "torch",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "transformers.models.llama.modeling_llama",
    "hypothesis",
    "pytest",
    "pytest_asyncio.plugin",
    "pytest_timeout",
    "msgspec",
    "starlette",
    "uvicorn",
    "httpx",
    "jinja2",
    "rich",
)
PASSED, NO_TESTS = 0, 5
LOOK_S = 10.0
BATCH_S = 4.0  # so much of a mutant's tests is run at once: most are killed by the first
PATIENCE_S = 20.0  # a mutant may take this much, and five times as long as its tests do
NAMED_S = 30.0  # what the tests that are named for a module are thought to take
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
    fate: str  # killed, timeout, survived, uncalled, dear
    tests: str  # the state of the tests, and which of them it could meet

    @property
    def is_killed(self) -> bool:
        return self.fate in ("killed", "timeout")

    def is_open(self, tests: str) -> bool:
        """True if it is worth trying again: it survived, and the tests are no longer those it met."""
        return not self.is_killed and self.tests != tests


# ---------------------------------------------------------------------------------------------------------- one room


class Trial:
    """Trying the mutants of rooms, with what they share: a copy of the sources, and what is known of the tests."""

    def __init__(self, home: Path, copy: Path, *, reach: int, files: int, seconds: float) -> None:
        self.home, self.source = home, copy / "src"
        self.reach, self.files, self.seconds = reach, files, seconds
        (home / "tests").mkdir(parents=True, exist_ok=True)
        shutil.copytree(ROOT / "src", self.source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        self.package = next(self.source.iterdir())
        _compile(self.source)
        self.imports = Imports(self.source, ROOT / "tests")
        paths = sorted((ROOT / "tests").rglob("*.py"))
        self.tests = f"{_digest(paths)} {reach} {files} {seconds:g}"
        helpers = [path for path in paths if not path.name.startswith("test_")]
        self._code = _digest([*sorted(self.source.rglob("*.py")), *helpers])
        self._seen: dict[Path, TestFile] = {}
        self.named: dict[str, list[str]] = {}
        for path in (ROOT / "benchmarks").glob("mutant_tests.json"):
            self.named = msgspec.json.decode(path.read_bytes())
            self.tests += f" {_digest([path])}"

    def try_room(self, room: str, num: int | None, seed: int) -> list[tuple[Mutant, Outcome]]:
        """Try a room's mutants, all or a sample: what became of each."""
        sources = {path: path.read_bytes() for path in sorted((self.package / room).rglob("*.py"))}
        names = {path: str(path.relative_to(self.package)) for path in sources}
        mutants = {m.key(text): m for path, text in sources.items() for m in find_mutants(names[path], text)}
        # A larger sample holds all of a smaller one, and a change of one file leaves the mutants of the others in it.
        keys = sorted(mutants, key=lambda key: sha256(f"{seed} {key}".encode()).digest())[:num]
        keys.sort(key=lambda key: (mutants[key].file, mutants[key].start))
        kept = self.home / f"{room}.jsonl"
        known = {one.key: one for one in _read_outcomes(kept)}
        due = [key for key in keys if key not in known or known[key].is_open(self.tests)]
        with kept.open("a") as file:
            for number, key in enumerate(due, 1):
                known[key] = Outcome(key, self._try(mutants[key]), self.tests)
                file.write(msgspec.json.encode(known[key]).decode() + "\n")
                file.flush()
                if not known[key].is_killed:
                    print(f"{number}/{len(due)} {known[key].fate}  {mutants[key]}", flush=True)
        return [(mutants[key], known[key]) for key in keys]

    def _try(self, mutant: Mutant) -> str:
        """Run what may notice a mutant, nearest first, until something does."""
        named = self.named_for(mutant.file)
        if named and (noticed := self._run(mutant, named, NAMED_S)):
            return noticed
        fate, left, tests, seconds = "survived" if named else "uncalled", self.seconds, [], 0.0
        function = f"{mutant.file}:{mutant.function or '<module>'}"
        for file in self._files_for(mutant):
            # Before a file is looked at that may not be needed, and before much is run that may not be.
            if tests and (file not in self._seen or seconds > BATCH_S):
                if noticed := self._run(mutant, tests, seconds):
                    return noticed
                tests, seconds = [], 0.0
            chosen, takes = _choose(self._look_at(file), function, left)
            if chosen:
                fate = "survived"
            elif fate == "uncalled" and self._look_at(file).tests_of(function):
                fate = "dear"
            tests, seconds, left = [*tests, *chosen], seconds + takes, left - takes
        return (self._run(mutant, tests, seconds) if tests else None) or fate

    def named_for(self, file: str) -> list[str]:
        """The tests that are named for a module of the package, by the longest beginning of its path."""
        return self.named[max(found, key=len)] if (found := [one for one in self.named if file.startswith(one)]) else []

    def _files_for(self, mutant: Mutant) -> list[Path]:
        """The test files that may notice a mutant, nearest first."""
        near = self.imports.near(self.package / mutant.file, self.reach)
        return [file for files in near for file in files][: self.files]

    def _run(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> str | None:
        """Run tests against a mutant: how it was noticed, or None."""
        path = self.package / mutant.file
        source = path.read_bytes()
        path.write_bytes(mutant.apply(source))
        try:
            code = run_forked(lambda: run_pytest(tests, self.source, ROOT), PATIENCE_S + 5 * seconds)
        finally:
            path.write_bytes(source)
        if code is None:
            return "timeout"
        return None if code in (PASSED, NO_TESTS) else "killed"

    def _look_at(self, path: Path) -> TestFile:
        """What is known of a test file, which is run unless nothing has changed since."""
        if path not in self._seen:
            state = sha256(f"{self._code} {_digest([path])}".encode()).hexdigest()[:16]
            whole = self.home / "tests" / f"{path.stem}-{state}.json"
            # What was ended too early for more seconds is looked at again.
            part = whole.with_stem(f"{whole.stem}-{self.seconds:g}")
            known = whole if whole.exists() else part
            if known.exists():
                self._seen[path] = msgspec.json.decode(known.read_bytes(), type=TestFile)
            else:
                self._seen[path] = self._look_anew(path, whole, part)
        return self._seen[path]

    def _look_anew(self, path: Path, whole: Path, part: Path) -> TestFile:
        for old in part.parent.glob(f"{path.stem}-????????????????*.json"):
            old.unlink()
        print(f"looking at {path.relative_to(ROOT)}", flush=True)
        # Tests behind a fixture that takes longer are too dear anyway.
        run_forked(lambda: look_at(path, self.source, part, ROOT), LOOK_S + 3 * self.seconds)
        if not part.exists():
            part.write_bytes(msgspec.json.encode(TestFile(path.name, True)))
        seen = msgspec.json.decode(part.read_bytes(), type=TestFile)
        if not seen.passed:
            part.unlink()
            print(f"{path.relative_to(ROOT)} does not pass as it is: no mutant is tried against it", flush=True)
            return TestFile(path.name, False)
        if seen.is_whole:
            part.rename(whole)
        return seen


def _choose(file: TestFile, function: str, limit_s: float) -> tuple[list[str], float]:
    """The tests of a file that may notice a change of a function, as many as there is time for, and their seconds."""
    tests, seconds = [], 0.0
    ready: set[str] = set()
    for test in file.tests_of(function):
        takes = file.cost_of(test, ready)
        if seconds + takes <= limit_s:
            tests.append(test)
            seconds += takes
            ready |= set(file.needs[test])
    return tests, seconds


def report(room: str, outcomes: Sequence[tuple[Mutant, Outcome]]) -> str:
    """The share of a room's mutants that a test noticed, and those that none did."""
    from quaere.evaluation.intervals import wilson_interval

    lost = [(mutant, outcome) for mutant, outcome in outcomes if not outcome.is_killed]
    share = wilson_interval(len(outcomes) - len(lost), len(outcomes))
    head = f"{room}: {len(outcomes) - len(lost)} of {len(outcomes)} noticed, "
    head += f"{100 * share.mean:.1f} % [{100 * share.low:.1f}, {100 * share.high:.1f}]"
    return "\n".join([head, *(f"  {outcome.fate}  {mutant}" for mutant, outcome in lost)])


def write_report(room: str, outcomes: Sequence[tuple[Mutant, Outcome]], target: Path) -> None:
    """Write and print a room's report. Made in a fork: the tests of the next room must import the package anew."""

    def write() -> int:
        target.write_text(report(room, outcomes) + "\n")
        return 0

    run_forked(write, 60)
    print(target.read_text(), end="", flush=True)


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
    parser.add_argument("--reach", type=int, default=0, help="how many modules may lie between it and a test (0)")
    parser.add_argument("--files", type=int, default=20, help="of tests a mutant meets at most (20)")
    parser.add_argument("--seconds", type=float, default=30, help="of tests a mutant meets at most (30)")
    parser.add_argument("--home", type=Path, default=ROOT / ".mutants")
    args = parser.parse_args()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with tempfile.TemporaryDirectory() as scratch:
        # Examples that made a mutant fail are nobody's business afterwards.
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{scratch}/hypothesis"
        trial = Trial(args.home, Path(scratch), reach=args.reach, files=args.files, seconds=args.seconds)
        for name in PRELOADED:
            import_module(name)
        gc.freeze()  # or every fork looks through all that was imported, three times over
        for room in args.room or rooms:
            num = args.samples or (None if room in WHOLE else NUM_SAMPLES)
            write_report(room, trial.try_room(room, num, args.seed), args.home / f"{room}.txt")


if __name__ == "__main__":
    main()
