"""The proposer's tasks (document and number of hops), as a function of the seed and the task number alone.

A resumed run, or a later phase that needs the same tasks, therefore stores nothing about what was drawn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import gcd
from typing import Protocol

from quaere.records import Passage, ProposeTask
from quaere.rollout.policy import derive_seed


class Passages(Protocol):
    """Numbered passages, such as an index."""

    def __len__(self) -> int:
        """Number of passages."""
        ...

    def passage(self, number: int) -> Passage:
        """The passage with this number."""
        ...


def draw_tasks(
    passages: Passages, numbers: Sequence[int], hop_ratio: Sequence[int], *, seed: int, name: str, document: bool = True
) -> list[ProposeTask]:
    """The tasks with these numbers. No document is repeated before every document was used once.

    draw_tasks(index, range(2), (4, 3, 2, 1), seed=7, name="i0")
    -> [ProposeTask(id="i0-000000", document=Passage(...), hops=2), ProposeTask(id="i0-000001", ...)]
    """
    start, stride = _round_trip(len(passages), seed)
    tasks = []
    for number in numbers:
        passage = passages.passage((start + number * stride) % len(passages)) if document else None
        tasks.append(ProposeTask(f"{name}-{number:06d}", passage, draw_hops(number, hop_ratio, seed)))
    return tasks


def draw_hops(number: int, hop_ratio: Sequence[int], seed: int) -> int:
    """Number of hops of a task, from shuffled decks with exactly the given ratio, so that every batch is close to it.

    [draw_hops(number, (1, 1), seed=7) for number in range(4)] holds 1 twice and 2 twice
    """
    deck = [hops for hops, weight in enumerate(hop_ratio, start=1) for _ in range(weight)]
    dealt, card = divmod(number, len(deck))
    random.Random(derive_seed(seed, "deck", dealt)).shuffle(deck)
    return deck[card]


def _round_trip(size: int, seed: int) -> tuple[int, int]:
    """A start and a stride that visit every number below `size` once, in a pseudo-random order."""
    draw = random.Random(derive_seed(seed, "documents"))
    start = draw.randrange(size)
    while gcd(stride := draw.randrange(1, size + 1), size) != 1:
        pass
    return start, stride
