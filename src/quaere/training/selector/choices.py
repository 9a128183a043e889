"""Choice of passages within the pulled clusters, preferring those far from the centroid and rarely used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quaere.training.selector.bandits import Floats, Integers, add_up, draw_places
from quaere.training.selector.clusters import Clustering

Uses = NDArray[np.int32]
Mask = NDArray[np.bool_]


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
        place = int(draw_places(self._sums, 1, chance)[0])
        if place in self._old and chance.random() * self._old[place] >= self._weights[place] > 0:
            self._add_up()
            place = int(draw_places(self._sums, 1, chance)[0])
        number = int(self._numbers[place])
        self._uses[number] += 1
        self._old.setdefault(place, float(self._weights[place]))
        self._weights[place] *= self._uses[number] / (1 + self._uses[number])
        return number

    def _add_up(self) -> None:
        self._sums = add_up(self._weights)
        self._old: dict[int, float] = {}  # weights in `_sums` of the passages drawn since then
