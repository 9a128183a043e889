"""`benchmarks/mutants.py`: what it changes, which tests it thinks near, and that a test is seen to notice."""

import ast
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = b'''"""Weights of 1 < 2."""

LIMIT: int = 3


class Box:
    """One of 4."""

    size: float = 0.5

    def fits(self, other: "Box", *, tight: bool = False) -> bool:
        """True if 1 == 1."""
        if not tight and any(part > self.size for part in other.parts):
            raise ValueError(f"{LIMIT + 1} is too large")
        total = sum((part * 2 for part in other.parts if part), start=0)
        self.log(total)
        return min(total, -other.size) <= LIMIT
'''


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import mutants

    return mutants


def test_every_mutant_is_one_change_that_can_be_parsed(tools):
    found = tools.find_mutants("box.py", SOURCE)
    assert len({mutant.apply(SOURCE) for mutant in found}) == len(found) == len({m.key(SOURCE) for m in found})
    for mutant in found:
        ast.parse(mutant.apply(SOURCE))
        assert SOURCE[mutant.start : mutant.end].decode() == mutant.old != mutant.new


def test_what_is_changed_and_what_is_left_alone(tools):
    found = tools.find_mutants("box.py", SOURCE)
    places = {(mutant.function, mutant.kind, mutant.old) for mutant in found}
    assert {
        ("", "constant", "3"),
        ("", "constant", "0.5"),
        ("Box.fits", "constant", "False"),
        ("Box.fits", "not", "not tight"),
        ("Box.fits", "comparison", "part > self.size"),
        ("Box.fits", "raise dropped", 'raise ValueError(f"{LIMIT + 1} is too large")'),
        ("Box.fits", "filter dropped", "part"),
        ("Box.fits", "start= dropped", "sum((part * 2 for part in other.parts if part), start=0)"),
        ("Box.fits", "call dropped", "self.log(total)"),
        ("Box.fits", "sign", "-other.size"),
    } < places
    changed = {mutant.line for mutant in found}
    assert changed == {3, 9, 11, 13, 14, 15, 16, 17}, "no docstring, no annotation, no message"
    new = {mutant.new for mutant in found if mutant.line == 17}
    assert {
        "(min(total, -other.size) < LIMIT)",
        "(min(total, -other.size) > LIMIT)",
        "(max(total, -other.size))",
    } <= new


def test_tests_of_its_folder_that_import_a_module_come_before_all_others(tools):
    from near_tests import Imports

    imports = Imports(ROOT / "src", ROOT / "tests")
    names = ("objectives/test_losses", "objectives/test_pcar", "training/test_first_order", "training/test_learner")
    names += ("search/test_search_words", "cli/test_curriculum_command", "cli/test_eval_command")
    files = [ROOT / "tests" / f"{name}.py" for name in names]

    def order(module):
        return [path.name for path in sorted(files, key=lambda path: imports.rank(path, ROOT / "src/quaere" / module))]

    near = order("objectives/policy_gradient.py")
    assert near.index("test_losses.py") < near.index("test_pcar.py"), "which does not import it"
    assert near.index("test_losses.py") < near.index("test_first_order.py"), "which is of another folder"
    assert near.index("test_learner.py") < near.index("test_search_words.py"), "which does not reach it"
    commands = order("cli/curriculum.py")
    assert commands.index("test_curriculum_command.py") < commands.index("test_eval_command.py")


def test_what_never_ends_is_ended(tools):
    def spin():
        while True:
            pass

    assert tools.run_forked(spin, 1) is None
    assert tools.run_forked(lambda: 7, 60) == 7


def test_what_waits_for_ever_is_ended_and_what_only_is_slow_is_not(tools, monkeypatch):
    monkeypatch.setattr("forked_tests.IDLE_AFTER_S", 0.5)
    assert tools.run_forked(threading.Event().wait, 0.01) is None
    monkeypatch.setattr("forked_tests.IDLE_S", -1.0)  # as if it had done something

    def sleep():
        time.sleep(2)
        return 7

    assert tools.run_forked(sleep, 0.1) == 7


def test_the_processor_time_of_a_session_is_that_of_all_its_processes(tools):
    spin = "import os, time\nos.fork()\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", spin], start_new_session=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline(), process.stdout.readline()
        assert sys.modules["forked_tests"].session_seconds(process.pid) >= 0.9
        os.killpg(process.pid, signal.SIGKILL)


def test_a_test_costs_what_its_fixtures_cost_unless_they_are_made_already(tools):
    from forked_tests import TestFile

    seconds = {"a": 1.0, "b": 2.0, "c": 0.5}
    needs = {"a": ["model"], "b": ["model"], "c": []}
    file = TestFile("test_sums.py", True, seconds, {}, [], {"model": 10.0}, needs)
    assert (file.cost_of("a", set()), file.cost_of("b", {"model"}), file.cost_of("c", set())) == (11.0, 2.0, 0.5)


