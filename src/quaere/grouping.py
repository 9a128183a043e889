"""Grouping of items by a key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items by key; keys and items keep the order of first appearance. Unlike itertools.groupby, nothing is sorted.

    group_by(["ab", "c", "ad"], lambda word: word[0]) -> {"a": ["ab", "ad"], "c": ["c"]}
    """
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
