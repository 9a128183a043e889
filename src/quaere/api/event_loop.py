"""`asyncio.run` for work with a large result."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, in an event loop of its own.

    Python 3.11's `asyncio.run` ends with `signal.signal`, which writes out the task and with it what it returned, for
    an error that is caught at once. Of many episodes that is a long text, so the task here returns nothing.
    """
    found: list[T] = []

    async def keep() -> None:
        found.append(await work)

    asyncio.run(keep())
    return found[0]
