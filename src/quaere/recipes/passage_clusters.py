"""Passages of an index as unit vectors, their clusters, and draws of passages from clusters.

    embedded = embed_index(index, run_folder / "embeddings")
    clustering = fit_clusters(embedded.vectors, num_clusters=10, seed=7)
    choose_passages([3, 0, 3], clustering, uses, np.random.default_rng(7)) -> [17, 4, 250]

Vectors are computed once and stored. A dense index already has such vectors, which are used. For other indexes the
method is "tfidf-svd": TF-IDF reduced to a few hundred dimensions. It needs no model and groups passages that share
words, but does not know synonyms. Draws within a cluster prefer passages far from the centroid and rarely used.
"""

from dataclasses import dataclass
from math import floor
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from quaere.disk import new_folder
from quaere.errors import BadInput, ExtraMissing
from quaere.search.dense import read_vectors
from quaere.search.index import Index
from quaere.search.words import terms

Vectors = NDArray[np.float32]
Labels = NDArray[np.int32]
Uses = NDArray[np.int32]
Mask = NDArray[np.bool_]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_VECTORS, _ABOUT = "vectors.npy", "about.json"
_NUM_WORDS = 50_000  # size of the vocabulary: the most frequent words
_WIDTH = 256
_BLOCK = 16_384  # rows per block, so that the vectors need not fit into memory


def sklearn_missing() -> ExtraMissing:
    """The error for the missing optional dependency scikit-learn."""
    return ExtraMissing("the corpus selector needs scikit-learn", extra="select")


@dataclass(frozen=True)
class Embedded:
    """Vectors (row n belongs to passage n) and their fingerprint.

    Embedded(vectors, fingerprint="tfidf-svd of 5f2c...")
    """

    vectors: Vectors
    fingerprint: str


def embed_index(index: Index, folder: Path) -> Embedded:
    """Vectors of an index's passages, read from `folder` or computed and stored there."""
    method = "dense" if "dense" in index.manifest.settings.engine_names else "tfidf-svd"
    origin = {"method": method, "index": index.fingerprint, "num_passages": len(index)}
    about = msgspec.json.format(msgspec.json.encode(origin), indent=1)
    if not (folder / _ABOUT).is_file() or (folder / _ABOUT).read_bytes() != about:
        vectors = _unit_length(read_vectors(index.path / "dense")) if method == "dense" else _embed_words(index)
        with new_folder(folder) as partial:
            np.save(partial / _VECTORS, vectors)
            (partial / _ABOUT).write_bytes(about)
    try:
        kept = np.load(folder / _VECTORS, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise BadInput(f"{folder / _VECTORS} is damaged or missing", hint=f"delete {folder}") from error
    return Embedded(kept, f"{method} of {index.fingerprint}")


def _embed_words(index: Index) -> Vectors:
    """TF-IDF of each passage's terms, reduced by a truncated SVD; a passage without terms is a row of zeros."""
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.utils.extmath import randomized_svd
    except ImportError:
        raise sklearn_missing() from None
    weigher = TfidfVectorizer(analyzer=terms, sublinear_tf=True, max_features=_NUM_WORDS, dtype=np.float32)
    # The vocabulary is not empty: BM25 refuses to build an index without words.
    counts = weigher.fit_transform(passage.titled_text for passage in index.passages())
    directions, strengths, _ = randomized_svd(counts, min(_WIDTH, *counts.shape), random_state=0)
    return _unit_length(np.asarray(directions * strengths, dtype=np.float32))


def _unit_length(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0))


# ------------------------------------------------------------------------------------------------------------- clusters


@dataclass(frozen=True)
class Clustering:
    """Centroids, the cluster of each passage, and each passage's distance from its centroid.

    Clustering(centroids=[[0.0, 1.0], [1.0, 0.0]], labels=[0, 0, 1], distances=[0.1, 0.1, 0.0])
    """

    centroids: Vectors
    labels: Labels
    distances: Vectors

    def __len__(self) -> int:
        return len(self.centroids)


def count_clusters(first: int, growth: float, iteration: int) -> int:
    """Number of clusters in iteration t, K_t = K_0 + floor(alpha * t): `count_clusters(10, 0.5, iteration=3) -> 11`."""
    # In floating point, 0.29 * 100 is 28.999999999999996, whose floor would be one too low.
    return first + floor(round(growth * iteration, 9))


def fit_clusters(vectors: Vectors, num_clusters: int, seed: int) -> Clustering:
    """Mini-batch k-means over unit vectors; at most one cluster per vector.

    fit_clusters(vectors, num_clusters=10, seed=7).labels -> [3, 3, 0, ...]
    """
    try:
        from sklearn.cluster import MiniBatchKMeans
    except ImportError:
        raise sklearn_missing() from None
    # No reassignment: it would move the centroids of small topics into large ones, and the selector exists to find
    # small topics.
    means = MiniBatchKMeans(
        min(num_clusters, len(vectors)), n_init=3, reassignment_ratio=0, random_state=seed % 2**32, compute_labels=False
    )
    centroids = np.ascontiguousarray(means.fit(vectors).cluster_centers_, dtype=np.float32)
    return Clustering(centroids, *nearest(vectors, centroids))


