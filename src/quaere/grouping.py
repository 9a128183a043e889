"""Grouping of items by a key."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def grouped(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """The items of each key, both in the order of first appearance; unlike itertools.groupby, nothing is sorted.

    grouped([("a", 1), ("b", 2), ("a", 3)]) -> {"a": [1, 3], "b": [2]}
    """
    groups: dict[Key, list[Item]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items by their key: `group_by(["ab", "c"], lambda word: word[0]) -> {"a": ["ab"], "c": ["c"]}`."""
    return grouped((key(item), item) for item in items)