def test_a_mutant_meets_the_quickest_of_its_folder_and_then_the_first_of_each_other_file(tools, tmp_path):
    from forked_tests import TestFile
    from mutations import Mutant
    from suite_map import SuiteMap

    (tmp_path / "src" / "small").mkdir(parents=True)
    known = SuiteMap(tmp_path / "home", tmp_path)
    near = {"one": {"one::a": 1.0, "one::b": 1.5}, "two": {"two::c": 0.25, "two::d": 9.0}}
    far = {"far": {"far::e": 0.5, "far::f": 0.1}, "off": {"off::g": 0.75}}
    for folder, files in (("room", near), ("runs", far)):
        for name, seconds in files.items():
            calls, needs = ({test: [told] for test in seconds} for told in ("room/sums.py:add", "model"))
            path = tmp_path / "tests" / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
            known.files[path] = TestFile(name, True, seconds, calls, [], {"model": 4.0}, needs)
    mutant = Mutant("room/sums.py", 1, "add", "constant", 0, 1, "1", "2")
    met = [(batch.tests, pytest.approx(batch.seconds)) for batch in known.batches_for(mutant, 15)]
    assert met == [(["two::c"], 4.25), (["one::a"], 5.0), (["far::f"], 4.1), (["far::e"], 0.5)]
    assert known.batches_for(mutant, 1) == [] and known.why_none(mutant) == "dear"
    assert known.why_none(Mutant("room/sums.py", 1, "other", "constant", 0, 1, "1", "2")) == "uncalled"


def test_for_code_outside_functions_tests_that_call_something_of_its_file_come_first(tools):
    from forked_tests import TestFile

    seconds = {"quick": 0.1, "near": 1.0}
    calls = {"quick": ["room/other.py:find"], "near": ["room/sums.py:add"]}
    shared = ["room/sums.py:<module>"]
    file = TestFile("test_sums.py", True, seconds, calls, shared, {}, {"quick": [], "near": []})
    assert file.tests_of("room/sums.py:<module>") == ["near", "quick"]
    assert file.tests_of("room/sums.py:add") == ["near"]


SUMS = """
def proven(n):
    return n < 3


def called(n):
    return n < 3


def forgotten(n):
    return n < 3
"""
TESTS = """
import pytest
from small.room.sums import called, proven


def test_proven():
    assert [proven(n) for n in (2, 3, 4)] == [True, False, False]


@pytest.fixture(scope="module")
def shared():
    return called(3)


def test_called(shared):
    pass
"""
PROFILE = """
from hypothesis import settings

settings.register_profile("quick", max_examples=25)
"""
# In a process of its own: pytest runs no pytest.
DRIVER = """
import json, multiprocessing, sys, tempfile
from pathlib import Path
import hypothesis, mutants, pytest, pytest_asyncio

mutants.ROOT = root = Path(sys.argv[1])
seed, num = int(sys.argv[2]), json.loads(sys.argv[3])
fork = multiprocessing.get_context("fork")
with tempfile.TemporaryDirectory() as scratch, fork.Pool(2, mutants.Worker.start, (scratch,)) as pool:
    trial = mutants.Trial(root / "home", pool, seconds=30)
    trial.look()
    tried = trial.try_room("room", num, seed)
fates = [(mutant.function, mutant.new, outcome.fate) for mutant, outcome in tried]
print(json.dumps([fates, mutants.report("room", tried)]))
"""


@pytest.fixture
def package(tmp_path):
    """A package of one room: a function that is tested, one that is called, one that is neither."""
    room, tests = tmp_path / "src" / "small" / "room", tmp_path / "tests" / "room"
    room.mkdir(parents=True)
    tests.mkdir(parents=True)
    for folder in (room, room.parent):
        (folder / "__init__.py").write_text("")
    (room / "sums.py").write_text(SUMS)
    (tests / "test_sums.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tests.parent / "conftest.py").write_text(PROFILE)
    return tmp_path


def run(package, seed=0, num=None):
    """What became of each mutant, by function and change; the report; how many test files were looked at."""
    command = [sys.executable, "-c", DRIVER, str(package), str(seed), json.dumps(num)]
    where = {"PYTHONPATH": f"{ROOT / 'benchmarks'}:{ROOT / 'src'}"}
    done = subprocess.run(command, env={**os.environ, **where}, capture_output=True, text=True, check=True)
    fates, said = json.loads(done.stdout.splitlines()[-1])
    looked = done.stdout.count("looked at")
    return {(function, new): fate for function, new, fate in fates}, said, looked


@pytest.mark.slow
def test_what_becomes_of_mutants_and_that_a_run_goes_on(package):
    some, _, looked = run(package, seed=1, num=4)
    assert looked == 1
    fates, said, looked = run(package)
    assert looked == 0, "nothing has changed"
    by_function = {name: {fate for (function, _), fate in fates.items() if function == name} for name, _ in fates}
    assert by_function == {"proven": {"killed"}, "called": {"survived"}, "forgotten": {"uncalled"}}
    lost = sum(fate in ("survived", "uncalled") for fate in fates.values())
    assert said.startswith(f"room: {len(fates) - lost} of {len(fates)} noticed") and said.count("\n") == lost
    assert "uncalled  room/sums.py:11 comparison: n < 3  ->  (n <= 3)" in said
    kept = package / "home" / "room.jsonl"
    assert len(some) == 4 and some.items() <= fates.items()
    assert len(kept.read_text().splitlines()) == len(fates), "nothing was tried twice"
    tests = package / "tests" / "room" / "test_sums.py"
    more = "\n\ndef test_called_too():\n    assert [called(n) for n in (2, 3, 4)] == [True, False, False]\n"
    tests.write_text(TESTS + more)
    far = package / "tests" / "runs" / "test_whole_runs.py"
    far.parent.mkdir()
    far.write_text(f"import small.room.sums\n{more}".replace("called(n)", "small.room.sums.forgotten(n)"))
    assert set(run(package)[0].values()) == {"killed"}
