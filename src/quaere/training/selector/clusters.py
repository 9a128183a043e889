"""Clusters of a corpus by its passages' vectors, and the transfer of bandit arms when clusters are added.

clustering = fit_clusters(vectors, num_clusters=10, seed=7)
finer = fit_clusters(vectors, num_clusters=12, seed=8)
arms = inherit(arms, clustering.centroids, finer.centroids)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

import numpy as np
from numpy.typing import NDArray

from quaere.errors import ExtraMissing
from quaere.training.selector.bandits import Arms, Floats

Vectors = NDArray[np.float32]
Labels = NDArray[np.int32]

_BLOCK = 16_384  # rows per block, so that the vectors need not fit into memory


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
    """K_t = K_0 + floor(alpha * t): `count_clusters(10, 0.5, iteration=3) -> 11`."""
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


def inherit(arms: Arms, old: Vectors, new: Vectors) -> Arms:
    """The arms of the new clusters, each a child of the nearest old cluster.

    Each of c children gets max(floor(N / c), 1) pulls and 1 / c of the rewards. The paper does not define old clusters
    without a child; here their nearest new cluster gets all they have, so that no reward is lost.

        inherit(Arms(pulls=[5], rewards=[3.0], raw_rewards=[1.0]), old=[[0, 0]], new=[[0, 1], [1, 0]])
        -> Arms(pulls=[2, 2], rewards=[1.5, 1.5], raw_rewards=[0.5, 0.5])
    """
    parents, _ = nearest(new, old)
    num_children = np.bincount(parents, minlength=len(old))
    shares = np.maximum(num_children, 1)
    childless = np.flatnonzero(num_children == 0)
    heirs, _ = nearest(old[childless], new)

    def pass_on(sums: Floats) -> Floats:
        return np.asarray((sums / shares)[parents] + np.bincount(heirs, sums[childless], minlength=len(new)))

    pulls = np.maximum(arms.pulls // shares, 1)[parents]
    np.add.at(pulls, heirs, arms.pulls[childless])
    return Arms(pulls, pass_on(arms.rewards), pass_on(arms.raw_rewards))


def sklearn_missing() -> ExtraMissing:
    """The error for the missing optional dependency scikit-learn."""
    return ExtraMissing("the corpus selector needs scikit-learn", extra="select")
