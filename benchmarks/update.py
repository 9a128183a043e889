"""How long it takes to bring an index up to date, beside building it anew.

    python benchmarks/update.py --passages 100000

A folder of text files with ten passages each, of words drawn by their rank, is indexed; then one file in a hundred is
changed, and half as many are added and removed. The updated index is compared with a new one, byte for byte. The
embedder of the dense index is a stub that costs next to nothing: with a real one, the time of a new build is that of
embedding every passage, and the time of an update that of embedding those that are new.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaere.search import embedders
from quaere.search.embedders import DenseSettings
from quaere.search.index import IndexSettings
from quaere.search.index_build import build_index, update_index

PASSAGES_A_FILE = 10
WORDS_A_PASSAGE = 110
NUM_WORDS = 30_000
WIDTH = 384


class StubEmbedder:
    """A vector of random numbers per text."""

    def encode_query(self, texts: Sequence[str], **options: Any) -> NDArray[np.float32]:
        """One row per text."""
        seeds = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") for text in texts]
        rows = np.stack([np.random.default_rng(seed).standard_normal(WIDTH, np.float32) for seed in seeds])
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    encode_document = encode_query


class Corpus:
    """A folder of generated files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._chance = np.random.default_rng(0)
        self._words = np.array([f"w{number}" for number in range(NUM_WORDS)])

    def write(self, number: int) -> None:
        """Write a file with other words than before."""
        ranks = NUM_WORDS ** self._chance.random((PASSAGES_A_FILE, WORDS_A_PASSAGE))
        paragraphs = [" ".join(self._words[row]) for row in ranks.astype(int) - 1]
        path = self.folder / f"{number // 1000:03}" / f"{number:06}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n\n".join(paragraphs))

    def edit(self, num_files: int) -> None:
        """Change one file in a hundred, remove one in two hundred, and add as many."""
        num_changed = max(2, num_files // 100)
        chosen = self._chance.choice(num_files, num_changed + num_changed // 2, replace=False).tolist()
        for number in chosen[:num_changed]:
            self.write(number)
        for number in chosen[num_changed:]:
            (self.folder / f"{number // 1000:03}" / f"{number:06}.txt").unlink()
        for number in range(num_changed // 2):
            self.write(num_files + number)


def measure(engine: str, num_files: int) -> None:
    """Build, edit, update and build again with one engine."""
    with tempfile.TemporaryDirectory() as place:
        docs = Path(place, "docs")
        docs.mkdir()
        corpus = Corpus(docs)
        for number in range(num_files):
            corpus.write(number)
        time.sleep(2.5)  # younger files are compared by their bytes, since their times might not tell
        settings = IndexSettings(engine=engine, dense=DenseSettings(embedder="stub"))  # type: ignore[arg-type]
        build_index(docs, Path(place, "index"), settings)
        corpus.edit(num_files)
        started = time.perf_counter()
        updated = update_index(Path(place, "index"))
        update_s = time.perf_counter() - started
        started = time.perf_counter()
        fresh = build_index(docs, Path(place, "fresh"), settings)
        fresh_s = time.perf_counter() - started
        started = time.perf_counter()
        update_index(Path(place, "index"))
        idle_s = time.perf_counter() - started
        started = time.perf_counter()
        updated.index.find_changes(bounded=False)
        check_s = time.perf_counter() - started
        counts = updated.counts
        assert _contents(updated.index.path) == _contents(fresh.path)
        print(f"{engine}: {len(fresh):,} passages, {num_files:,} files; {counts.num_read} read, ", end="")
        print(f"{counts.num_kept:,} passages kept, {counts.num_embedded} embedded")
        print(f"  new build {fresh_s:.1f} s, update {update_s:.1f} s ({update_s / fresh_s:.2f} of it), ", end="")
        print(f"update without changes {idle_s:.1f} s ({idle_s / fresh_s:.2f}), check of all sources {check_s:.2f} s")


def _contents(index: Path) -> dict[str, str]:
    files = sorted(path for path in index.rglob("*") if path.is_file())
    return {str(path.relative_to(index)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def main() -> None:
    """Measure each engine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--engines", nargs="+", default=["bm25", "dense"])
    args = parser.parse_args()
    embedders._load_model = lambda embedder: StubEmbedder()
    for engine in args.engines:
        measure(engine, args.passages // PASSAGES_A_FILE)


if __name__ == "__main__":
    main()
