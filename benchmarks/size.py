"""How large is the package, and how many files does one question pass through?

    python benchmarks/size.py                # figures of src, and of the pages in docs
    python benchmarks/size.py --trace        # and the files that one question enters; some seconds on a CPU

Counted are the Python files of `src/quaere`; their code lines (lines that hold a token other than a comment or a
docstring, so a string of three lines in an expression is three code lines); their statements (nodes of `ast.stmt`),
which do not depend on how code is wrapped, without docstrings and with them; the code lines of `cli`; and the words of
`docs/*.md`.

`--trace` trains one step of `evolve drzero` in the village of the tests (`tests/village.py`): documents are drawn, the
proposer asks one question about each, the solver attempts it, and the proposer is updated; eight documents, since an
advantage compares questions. Printed are the files of `quaere` of which a function or coroutine is entered or resumed,
in any thread, from the call of `draw_tasks` until the step is reported. Not counted: imports, bodies of classes, and
files of records alone, whose constructors are C code.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import os
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "quaere"
BLANK = frozenset(
    (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


# ----------------------------------------------------------------------------------------------------------- counts


def find_docstrings(tree: ast.Module) -> list[ast.Expr]:
    """The statements that are docstrings."""
    bodies = (node.body for node in ast.walk(tree) if isinstance(node, DOCUMENTED))
    firsts = (body[0] for body in bodies if body)
    return [
        one
        for one in firsts
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str)
    ]


def count_code_lines(source: str) -> int:
    """Lines of code: `count_code_lines('x = 1  # one\\n\\n# two\\n') == 1`."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for one in tokens if one.type not in BLANK for line in range(one.start[0], one.end[0] + 1)}
    for one in find_docstrings(ast.parse(source)):
        lines -= set(range(one.lineno, (one.end_lineno or one.lineno) + 1))
    return len(lines)


def count_statements(source: str) -> tuple[int, int]:
    """Statements without and with docstrings: `count_statements('def f():\\n    "A docstring."\\n') == (1, 2)`."""
    tree = ast.parse(source)
    num_nodes = sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
    return num_nodes - len(find_docstrings(tree)), num_nodes


def measure(package: Path, pages: Iterable[Path]) -> dict[str, int]:
    """The figures by name, in the order they are printed."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    lines = {path: count_code_lines(source) for path, source in sources.items()}
    statements = [count_statements(source) for source in sources.values()]
    return {
        "files": len(sources),
        "code lines": sum(lines.values()),
        "statements": sum(num for num, _ in statements),
        "statements, docstrings among them": sum(num for _, num in statements),
        "code lines of cli": sum(num for path, num in lines.items() if path.is_relative_to(package / "cli")),
        "words of docs/*.md": sum(len(page.read_text(encoding="utf-8").split()) for page in pages),
    }


# ------------------------------------------------------------------------------------------------------------ trace


class Done(Exception):
    """The step that is traced has been reported."""


class Trace:
    """The files of a package that are entered between the call of a function and `stop`, in all threads.

    with Trace(PACKAGE, "draw_tasks") as trace:
        ...
    trace.files == {"training/rollouts.py", ...}
    """

    def __init__(self, package: Path, start: str) -> None:
        self._root, self._start = f"{package.resolve()}/", start
        self._is_on = self._is_over = False
        self.files: set[str] = set()

    def __enter__(self) -> Trace:
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def stop(self) -> None:
        """Ignore what is entered from now on."""
        self._is_over = True

    def _enter(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        self._is_on |= code.co_name == self._start and code.co_filename.startswith(self._root)
        # Bodies of modules and classes are not optimized; comprehensions are, and run while a module is imported.
        is_function = code.co_flags & inspect.CO_OPTIMIZED and (code.co_name == "<lambda>" or code.co_name[0] != "<")
        if self._is_on and not self._is_over and is_function and code.co_filename.startswith(self._root):
            self.files.add(code.co_filename.removeprefix(self._root))


def trace_question(folder: Path) -> set[str]:
    """The files that one question enters, from its document to the end of the step that learns from it."""
    # In a process of its own: what teaching the model leaves in caches would not be entered again here.
    where = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    subprocess.run([sys.executable, ROOT / "tests/village_runs.py", folder], check=True, env=where)
    sys.path[:0] = [str(PACKAGE.parent), str(ROOT / "tests")]
    from quaere.recipes.drzero import DrZeroConfig
    from quaere.training.config import config_from_yaml
    from village_runs import Told, run_drzero

    trace = Trace(PACKAGE, "draw_tasks")

    class FirstStep(Told):
        """Ends the trace and the run with the first step."""

        def step(self, report: Any) -> None:
            trace.stop()
            raise Done

    config = config_from_yaml(DrZeroConfig, (folder / "village.yaml").read_text(encoding="utf-8"))
    with trace, suppress(Done):
        run_drzero(folder / "run", config, FirstStep())
    return trace.files


def group_by_package(files: Iterable[str]) -> Iterator[str]:
    """One line per package: `rewards (2): answers.py difficulty.py`."""
    packages: dict[str, list[str]] = {}
    for file in sorted(files):
        package, _, name = file.partition("/")
        packages.setdefault(package if name else ".", []).append(name or package)
    for package, names in packages.items():
        yield f"{package} ({len(names)}): {' '.join(names)}"


def main() -> None:
    """Print the figures, and the files of one question if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", action="store_true", help="train a step and list the files that a question enters")
    args = parser.parse_args()
    for name, value in measure(PACKAGE, sorted((ROOT / "docs").glob("*.md"))).items():
        print(f"{value:>8,}  {name}")
    if args.trace:
        with tempfile.TemporaryDirectory() as folder:
            files = trace_question(Path(folder))
        print(f"\n{len(files):>8,}  files that one question enters, from its document to the end of its first step\n")
        print("\n".join(group_by_package(files)))


if __name__ == "__main__":
    main()
