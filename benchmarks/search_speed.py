"""How fast an index is searched.

    python benchmarks/search_speed.py --corpus DATA/dev/corpus.jsonl.gz --questions DATA/dev/questions.jsonl.gz

Measured on that corpus, and at `--passages` passages, made by crossing the corpus's own sentences: bm25s used directly
in this process (the peer), the index in this process, and the server in a process of its own with 1 and 16 clients, one
query a request. Questions are JSON Lines with "question".
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from quaere.search.bm25 import passage_terms, query_terms
from quaere.search.embedders import NO_RERANKER, DenseSettings
from quaere.search.index import Index, IndexSettings
from quaere.search.index_build import build_index
from quaere.search.json_lines import read_lines

TOPK = 3
SERVER = """
import sys
from pathlib import Path
from quaere.search.index import open_index
from quaere.serving.server import ServerSettings
from quaere.serving.server import make_search_server
server = make_search_server(open_index(Path(sys.argv[1])), ServerSettings(port=0))
print(server.url, flush=True)
server.run()
"""


class Speed(NamedTuple):
    """Queries answered per second, and how long one took in the middle and at the slow end."""

    queries_per_s: float
    p50_ms: float
    p95_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--engine", choices=("bm25", "dense", "hybrid"), default="bm25")
    parser.add_argument("--rerank", default=NO_RERANKER)
    parser.add_argument("--embedder", default=DenseSettings().embedder)
    parser.add_argument("--ann", choices=("flat", "ivf", "hnsw"), default="flat")
    parser.add_argument("--passages", type=int, default=100_000, help="size of the large corpus; 0 leaves it out")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each speed is measured")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    dense = DenseSettings(embedder=args.embedder, ann=args.ann).with_known_prefixes()
    settings = IndexSettings(engine=args.engine, dense=dense, rerank=args.rerank)
    queries = [json.loads(line)["question"] for _, line in read_lines(args.questions)]
    random.Random(0).shuffle(queries)
    with tempfile.TemporaryDirectory() as scratch:
        report = measure(args, settings, queries, Path(scratch))
    print(json.dumps(report, indent=2) if args.json else as_tables(report))


def measure(args: argparse.Namespace, settings: IndexSettings, queries: list[str], scratch: Path) -> dict[str, Any]:
    index, build_s = build(args.corpus, scratch / "index", settings)
    report: dict[str, Any] = {
        "corpus": {"passages": len(index), "build_s": build_s, "speed": speeds(index, queries, args.seconds)},
    }
    if args.passages:
        large = scratch / "large.jsonl"
        write_large_corpus(index, args.passages, large)
        index, build_s = build(large, scratch / "large-index", settings)
        report["large"] = {"passages": len(index), "build_s": build_s, "speed": speeds(index, queries, args.seconds)}
    return report


def build(corpus: Path, out: Path, settings: IndexSettings) -> tuple[Index, float]:
    started = time.perf_counter()
    index = build_index(corpus, out, settings)
    return index, time.perf_counter() - started


# ------------------------------------------------------------------------------------------------------------- speed


def speeds(index: Index, queries: list[str], seconds: float) -> dict[str, Speed]:
    table = {}
    if index.manifest.settings.engine == "bm25":
        table["bm25s directly, in process"] = timed([bm25s_directly(index)], queries, seconds)
    table["index, in process"] = timed([lambda query: index.search([query], TOPK)], queries, seconds)
    with server(index.path) as address:
        for num_clients in (1, 16):
            clients = [http_client(address) for _ in range(num_clients)]
            table[f"server, {num_clients} client{'s' if num_clients > 1 else ''}"] = timed(clients, queries, seconds)
    return table


def timed(askers: list[Callable[[str], object]], queries: list[str], seconds: float) -> Speed:
    """Each asker runs in a thread of its own and asks one query after another."""
    latencies_s: list[float] = []
    askers[0](queries[0])  # warm
    started = time.perf_counter()

    def ask_on(number: int, ask: Callable[[str], object]) -> None:
        place = number
        while (before := time.perf_counter()) < started + seconds:
            ask(queries[place % len(queries)])
            latencies_s.append(time.perf_counter() - before)
            place += len(askers)

    threads = [threading.Thread(target=ask_on, args=item) for item in enumerate(askers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_s = time.perf_counter() - started
    cuts = statistics.quantiles(latencies_s, n=20)
    return Speed(len(latencies_s) / elapsed_s, 1000 * statistics.median(latencies_s), 1000 * cuts[18])


def bm25s_directly(index: Index) -> Callable[[str], object]:
    """The peer: the same terms and constants given to bm25s itself, in memory, with its own selection."""
    import bm25s

    settings = index.manifest.settings.bm25
    scorer = bm25s.BM25(k1=settings.k1, b=settings.b, method="lucene")
    scorer.index([passage_terms(passage, settings) for passage in index.passages()], show_progress=False)
    return lambda query: scorer.retrieve([query_terms(query, settings)], k=TOPK, show_progress=False)


@contextmanager
def server(index: Path) -> Iterator[tuple[str, int]]:
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(index)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        host, port = url.removeprefix("http://").rsplit(":", 1)
        yield host, int(port)
    finally:
        process.terminate()
        process.wait()


def http_client(address: tuple[str, int]) -> Callable[[str], object]:
    connection = http.client.HTTPConnection(*address)

    def ask(query: str) -> bytes:
        body = json.dumps({"queries": [query], "topk": TOPK, "return_scores": True})
        connection.request("POST", "/retrieve", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {answer[:200]!r}")
        return answer

    return ask


# ------------------------------------------------------------------------------------------------------ made corpora


def write_large_corpus(index: Index, num_passages: int, out: Path) -> None:
    """Passages whose two halves come from two different passages of the corpus: real words, no exact duplicate."""
    chance = random.Random(0)
    with out.open("w", encoding="utf-8") as lines:
        for number in range(num_passages):
            first = index.passage(number % len(index))
            second = index.passage(chance.randrange(len(index)))
            words, more = first.text.split(), second.text.split()
            text = " ".join(words[: len(words) // 2] + more[len(more) // 2 :]) or first.text
            lines.write(json.dumps({"id": str(number), "title": first.title, "text": f"{text} {number}"}) + "\n")


# ------------------------------------------------------------------------------------------------------------ tables


def as_tables(report: dict[str, Any]) -> str:
    lines: list[str] = []
    for part in ("corpus", "large"):
        if part in report:
            size, build_s = report[part]["passages"], report[part]["build_s"]
            lines += ["", f"{size:,} passages, built in {build_s:.1f} s", ""]
            lines += ["| | queries/s | p50 ms | p95 ms |", "|---|---|---|---|"]
            for name, speed in report[part]["speed"].items():
                lines.append(f"| {name} | {speed[0]:.0f} | {speed[1]:.2f} | {speed[2]:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
