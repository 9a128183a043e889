"""What load a search server holds, what it does beyond that, and what half-open clients do to it.

    python benchmarks/search_server_load.py
    python benchmarks/search_server_load.py --passages 500 --seconds 1 --half-open 50      # a quick look

`quaere serve-search` runs in a process of its own over generated passages. Clients ask one query a request, each the
next as soon as it has an answer:

- held: the number of clients is doubled up to `--clients` as long as every answer is a 200; the last such number is
  the load it holds, and its rate is reported;
- overload: five times as many clients; every answer must be a 200 or a 429, and there must be a 429;
- recovered: the load it holds once more, with no error;
- half-open: the same beside clients that connect, send half of a request's head, and come back when they are dropped.

Exit code 1 if one of these does not hold. Rates depend on the machine; compare the rows of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from quaere.search.index_build import build_index

HALF = b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: appl"
PAUSE_S = 0.1  # of a client that was told 429


class Load(NamedTuple):
    """What so many clients got."""

    clients: int
    answers_per_s: float
    p50_ms: float
    p95_ms: float
    statuses: dict[int, int]  # 0: no answer at all

    @property
    def holds(self) -> bool:
        return set(self.statuses) == {200}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=25_000)
    parser.add_argument("--clients", type=int, default=160, help="most clients that are tried (default: 160)")
    parser.add_argument("--half-open", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each load lasts (default: 10)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        words = write_corpus(Path(scratch) / "rows.jsonl", args.passages)
        index = build_index(Path(scratch) / "rows.jsonl", Path(scratch) / "index")
        with search_server(index.path, Path(scratch) / "log") as (host, port):
            report = asyncio.run(measure(args, host, port, words))
        report |= {"passages": len(index), "tracebacks": (Path(scratch) / "log").read_text().count("Traceback")}
    print(json.dumps(report, indent=2) if args.json else as_table(report))
    if failures := faults(report):
        sys.exit("; ".join(failures))


async def measure(args: argparse.Namespace, host: str, port: int, words: list[str]) -> dict[str, Any]:
    held, tried = None, []
    num_clients = min(10, args.clients)
    while num_clients <= args.clients:
        tried.append(await put_on(host, port, words, num_clients, args.seconds))
        if not tried[-1].holds:
            break
        held = tried[-1]
        num_clients *= 2
    if held is None:
        return {"tried": tried, "held": None}
    overload = await put_on(host, port, words, 5 * held.clients, args.seconds)
    recovered = await put_on(host, port, words, held.clients, args.seconds)
    async with half_open(host, port, args.half_open) as num_opened:
        beside = await put_on(host, port, words, held.clients, args.seconds)
        opened = num_opened()
    return {
        "tried": tried,
        "held": held,
        "overload": overload,
        "recovered": recovered,
        "half_open": beside,
        "num_half_open": opened,
    }


def faults(report: dict[str, Any]) -> list[str]:
    """What did not hold."""
    if report["held"] is None:
        return ["no load was held"]
    rules = {
        "five times the load gave no 429": 429 in report["overload"].statuses,
        "five times the load gave something else than 200 and 429": set(report["overload"].statuses) <= {200, 429},
        "it did not recover": report["recovered"].holds,
        "half-open clients changed the answers": report["half_open"].holds,
        "there are tracebacks in the log": report["tracebacks"] == 0,
    }
    return [fault for fault, holds in rules.items() if not holds]


# -------------------------------------------------------------------------------------------------------------- clients


async def put_on(host: str, port: int, words: list[str], num_clients: int, seconds: float) -> Load:
    """So many clients for so long, each with a connection of its own."""
    statuses: Counter[int] = Counter()
    latencies_s: list[float] = []
    until = time.perf_counter() + seconds

    async def ask_on(number: int) -> None:
        draw = random.Random(number)
        reader = writer = None
        while (before := time.perf_counter()) < until:
            try:
                if writer is None or writer.is_closing():
                    reader, writer = await asyncio.open_connection(host, port)
                assert reader is not None
                status = await ask(reader, writer, " ".join(draw.choices(words, k=5)))
            except (OSError, EOFError):
                status, writer = 0, None
            statuses[status] += 1
            if status == 200:
                latencies_s.append(time.perf_counter() - before)
            else:
                await asyncio.sleep(PAUSE_S)
        if writer is not None:
            writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(ask_on(number) for number in range(num_clients)))
    cuts = statistics.quantiles(latencies_s, n=20) if len(latencies_s) > 1 else [0.0] * 19
    rate = len(latencies_s) / (time.perf_counter() - began)
    return Load(num_clients, rate, 1000 * cuts[9], 1000 * cuts[18], dict(statuses))


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, query: str) -> int:
    """One request; the status of its answer, which is read to its end."""
    body = json.dumps({"queries": [query], "topk": 3, "return_scores": True}).encode()
    head = (
        f"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    writer.write(f"{head}\r\n\r\n".encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.split(b":")[1]))
    return int(answer.split()[1])


@asynccontextmanager
async def half_open(host: str, port: int, num: int) -> AsyncIterator[Any]:
    """So many clients that never finish a request, and come back when they are dropped."""
    num_opened, all_there = 0, asyncio.Event()

    async def hang_on() -> None:
        nonlocal num_opened
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(host, port)
                num_opened += 1
                if num_opened >= num:
                    all_there.set()
                writer.write(HALF)
                await reader.read()
                writer.close()
            await asyncio.sleep(PAUSE_S)

    tasks = [asyncio.create_task(hang_on()) for _ in range(num)]
    await all_there.wait()
    try:
        yield lambda: num_opened
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# ------------------------------------------------------------------------------------------------ documents and server


def write_corpus(out: Path, num_passages: int) -> list[str]:
    """Passages of 60 made-up words, some words far more frequent than others; gives words to search for."""
    draw = random.Random(0)
    words = sorted({"".join(draw.choices("bdfgklmnprstvaeiou", k=draw.randint(3, 9))) for _ in range(20_000)})
    draw.shuffle(words)
    weights = [1 / (rank + 10) for rank in range(len(words))]
    with out.open("w", encoding="utf-8") as lines:
        for number in range(num_passages):
            text = " ".join(draw.choices(words, weights, k=60))
            lines.write(json.dumps({"id": str(number), "title": f"Page {number}", "text": text}) + "\n")
    return words[:5000]


@contextmanager
def search_server(index: Path, log: Path) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "quaere", "serve-search", "--index", str(index), "--port", "0"]
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stderr=stderr)
    try:
        while " at http" not in log.read_text():
            if process.poll() is not None:
                sys.exit(log.read_text())
            time.sleep(0.05)
        host, port = log.read_text().split(" at http://")[1].split("/retrieve")[0].split(":")
        yield host, int(port)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def as_table(report: dict[str, Any]) -> str:
    lines = ["| load | clients | answers/s | p50 ms | p95 ms | statuses |", "|---|---|---|---|---|---|"]
    rows = [("tried", load) for load in report["tried"]]
    rows += [(name, report[name]) for name in ("held", "overload", "recovered", "half_open") if report.get(name)]
    for name, load in rows:
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(load.statuses.items()))
        cells = f"{load.clients} | {load.answers_per_s:.0f} | {load.p50_ms:.1f} | {load.p95_ms:.1f} | {statuses}"
        lines.append(f"| {name.replace('_', '-')} | {cells} |")
    lines += ["", f"{report['passages']:,} passages; half-open connections made: {report.get('num_half_open', 0)}; "]
    lines[-1] += f"tracebacks in the log: {report['tracebacks']}"
    return "\n".join(lines)


if __name__ == "__main__":
    main()
