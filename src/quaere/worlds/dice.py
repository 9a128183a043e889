"""Seeded random generator whose numbers, and so a world's bytes, are identical on every machine and Python version.

The standard library guarantees that only for `random.random()`; here every draw is plain 64-bit integer arithmetic.

    Dice(7, "article", 12).below(6)  # the same number everywhere, independent of every other label
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1


class Dice:
    """A splitmix64 stream, seeded with a hash of its labels.

    Dice(7, "names").pick(("Oss", "Tarn", "Ild"))
    """

    __slots__ = ("_state",)

    def __init__(self, *labels: int | str) -> None:
        self._state = int.from_bytes(blake2b("/".join(map(str, labels)).encode(), digest_size=8).digest(), "big")

    def below(self, num: int) -> int:
        """An integer from 0 to `num - 1`."""
        self._state = state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((state ^ (state >> 31)) * num) >> 64

    def between(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        """True with a probability of `percent` / 100."""
        return self.below(100) < percent

    def pick(self, items: Sequence[T]) -> T:
        """A random item; all are equally likely."""
        return items[self.below(len(items))]

    def shuffle(self, items: list[T]) -> None:
        """Shuffle the list in place (Fisher-Yates)."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]
