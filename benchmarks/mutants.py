"""Would a test notice? Puts small faults into the code, one at a time, and runs the tests that call what was changed.

    python benchmarks/mutants.py --room rewards         # every room: leave it out
    python benchmarks/mutants.py --room rollout --samples 40 --seed 3

The rooms `objectives` and `rewards` are tried whole, of every other a seeded sample (150). Printed are the share of
faults that a test noticed, with its Wilson interval, and each that none did. All is kept in `.mutants/`: a run that was
stopped goes on, and what survived is tried again once the tests it meets have changed.

Which tests: first every test file is run once, to see that it passes and which functions each of its tests calls (about
half an hour; later only those that have changed, or whose modules have). A mutant then meets the tests that call its
function, up to `--seconds` of them: the quickest of its room's folder and of files that import its module, then the
first of each other file, the second of each, and so on. Where a fixture that tests share calls it, and for code outside
functions, all tests of the file are meant. What only another process calls is not seen.

What becomes of a mutant: "killed" by a test, or by the clock ("timeout"); "survived" its tests; "uncalled" by any;
"dear" if each of its tests would take longer than `--seconds`.

Every run is a fork of one process that has already imported the large libraries; the mutated source lies in a temporary
copy, so the working tree is never touched. Slow tests are left out and properties are tried with the examples of `make
test`.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib import import_module
from multiprocessing.pool import Pool
from pathlib import Path

import msgspec
from forked_tests import look_at, run_forked, run_pytest
from msgspec import Struct
from mutations import Mutant, find_mutants
from suite_map import Batch, SuiteMap, digest

ROOT = Path(__file__).parents[1]
WHOLE = ("objectives", "rewards")
NUM_SAMPLES = 150
PRELOADED = (
    "numpy",
    "torch",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
    "peft",
    "bm25s",
    "sklearn.cluster",
    "sklearn.feature_extraction.text",
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
LOOK_S = 400.0  # processor seconds after which a test file is known by its first tests alone
PATIENCE_S = 20.0  # a mutant may take this much, and five times as long as its tests do
# As in tests/conftest.py: some are read when a library is imported.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRITON_INTERPRET": "1",  # or the kernels' tests need a GPU
}


class Outcome(Struct, frozen=True):
    """What became of a mutant: killed by a test, by the clock, or by none.

    Outcome(key="93b1...", fate="killed", tests="5d0c...")
    """

    key: str
    fate: str  # killed, timeout, survived, uncalled, dear
    tests: str  # which tests it met, and their files as they were

    @property
    def is_killed(self) -> bool:
        return self.fate in ("killed", "timeout")

    def is_open(self, tests: str) -> bool:
        """True if it is worth trying again: it survived, and the tests are no longer those it met."""
        return not self.is_killed and self.tests != tests


class Task(Struct, frozen=True):
    """A mutant, and the tests it meets in the order in which it does."""

    key: str
    mutant: Mutant
    batches: list[Batch]
    tests: str


# ------------------------------------------------------------------------------------------------------------ a worker


class Worker:
    """One of several processes that run tests, with a copy of the sources of its own to put mutants into."""

    current: Worker

    def __init__(self, scratch: str) -> None:
        self.source = Path(tempfile.mkdtemp(dir=scratch)) / "src"
        shutil.copytree(ROOT / "src", self.source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        self.package = next(self.source.iterdir())
        _compile(self.source)

    @classmethod
    def start(cls, scratch: str) -> None:
        cls.current = cls(scratch)

    @classmethod
    def look(cls, task: tuple[Path, Path]) -> Path:
        """Run a test file as it is, and write down what its tests call."""
        path, target = task
        run_forked(lambda: look_at(path, cls.current.source, target, ROOT), LOOK_S)
        return path

    @classmethod
    def try_mutant(cls, task: Task) -> tuple[Task, str]:
        """Run what may notice a mutant until something does."""
        for batch in task.batches:
            if noticed := cls.current._run(task.mutant, batch):
                return task, noticed
        return task, "survived"

    def _run(self, mutant: Mutant, batch: Batch) -> str | None:
        """Run tests against a mutant: how it was noticed, or None."""
        path = self.package / mutant.file
        source = path.read_bytes()
        path.write_bytes(mutant.apply(source))
        try:
            code = run_forked(lambda: run_pytest(batch.tests, self.source, ROOT), PATIENCE_S + 5 * batch.seconds)
        finally:
            path.write_bytes(source)
        if code is None:
            return "timeout"
        return None if code in (PASSED, NO_TESTS) else "killed"


def _compile(source: Path) -> None:
    """Bytecode that holds for as long as its source is the same, to the byte: times are no witness of a mutant."""
    import compileall
    import py_compile

    compileall.compile_dir(source, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


# ------------------------------------------------------------------------------------------------------------ the rooms


class Trial:
    """Trying the mutants of rooms with the tests that the map of the suite names for them."""

    def __init__(self, home: Path, pool: Pool, *, seconds: float) -> None:
        self.home, self.pool, self.seconds = home, pool, seconds
        self.map = SuiteMap(home / "tests", ROOT)
        self.package = self.map.package

    def look(self) -> None:
        """Run every test file of which too little is known."""
        due = self.map.list_due()
        for number, path in enumerate(self.pool.imap_unordered(Worker.look, due), 1):
            self.map.add(path)
            print(f"looked at {path.relative_to(ROOT)} ({number} of {len(due)})", flush=True)

    def try_room(self, room: str, num: int | None, seed: int) -> list[tuple[Mutant, Outcome]]:
        """Try a room's mutants, all or a sample: what became of each."""
        sources = {path: path.read_bytes() for path in sorted((self.package / room).rglob("*.py"))}
        names = {path: str(path.relative_to(self.package)) for path in sources}
        mutants = {m.key(text): m for path, text in sources.items() for m in find_mutants(names[path], text)}
        # A larger sample holds all of a smaller one, and a change of one file leaves the mutants of the others in it.
        keys = sorted(mutants, key=lambda key: sha256(f"{seed} {key}".encode()).digest())[:num]
        keys.sort(key=lambda key: (mutants[key].file, mutants[key].start))
        known = {one.key: one for one in _read_outcomes(self._kept(room))}
        tasks = [self._plan(key, mutants[key]) for key in keys]
        due = [task for task in tasks if task.key not in known or known[task.key].is_open(task.tests)]
        for outcome in self._try(room, due):
            known[outcome.key] = outcome
        return [(mutants[key], known[key]) for key in keys]

    def _try(self, room: str, due: Sequence[Task]) -> Iterable[Outcome]:
        with self._kept(room).open("a") as file:
            for number, (task, fate) in enumerate(self.pool.imap_unordered(Worker.try_mutant, due), 1):
                if not task.batches:
                    fate = self.map.why_none(task.mutant)
                outcome = Outcome(task.key, fate, task.tests)
                file.write(msgspec.json.encode(outcome).decode() + "\n")
                file.flush()
                if not outcome.is_killed:
                    print(f"{number}/{len(due)} {fate}  {task.mutant}", flush=True)
                yield outcome

    def _plan(self, key: str, mutant: Mutant) -> Task:
        batches = self.map.batches_for(mutant, self.seconds)
        tests = [test for batch in batches for test in batch.tests]
        files = sorted({test.partition("::")[0] for test in tests})
        return Task(key, mutant, batches, digest([ROOT / file for file in files], *tests))

    def _kept(self, room: str) -> Path:
        return self.home / f"{room}.jsonl"


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rooms = sorted(path.parent.name for path in (ROOT / "src" / "quaere").glob("*/__init__.py"))
    parser.add_argument("--room", choices=rooms, action="append", help="one of the package's rooms; may be repeated")
    parser.add_argument("--samples", type=int, help=f"so many of each room, not all or {NUM_SAMPLES}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10, help="of tests a mutant meets at most (10)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at once (one for each core)")
    parser.add_argument("--home", type=Path, default=ROOT / ".mutants")
    args = parser.parse_args()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with tempfile.TemporaryDirectory() as scratch:
        # Examples that made a mutant fail are nobody's business afterwards.
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{scratch}/hypothesis"
        for name in PRELOADED:
            import_module(name)
        gc.freeze()  # or every fork looks through all that was imported, three times over
        with multiprocessing.get_context("fork").Pool(args.jobs, Worker.start, (scratch,)) as pool:
            trial = Trial(args.home, pool, seconds=args.seconds)
            trial.look()
            for room in args.room or rooms:
                num = args.samples or (None if room in WHOLE else NUM_SAMPLES)
                said = report(room, trial.try_room(room, num, args.seed))
                (args.home / f"{room}.txt").write_text(f"{said}\n")
                print(said, flush=True)


if __name__ == "__main__":
    main()
