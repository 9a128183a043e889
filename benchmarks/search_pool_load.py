"""What is lost when one of several search servers is killed under load.

    python benchmarks/search_pool_load.py
    python benchmarks/search_pool_load.py --passages 500 --seconds 1 --clients 8      # a quick look

Three `quaere serve-search` run in processes of their own over the same index of generated passages. Clients share one
`SearchPool` and ask one query a request, each the next as soon as it has its hits, in four parts: one server alone; all
of them; a part in whose middle one is killed; and what is left of them. Every answer is compared with that of the index
itself.

Exit code 1 if a request failed or was answered otherwise. The servers share the cores of one machine here, so that more
of them need not be faster; what counts is the number of requests that were lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from search_server_load import write_corpus

from quaere.errors import SearchFailed, ServerDown
from quaere.search.client import SearchPool
from quaere.search.index import Index
from quaere.search.index_build import build_index

NUM_QUERIES = 500


class Part(NamedTuple):
    """What the clients of a part got."""

    name: str
    num_servers: int
    num_answers: int
    num_failed: int
    num_wrong: int
    answers_per_s: float
    p50_ms: float
    p95_ms: float
    longest_ms: float


class Clients:
    """So many clients of one pool, with queries whose hits are known."""

    def __init__(self, pool: SearchPool, num: int, index: Index, words: list[str]) -> None:
        draw = random.Random(0)
        self._pool = pool
        self._num = num
        self._queries = [" ".join(draw.choices(words, k=5)) for _ in range(NUM_QUERIES)]
        self._expected = index.search(self._queries, 3)

    async def ask(self, name: str, num_servers: int, seconds: float, event: Callable[[], None] | None = None) -> Part:
        """Ask for so long; `event` happens in the middle."""
        latencies_s: list[float] = []
        num_failed = num_wrong = 0
        began = time.perf_counter()

        async def ask_on(number: int) -> None:
            nonlocal num_failed, num_wrong
            draw = random.Random(number)
            while (before := time.perf_counter()) < began + seconds:
                chosen = draw.randrange(NUM_QUERIES)
                try:
                    (hits,) = await self._pool.search([self._queries[chosen]], 3)
                except SearchFailed:
                    num_failed += 1
                    continue
                num_wrong += hits != self._expected[chosen]
                latencies_s.append(time.perf_counter() - before)

        async def interrupt() -> None:
            await asyncio.sleep(seconds / 2)
            if event:
                event()

        await asyncio.gather(interrupt(), *(ask_on(number) for number in range(self._num)))
        rate = len(latencies_s) / (time.perf_counter() - began)
        cuts = [1000 * cut for cut in statistics.quantiles(latencies_s, n=20)]
        counts = (num_servers, len(latencies_s), num_failed, num_wrong)
        return Part(name, *counts, rate, cuts[9], cuts[18], 1000 * max(latencies_s))


async def measure(
    args: argparse.Namespace, index: Index, words: list[str], servers: Sequence[tuple[subprocess.Popen[bytes], str]]
) -> list[Part]:
    urls = [url for _, url in servers]
    async with SearchPool(urls[:1]) as alone:
        parts = [await Clients(alone, args.clients, index, words).ask("one server", 1, args.seconds)]
    async with SearchPool(urls) as pool:
        await pool.check()
        clients = Clients(pool, args.clients, index, words)
        parts.append(await clients.ask("all servers", len(urls), args.seconds))
        parts.append(await clients.ask("one killed", len(urls), args.seconds, servers[1][0].kill))
        parts.append(await clients.ask("those left", len(urls) - 1, args.seconds))
    return parts


@contextmanager
def search_servers(index: Path, num: int, folder: Path) -> Iterator[list[tuple[subprocess.Popen[bytes], str]]]:
    started: list[tuple[subprocess.Popen[bytes], str]] = []
    try:
        for number in range(num):
            log = folder / f"log-{number}"
            command = [sys.executable, "-m", "quaere", "serve-search", "--index", str(index), "--port", "0"]
            with log.open("w") as stderr:
                process = subprocess.Popen(command, stderr=stderr)
            while " at http" not in log.read_text():
                if process.poll() is not None:
                    sys.exit(log.read_text())
                time.sleep(0.05)
            started.append((process, log.read_text().split(" at ")[1].split("/retrieve")[0]))
        yield started
    finally:
        for process, _ in started:
            process.send_signal(signal.SIGINT)
            process.wait()


def as_table(parts: Sequence[Part]) -> str:
    names = "load | servers | answers | failed | wrong | answers/s | p50 ms | p95 ms | longest ms"
    lines = [f"| {names} |", "|" + "---|" * 9]
    for part in parts:
        counts = f"{part.name} | {part.num_servers} | {part.num_answers} | {part.num_failed} | {part.num_wrong}"
        times = f"{part.answers_per_s:.0f} | {part.p50_ms:.1f} | {part.p95_ms:.1f} | {part.longest_ms:.1f}"
        lines.append(f"| {counts} | {times} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=25_000)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each part lasts (default: 10)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ServerDown)
    with tempfile.TemporaryDirectory() as scratch:
        words = write_corpus(Path(scratch, "rows.jsonl"), args.passages)
        index = build_index(Path(scratch, "rows.jsonl"), Path(scratch, "index"))
        with search_servers(index.path, args.servers, Path(scratch)) as servers:
            parts = asyncio.run(measure(args, index, words, servers))
    report: list[dict[str, Any]] = [part._asdict() for part in parts]
    print(json.dumps(report, indent=2) if args.json else as_table(parts))
    if lost := sum(part.num_failed + part.num_wrong for part in parts):
        sys.exit(f"{lost} requests were lost")


if __name__ == "__main__":
    main()
