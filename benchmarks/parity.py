"""Do two versions of the sources train the same? Every recipe, a few deterministic steps, weights and store compared.

    git worktree add /tmp/old COMMIT
    python benchmarks/parity.py /tmp/old/src src --model MODEL --index INDEX --questions FILE

Each recipe runs with its demo preset, once with each version, on the same machine with the same seed. Compared are the
tensors of the last checkpoint and every row of the run's database but those that hold times, paths and process ids.
Exits with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

RECIPES = ("drzero", "eve", "search-r1", "autorefine", "evalrar", "evalact", "score", "report-grpo")
TAKES_QUESTIONS = frozenset(RECIPES) - {"drzero", "eve"}
TIMED = ("seconds", "_s", "tokens_per_s", "per_minute", "memory/")  # metrics that no two runs share
# What no two runs share: when, where and by whom; and where an episode lies, since its frame holds times.
SKIPPED = {"runs": None, "episodes": ("shard", "offset", "length", "line")}


def train(source: Path, recipe: str, args: argparse.Namespace, out: Path) -> int:
    """Run a recipe with the sources in `source`; returns its exit code."""
    command = [sys.executable, "-m", "quaere", "evolve", recipe, "--preset", "demo", "--model", args.model]
    command += ["--index", args.index, "--out", str(out), "--set", "engine.mode=deterministic", "--set", "seed=5"]
    command += ["--questions", args.questions] if recipe in TAKES_QUESTIONS else []
    command += [word for setting in args.set for word in ("--set", setting)]
    environment = {**os.environ, "PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 2):
        print(done.stderr[-2000:], file=sys.stderr)
    return done.returncode


def digest_weights(run: Path) -> dict[str, str]:
    """The digests of the last checkpoint's tensors, by file."""
    folders = sorted((run / "checkpoints").glob("step-*")) if (run / "checkpoints").is_dir() else []
    if not folders:
        return {}
    files = sorted(folders[-1].rglob("*.safetensors"))
    return {str(path.relative_to(folders[-1])): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def read_store(run: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of the database that two equal runs share, by table."""
    database = sqlite3.connect(f"file:{run}/run.db?mode=ro", uri=True)
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {}
    for table in sorted(tables):
        skipped = SKIPPED.get(table, ())
        if skipped is None:
            continue
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        kept = [name for name in columns if name not in skipped]
        rows = database.execute(f"SELECT {', '.join(kept)} FROM {table}").fetchall()
        if table == "metrics":
            rows = [row for row in rows if not any(mark in str(row) for mark in TIMED)]
        found[table] = sorted(rows, key=repr)
    return found


def main() -> int:
    """Compare the two, recipe by recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--index", required=True)
    parser.add_argument("--questions", required=True)
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    num_different = 0
    for recipe in args.recipes:
        with tempfile.TemporaryDirectory() as folder:
            runs = [Path(folder) / name for name in ("old", "new")]
            codes = [train(source, recipe, args, run) for source, run in zip((args.old, args.new), runs, strict=True)]
            weights, stores = [digest_weights(run) for run in runs], [read_store(run) for run in runs]
            tables = [name for name in stores[0] if stores[0][name] != stores[1].get(name)]
            same = codes[0] == codes[1] and weights[0] == weights[1] and not tables
            num_rows = sum(map(len, stores[0].values()))
            said = (
                "the same" if same else f"DIFFERENT: exit codes {codes}, weights {weights[0] == weights[1]}, {tables}"
            )
            print(f"{recipe}: {said} ({len(weights[0])} files of weights, {num_rows} rows)", flush=True)
            num_different += not same
    return int(num_different > 0)


if __name__ == "__main__":
    sys.exit(main())
