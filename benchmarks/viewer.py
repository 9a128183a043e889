"""How long pages of the viewer take: many runs, many episodes, many candidates, one long episode.

    python benchmarks/viewer.py [--runs 1000] [--episodes 100000] [--items 20000] [--tokens 30000]

Times are of the whole request within one process, template included, as ratios to a peer in the same run as well:
reading the same file or rows without a page around them. Where other work shares the cores, the time of the processor
says more than that of the clock. The first request reads what later ones find in memory; templates are compiled before,
as the server does when it starts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from starlette.testclient import TestClient

from quaere.records import Answer, Candidate, DropReason, Episode, Question, Segment, SolveTask
from quaere.runs import Run
from quaere.runs.rows import encode_values
from quaere.viewer.app import make_app
from quaere.viewer.page_formats import compile_templates
from quaere.viewer.run_folder import open_folder

METRICS = [f"reward/part{number}" for number in range(20)] + ["reward/mean", "policy/entropy", "step/seconds"]
SCORED = {"answer/exact_match": 0.5, "passes/mean": 0.5, "questions/distinct": 64.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--tokens", type=int, default=30_000)
    args = parser.parse_args()
    os.fsync = lambda handle: None  # type: ignore[assignment]  # writing the runs is not what is measured
    with tempfile.TemporaryDirectory() as home:
        compile_templates()
        print("| page | first | of the processor | again | peer | peer's time | ratio | ratio of the processor |")
        print("|---|---|---|---|---|---|---|---|")
        list_runs(Path(home) / "many", args.runs)
        open_run(Path(home) / "large", args.episodes)
        filter_items(Path(home) / "written", args.items)
        open_episode(Path(home) / "long", args.tokens)


def list_runs(folder: Path, count: int) -> None:
    first = write_run(folder / "run-0")
    for number in range(1, count):
        shutil.copytree(first, folder / f"run-{number}")

    def read_all() -> None:
        for path in folder.iterdir():
            with closing(sqlite3.connect(path / "run.db")) as database:
                database.execute("SELECT * FROM runs").fetchall()

    show(f"{count:,} runs", folder, "/", "opening every run.db", read_all)


def open_run(folder: Path, num_episodes: int) -> None:
    path = write_run(folder / "large", num_steps=1000)
    add_rows(path, num_episodes)

    def count() -> None:
        with closing(sqlite3.connect(path / "run.db")) as database:
            database.execute("SELECT COUNT(*), SUM(answered) FROM episodes").fetchall()
            database.execute("SELECT * FROM metrics").fetchall()

    show(f"a run of {num_episodes:,} episodes", folder, "/run/large", "its metrics and counts by SQL", count)
    show("its map of learning", folder, "/run/large/map", "the same", count)


def filter_items(folder: Path, count: int) -> None:
    path = write_run(folder / "written")
    asked = {"document_id": "d", "hops": 2, "question": "Who built the bridge at Halmgate?", "answer": "Orsolya Venn"}
    reasons: tuple[DropReason, ...] = ("", "never solved", "duplicate")
    with Run.open(path, write=True) as run:
        run.add_candidates(
            [
                Candidate(f"c{n}", 1, 0, f"c{n}", **asked, num_right=n % 6, num_attempts=5, reason=reasons[n % 3])
                for n in range(count)
            ]
        )

    def search() -> None:
        with closing(sqlite3.connect(path / "run.db")) as database:
            database.execute("SELECT * FROM candidates WHERE question LIKE '%bridge%' AND reason = ''").fetchall()

    address = "/run/written/curriculum?text=bridge&state=kept"
    show(f"{count:,} items by a word and a facet", folder, address, "the same by SQL", search)


def open_episode(folder: Path, num_tokens: int) -> None:
    path = write_run(folder / "long")
    part = num_tokens // 30
    segments = tuple(
        Segment("model" if n % 2 else "prompt", (7,) * part, (-0.25,) * part * (n % 2), (bool(n % 2),) * part)
        for n in range(30)
    )
    task = SolveTask(Question("q", "Who built the bridge?"))
    with Run.open(path, write=True) as run:
        run.add_episode(Episode("e", task, "p", "m", 0, segments, (), Answer("Venn"), "answered"), step=20)

    def read() -> None:
        with Run.open(path) as run:
            run.episode("e")

    show(f"an episode of {num_tokens:,} tokens", folder, "/run/long/episode?id=e", "reading it", read)


def show(what: str, folder: Path, address: str, peer: str, run_peer: Callable[[], None]) -> None:
    client = TestClient(make_app(open_folder(str(folder))), base_url="http://127.0.0.1")

    def ask() -> None:
        reply = client.get(address)
        assert reply.status_code == 200, reply.text

    client.get("/static/viewer.css")
    (first, first_cpu), (again, _) = timed(ask), min(timed(ask) for _ in range(3))
    (other, _), other_cpu = min(timed(run_peer) for _ in range(3)), min(timed(run_peer)[1] for _ in range(3))
    times = f"{first:.2f} s | {first_cpu:.2f} s | {again:.2f} s | {peer} | {other:.2f} s"
    print(f"| {what} | {times} | {first / other:.1f} | {first_cpu / other_cpu:.1f} |", flush=True)


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    began, began_cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - began_cpu


def write_run(path: Path, num_steps: int = 20) -> Path:
    with Run.create(path, "evolve", {"recipe": "drzero", "model": "tiny"}, config="model: tiny\n") as run:
        for step in range(1, num_steps + 1):
            run.log_metrics(step, {name: float(step % 7) for name in METRICS} | SCORED | {"run/phase": step // 100 % 3})
    return path


def add_rows(path: Path, count: int) -> None:
    """Rows of the index alone: the pages that are measured read no episode."""
    parts = {"reward/total": 0.5, "advantage": 0.1}
    metrics = [encode_values(parts | {"answer/exact_match": right}) for right in (0.0, 1.0)]
    rows = (
        (
            f"i0-s{n // 100}-q{n // 8}-a{n % 8}",
            f"q{n // 8}",
            f"Who built the bridge number {n // 8}?",
            metrics[n % 3 % 2],
            n // 100,
        )
        for n in range(count)
    )
    with closing(sqlite3.connect(path / "run.db")) as database, database:
        database.executemany(
            "INSERT INTO episodes (id, shard, offset, length, line, task_id, question, answer, protocol, model, end,"
            " answered, num_turns, num_searches, num_tokens, metrics, step, phase) VALUES (?, 0, 0, 0, 0, ?, ?,"
            " 'Orsolya Venn', 'drzero-solver', 'tiny', 'answered', 1, 2, 1, 400, ?, ?, 'solver')",
            rows,
        )


if __name__ == "__main__":
    main()
