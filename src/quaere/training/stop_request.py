"""A request that a training run stop after the step under way.

with accept_stop() as stop:
    signal.signal(signal.SIGUSR1, lambda number, frame: stop())
    asyncio.run(recipe.train(config, store, reporter))        # KeyboardInterrupt, after the step and its checkpoint
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event

# A context variable, since tasks inherit it: whoever can be signalled and whoever trains need not know each other.
_request: ContextVar[Event | None] = ContextVar("stop_request", default=None)


@contextmanager
def accept_stop() -> Iterator[Callable[[], None]]:
    """A function that asks the runs begun within this to stop; safe to call from a signal handler."""
    event = Event()
    token = _request.set(event)
    try:
        yield event.set
    finally:
        _request.reset(token)


def stop_requested() -> bool:
    """True once a stop has been asked for."""
    event = _request.get()
    return event is not None and event.is_set()
