"""Memory, disk, time and agreement of the search engines over many passages with synthetic vectors.

    python benchmarks/engine_scale.py --passages 100000
    python benchmarks/engine_scale.py --passages 1000000 --engines faiss-ivf lance-ivf lance-text

Each engine builds its index in a process of its own and is searched in another; with `--update` one row in a hundred
then changes and a third brings the index up to date. Memory is the largest of samples taken every 20 ms: anonymous
memory, which is the process's own, and resident memory, which also counts pages of mapped files that the system may
drop. Overlap is the mean share of the ten best that are among the ten best of the exact engine: `faiss-flat` for
vectors, `bm25` for words, where it was measured.

A vector is one of `--centres` directions plus noise, drawn by a hash of the text: neighbours exist, as in a corpus, and
embedding costs next to nothing. Times of a build are therefore those of everything but the embedder. A query is a
passage's vector with more noise, or five words of a passage.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaere.search import embedders
from quaere.search.embedders import Ann, DenseSettings
from quaere.search.index import IndexSettings, open_index
from quaere.search.index_build import build_index, update_index
from quaere.search.lance import LanceSettings

NUM_QUERIES = 200
ENGINES = ("bm25", "faiss-flat", "faiss-ivf", "lance-text", "lance-flat", "lance-ivf")
EXACT = {"faiss-ivf": "faiss-flat", "lance-flat": "faiss-flat", "lance-ivf": "faiss-flat", "lance-text": "bm25"}


class StubEmbedder:
    """A direction by the text's topic, `topicN` in its first word, plus noise by its hash."""

    def __init__(self, width: int, num_centres: int) -> None:
        self._centres = np.random.default_rng(0).standard_normal((num_centres, width), np.float32)
        self._width = width

    def _encode(self, texts: Sequence[str], noise: float) -> NDArray[np.float32]:
        rows = np.empty((len(texts), self._width), np.float32)
        for row, text in zip(rows, texts, strict=True):
            topic = int(text.partition("topic")[2].partition(" ")[0])
            seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
            row[:] = np.random.default_rng(seed).standard_normal(self._width, np.float32)
            row *= noise
            row += self._centres[topic]
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def encode_document(self, texts: Sequence[str], **options: Any) -> NDArray[np.float32]:
        """One row per passage."""
        return self._encode(texts, 1.0)

    def encode_query(self, texts: Sequence[str], **options: Any) -> NDArray[np.float32]:
        """One row per query."""
        return self._encode(texts, 1.5)