def nearest(points: Vectors, centroids: Vectors) -> tuple[Labels, Vectors]:
    """Index of the nearest centroid of each point (Euclidean, the first among equals), and the distance to it.

    nearest([[0, 0], [3, 4]], [[0, 0]]) -> [0, 0], [0.0, 5.0]
    """
    labels = np.empty(len(points), np.int32)
    distances = np.empty(len(points), np.float32)
    squares = (centroids**2).sum(axis=1)
    for start in range(0, len(points), _BLOCK):
        block = points[start : start + _BLOCK]
        found = (squares - 2 * (block @ centroids.T)).argmin(axis=1)
        labels[start : start + _BLOCK] = found
        # From the difference, not from the squares above: those leave a rounding error where the distance is 0.
        distances[start : start + _BLOCK] = np.sqrt(((block - centroids[found]) ** 2).sum(axis=1))
    return labels, distances


# ---------------------------------------------------------------------------------------------------------------- draws


def weigh_passages(distances: NDArray[np.floating], uses: Uses) -> Floats:
    """Weights of a cluster's passages in a draw: distance / (1 + times used).

    weigh_passages([0.6, 0.2, 0.0], uses=[2, 0, 0]) -> [0.2, 0.2, 0.0]
    """
    return np.asarray(distances, np.float64) / (1.0 + uses)


def choose_passages(
    arms: Integers, clustering: Clustering, uses: Uses, chance: np.random.Generator, among: Mask | None = None
) -> list[int]:
    """A passage for each cluster in `arms`, drawn one after another; `uses` is updated with each draw.

    `among` restricts the passages, for example to a shard. For a cluster without any of these, one of all allowed
    passages is drawn.

        choose_passages([3, 0, 3], clustering, uses, np.random.default_rng(7)) -> [17, 4, 250]
    """
    pools: dict[int, _Pool] = {}
    chosen = []
    for arm in arms.tolist():
        if arm not in pools:
            pools[arm] = _Pool(arm, clustering, uses, among)
        chosen.append(pools[arm].draw(chance))
    return chosen


class _Pool:
    """The passages of a cluster with their weights; all allowed passages with zero weights if it has none."""

    def __init__(self, arm: int, clustering: Clustering, uses: Uses, among: Mask | None) -> None:
        self._uses = uses
        inside = clustering.labels == arm
        self._numbers = np.flatnonzero(inside if among is None else inside & among)
        if len(self._numbers):
            self._weights = weigh_passages(clustering.distances[self._numbers], uses[self._numbers])
        else:
            self._numbers = np.arange(len(uses)) if among is None else np.flatnonzero(among)
            self._weights = np.zeros(len(self._numbers))
        self._add_up()

    def draw(self, chance: np.random.Generator) -> int:
        """Draw a passage and count it as used once more.

        Summing all weights after every draw would be slow in a large cluster. Instead a passage is drawn by the last
        sums and accepted with probability new weight / old weight; only on rejection are the sums updated and a passage
        drawn by them. The resulting probabilities are exactly those of the new weights.
        """
        place = int(_draw_places(self._sums, 1, chance)[0])
        if place in self._old and chance.random() * self._old[place] >= self._weights[place] > 0:
            self._add_up()
            place = int(_draw_places(self._sums, 1, chance)[0])
        number = int(self._numbers[place])
        self._uses[number] += 1
        self._old.setdefault(place, float(self._weights[place]))
        self._weights[place] *= self._uses[number] / (1 + self._uses[number])
        return number

    def _add_up(self) -> None:
        self._sums = _add_up(self._weights)
        self._old: dict[int, float] = {}  # weights in `_sums` of the passages drawn since then


def draw_weighted(weights: Floats, num: int, chance: np.random.Generator) -> Integers:
    """Indices drawn with replacement in proportion to their weights; uniformly if all weights are zero.

    draw_weighted([0.0, 2.0, 0.0], 3, np.random.default_rng(7)) -> [1, 1, 1]
    """
    return _draw_places(_add_up(weights), num, chance)


def _add_up(weights: Floats) -> Floats:
    """Cumulative sums for `_draw_places`; weights that are all zero count as ones: `_add_up([0, 0]) -> [1, 2]`."""
    sums = np.cumsum(weights)
    return sums if sums[-1] > 0 else np.arange(1.0, len(weights) + 1)


def _draw_places(sums: Floats, num: int, chance: np.random.Generator) -> Integers:
    """Indices drawn with replacement from the cumulative sums of their weights."""
    places = np.searchsorted(sums, chance.random(num) * sums[-1], side="right")
    # A product that rounds up to the total would give an index after the last one with a weight.
    return np.asarray(np.minimum(places, np.searchsorted(sums, sums[-1])), dtype=np.int64)
