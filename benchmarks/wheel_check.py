"""What `pip install quaere` gives without extras: build the wheel, install it in a fresh environment, index and search.

    python benchmarks/wheel_check.py            # or: make wheel-check

It prints how large the installation is and how long each step took, and fails if a library came along that only models
need, if a document is not found, or if the hint for a missing extra does not install it. Needs nothing but pip.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER, QUERY, EXPECTED = "docs", "Reciprocal rank fusion of BM25 and dense search", "search.md"
_MEGABYTE = 1e6


def run(*command: str | Path, fails: bool = False) -> str:
    """What a command prints; its own words if it does not end as expected."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if (done.returncode != 0) != fails:
        raise SystemExit(f"{shlex.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stderr if fails else done.stdout


def timed(what: str, *command: str | Path) -> str:
    began = time.monotonic()
    said = run(*command)
    print(f"{what:<28} {time.monotonic() - began:6.1f} s")
    return said


def build_wheel(folder: Path) -> Path:
    """The wheel of a copy of the sources: setuptools leaves a build folder, and takes into a wheel what lies there."""
    source = folder / "source"
    source.mkdir()
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    timed("build the wheel", sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def size(paths: list[Path]) -> int:
    """The bytes of all files below these paths."""
    return sum(file.stat().st_size for path in paths for file in (path, *path.rglob("*")) if file.is_file())


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build_wheel(folder)
        timed("make an environment", sys.executable, "-m", "venv", folder / "venv")
        programs = folder / "venv" / "bin"
        (packages,) = (folder / "venv").glob("lib/*/site-packages")
        before = set(packages.iterdir())
        timed("install it", programs / "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel)
        installed = [path for path in packages.iterdir() if path not in before]
        index = folder / "index"
        timed("index a folder", programs / "quaere", "index", ROOT / FOLDER, "--out", index)
        found = timed("search it", programs / "quaere", "search", QUERY, "--index", index)
        run(programs / "quaere", "doctor")
        print(f"wheel {size([wheel]) / _MEGABYTE:.1f} MB, installed {size(installed) / _MEGABYTE:.0f} MB")
        check(programs, packages, index, found)


def check(programs: Path, packages: Path, index: Path, found: str) -> None:
    """Fail unless the installation is light, finds what it should, and its hints can be typed."""
    heavy = [name for name in ("torch", "transformers", "safetensors", "peft") if (packages / name).exists()]
    if heavy:
        raise SystemExit(f"installed without extras, and yet here: {', '.join(heavy)}")
    if EXPECTED not in found:
        raise SystemExit(f"{EXPECTED} was not found:\n{found}")
    refused = run(programs / "quaere", "ask", QUERY, "--index", index, fails=True)
    if "pip install 'quaere[torch]'" not in refused:
        raise SystemExit(f"no hint to install the extra:\n{refused}")
    hint = run(programs / "python", "-c", "from quaere.errors import install_hint; print(install_hint('pdf'))")
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    run("env", f"PATH={path}", *shlex.split(hint))
    run(programs / "python", "-c", "import pypdf")
    print(f"the hint works as it stands: {hint.strip()}")


if __name__ == "__main__":
    main()