class MemoryPeak:
    """The largest anonymous and resident memory of this process, in MiB, sampled by a thread."""

    def __init__(self) -> None:
        self.anonymous = self.resident = 0
        threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self) -> None:
        while True:
            lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            self.anonymous = max(self.anonymous, int(lines["RssAnon"].split()[0]) // 1024)
            self.resident = max(self.resident, int(lines["VmHWM"].split()[0]) // 1024)
            time.sleep(0.02)


def write_rows(out: Path, num_passages: int, num_centres: int, version: int = 0) -> None:
    """Rows of 80 words; in a later version, one in a hundred has other words."""
    words = [f"w{number}" for number in range(50_000)]
    weights = np.cumsum([1 / (rank + 10) for rank in range(len(words))]).tolist()
    with out.open("w", encoding="utf-8") as lines:
        for number in range(num_passages):
            draw = random.Random(number if number % 100 else number + version * num_passages)
            text = " ".join(draw.choices(words, cum_weights=weights, k=80))
            row = {"id": str(number), "title": f"topic{draw.randrange(num_centres)} page", "text": text}
            lines.write(json.dumps(row) + "\n")


def settings_of(engine: str, num_lists: int = 0) -> IndexSettings:
    kind, _, how = engine.partition("-")
    ann: Ann = "ivf" if how == "ivf" else "flat"
    dense = DenseSettings(embedder="stub", ann=ann, num_lists=num_lists, batch_size=1024)
    if kind == "lance":
        return IndexSettings(engine="lance", dense=dense, lance=LanceSettings("text" if how == "text" else "dense"))
    return IndexSettings(engine="dense" if kind == "faiss" else "bm25", dense=dense)


# ------------------------------------------------------------------------------------------- in processes of their own


def build(engine: str, rows: Path, place: Path, num_lists: int) -> dict[str, float]:
    memory = MemoryPeak()
    began = time.perf_counter()
    index = build_index(rows, place / engine, settings_of(engine, num_lists))
    size = sum(path.stat().st_size for path in (index.path / index.manifest.settings.engine_names[0]).rglob("*"))
    times = {"build_s": time.perf_counter() - began, "disk_mib": size / 2**20}
    return times | {"build_anonymous_mib": memory.anonymous, "build_resident_mib": memory.resident}


def update(engine: str, rows: Path, place: Path, num_lists: int) -> dict[str, float]:
    memory = MemoryPeak()
    began = time.perf_counter()
    counts = update_index(place / engine).counts
    report = {"update_s": time.perf_counter() - began, "update_embedded": counts.num_embedded}
    return report | {"update_anonymous_mib": memory.anonymous}


def search(engine: str, rows: Path, place: Path, num_lists: int) -> dict[str, Any]:
    memory = MemoryPeak()
    index = open_index(place / engine, check_sources=False)
    draw = random.Random(1)
    chosen = [index.passage(draw.randrange(len(index))) for _ in range(NUM_QUERIES)]
    queries = [f"{each.title} {' '.join(draw.sample(each.text.split(), 4))}" for each in chosen]
    index.search(queries[:1], 10)
    began = time.perf_counter()
    found = [index.search([query], 10)[0] for query in queries]
    rate = NUM_QUERIES / (time.perf_counter() - began)
    report: dict[str, Any] = {"queries_per_s": rate, "search_anonymous_mib": memory.anonymous}
    report |= {"search_resident_mib": memory.resident}
    return report | {"found": [[hit.passage.doc_id for hit in hits] for hits in found]}


# ---------------------------------------------------------------------------------------------------------- the table


def run(args: argparse.Namespace, part: str, engine: str, place: Path) -> dict[str, Any]:
    sizes = ["--width", str(args.width), "--centres", str(args.centres), "--num-lists", str(args.num_lists)]
    command = [sys.executable, __file__, "--part", part, "--engines", engine, "--place", str(place), *sizes]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def measure(args: argparse.Namespace, place: Path) -> list[dict[str, Any]]:
    rows = place / "rows.jsonl"
    write_rows(rows, args.passages, args.centres)
    reports = {engine: {"engine": engine} | run(args, "build", engine, place) for engine in args.engines}
    for engine, report in reports.items():
        report |= run(args, "search", engine, place)
    for engine, report in reports.items():
        exact = reports.get(EXACT.get(engine, ""))
        if exact:
            pairs = zip(report["found"], exact["found"], strict=True)
            report["overlap"] = float(np.mean([len(set(one) & set(other)) / len(other) for one, other in pairs]))
    if args.update:
        write_rows(rows, args.passages, args.centres, version=1)
        for engine, report in reports.items():
            report |= run(args, "update", engine, place)
    for report in reports.values():
        del report["found"]
    return list(reports.values())


def as_table(reports: Sequence[dict[str, Any]]) -> str:
    columns = {
        "engine": "{}",
        "build_s": "{:.0f}",
        "build_anonymous_mib": "{:,}",
        "build_resident_mib": "{:,}",
        "disk_mib": "{:,.0f}",
        "queries_per_s": "{:.1f}",
        "search_anonymous_mib": "{:,}",
        "search_resident_mib": "{:,}",
        "overlap": "{:.3f}",
        "update_s": "{:.0f}",
        "update_embedded": "{}",
        "update_anonymous_mib": "{:,}",
    }
    used = [name for name in columns if any(name in report for report in reports)]
    lines = ["| " + " | ".join(name.replace("_", " ") for name in used) + " |", "|" + "---|" * len(used)]
    for report in reports:
        cells = [columns[name].format(report[name]) if name in report else "" for name in used]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=768, help="numbers in a vector (default: 768)")
    parser.add_argument("--centres", type=int, default=1000, help="directions that vectors gather around")
    parser.add_argument("--num-lists", type=int, default=0, help="clusters of ivf (default: by the number of passages)")
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--update", action="store_true", help="also bring each index up to date")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", choices=("build", "update", "search"), help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        embedders._load_model = lambda name: StubEmbedder(args.width, args.centres)
        part = {"build": build, "update": update, "search": search}[args.part]
        print(json.dumps(part(args.engines[0], args.place / "rows.jsonl", args.place, args.num_lists)))
        return
    with tempfile.TemporaryDirectory() as place:
        reports = measure(args, Path(place))
    print(json.dumps(reports, indent=2) if args.json else as_table(reports))


if __name__ == "__main__":
    main()
