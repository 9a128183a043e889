"""A cache for asynchronous results.

pages: Cache[str, Document] = Cache(32 << 20, weigh=lambda page: len(page.text))
page = await pages.get(url, lambda: read_page(url))
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """An LRU cache of results by key. Concurrent requests for one key share one call of `find`; failures are not kept.

    The kept results weigh at most `max_weight` together; the least recently used are dropped first.
    """

    def __init__(self, max_weight: int, weigh: Callable[[V], int] = lambda value: 1) -> None:
        self._max_weight, self._weigh, self._weight = max_weight, weigh, 0
        self._kept: dict[K, V] = {}  # the least recently used first
        self._finding: WeakValueDictionary[K, asyncio.Lock] = WeakValueDictionary()

    async def get(self, key: K, find: Callable[[], Awaitable[V]]) -> V:
        """The result for a key: the one kept, or what `find` returns."""
        async with self._finding.setdefault(key, asyncio.Lock()):
            if key in self._kept:
                value = self._kept[key] = self._kept.pop(key)
                return value
            value = self._kept[key] = await find()
        self._weight += self._weigh(value)
        while self._weight > self._max_weight:
            self._weight -= self._weigh(self._kept.pop(next(iter(self._kept))))
        return value
