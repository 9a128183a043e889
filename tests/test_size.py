"""`benchmarks/size.py`: what counts as code, and which files a trace sees."""

import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = '''"""A module.

With a docstring of three lines, which is no code."""

import os  # a comment beside code


# a comment alone
def path(name: str) -> str:
    """No code."""
    text = """two
lines"""
    return os.path.join(
        name,
        text,
    )
'''


@pytest.fixture
def size(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import size

    return size


def test_code_is_what_is_left_without_comments_docstrings_and_blanks(size):
    assert size.count_code_lines(SOURCE) == 1 + 1 + 2 + 4
    assert size.count_statements(SOURCE) == (4, 4 + 2)  # two docstrings
    # Wrapping changes the lines and not the statements.
    wrapped = SOURCE.replace("(\n        name,\n        text,\n    )", "(name, text)")
    assert (size.count_code_lines(wrapped), size.count_statements(wrapped)) == (5, (4, 6))
    assert size.count_code_lines("") == 0 and size.count_statements("") == (0, 0)


def test_figures_of_a_package(size, tmp_path):
    (tmp_path / "package/cli").mkdir(parents=True)
    (tmp_path / "package/a.py").write_text(SOURCE)
    (tmp_path / "package/cli/b.py").write_text("x = 1\n")
    (tmp_path / "page.md").write_text("# Three words\n")
    found = size.measure(tmp_path / "package", [tmp_path / "page.md"])
    assert list(found.values()) == [2, 9, 5, 7, 1, 3]


def test_a_trace_sees_functions_of_all_threads_from_its_start_to_its_end(size, tmp_path, monkeypatch):
    bodies = {
        "early": "def early(): pass",
        "start": "def begin(): import traced.lazy",
        "lazy": "class Record:\n    names = [name for name in 'ab']",
        "worker": "def work(): return [1]",
        "late": "def late(): pass",
    }
    package = tmp_path / "traced"
    package.mkdir()
    for name, body in bodies.items():
        (package / f"{name}.py").write_text(body + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from traced import early, late, start, worker

    before = sys.gettrace()
    try:
        with size.Trace(package, "begin") as trace:
            early.early()
            start.begin()
            thread = threading.Thread(target=worker.work)
            thread.start()
            thread.join()
            trace.stop()
            late.late()
    finally:
        sys.settrace(before)
    assert trace.files == {"start.py", "worker.py"}
    assert list(size.group_by_package({"a.py", "b/c/d.py", "b/e.py"})) == [". (1): a.py", "b (2): c/d.py e.py"]


def test_every_script_is_in_the_list_of_benchmarks():
    scripts = {path.name for path in (ROOT / "benchmarks").iterdir() if path.suffix in (".py", ".sh", ".yaml")}
    lines = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8").splitlines()
    listed = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert sorted(listed) == sorted(scripts)
