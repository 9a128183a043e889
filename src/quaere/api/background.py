"""Coroutines for callers that are not asynchronous, whether or not an event loop runs where they are.

with BackgroundLoop("quaere-agent") as loop:
    hits = loop.run(searcher.search(["halm bridge"], topk=3))

Jupyter runs an event loop in the thread of its cells, so `asyncio.run` is refused there. The loop here has a thread of
its own; nothing of the caller's loop is patched.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from quaere.errors import BadInput

T = TypeVar("T")


def set_library_defaults() -> None:
    """Set what torch, tokenizers and transformers read from the environment; a variable that is set already stays."""
    # OpenMP threads that spin while they wait collapse when something else uses the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Downloads and loading are reported by our own notes.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


class Closing:
    """Something that is closed at the end of a `with` block."""

    def close(self) -> None:
        """Release what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class BackgroundLoop(Closing):
    """An event loop on a daemon thread. `run` may be called from any thread but that one, several at a time."""

    def __init__(self, name: str = "quaere") -> None:
        set_library_defaults()
        started, self._lock, self._is_closing = threading.Event(), threading.Lock(), False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), name=name, daemon=True)
        self._thread.start()
        started.wait()

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        started.set()
        await self._stopped.wait()

    @property
    def is_closed(self) -> bool:
        """True once nothing can be run any more."""
        return not self._thread.is_alive()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result. If the caller is interrupted (Ctrl-C), the coroutine is cancelled and waited for."""
        started = self.start(coroutine)
        try:
            return started.result()
        except KeyboardInterrupt:
            started.cancel()
            started.wait()  # what holds files or weights lets go of them before the caller goes on
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Started[T]:
        """Begin a coroutine and return at once."""
        with self._lock:  # what comes to the loop after its end would never be begun, and its result never come
            # Waiting in the loop's own thread for the loop would never end.
            if threading.current_thread() is not self._thread and not self._is_closing and not self.is_closed:
                return Started(self._loop, coroutine)
        coroutine.close()
        raise BadInput("this cannot be called from a callback of the same agent or run, nor after it was closed")

    def close(self) -> None:
        """Cancel what is still running, and end the thread; a second call does nothing."""
        with self._lock:
            if not self._is_closing:
                with suppress(RuntimeError):  # it has ended by itself
                    self._loop.call_soon_threadsafe(self._stopped.set)
            self._is_closing = True
        self._thread.join()


class Started(Generic[T]):
    """A coroutine that runs in a background loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._result: Future[T] = Future()
        self._task: asyncio.Task[T] | None = None
        loop.call_soon_threadsafe(self._begin, coroutine)

    def _begin(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._task = self._loop.create_task(_keep_ending(coroutine))
        self._task.add_done_callback(lambda task: coroutine.close())  # if it was cancelled before it began
        self._task.add_done_callback(lambda task: _hand_over(task, self._result))

    def result(self) -> T:
        """Wait for the result; `concurrent.futures.CancelledError` if it was cancelled."""
        return self._result.result()

    def wait(self) -> None:
        """Wait until it is over, whatever comes of it."""
        wait([self._result])

    def cancel(self) -> None:
        """Cancel the coroutine; `wait` and `result` return once it has stopped. Does nothing if it is over."""
        with suppress(RuntimeError):  # the loop was closed, which cancels everything
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        assert self._task is not None  # `_begin` was put into the loop before
        self._task.cancel()


class _Ending(Exception):
    """A KeyboardInterrupt or SystemExit, its `__cause__`: raised by a task, it would end the event loop."""


async def _keep_ending(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        return await coroutine
    except (KeyboardInterrupt, SystemExit) as error:  # of a callback, or of a training that was asked to stop
        raise _Ending from error


class Interrupted(Exception):
    """The caller of work in another thread was interrupted, so the work is given up."""


def run_in_thread(work: Callable[[Callable[[], None]], T]) -> T:
    """The result of work that opens event loops of its own, in a thread that has none.

    `work` is given a function to call now and then; it ends the work when the caller was interrupted (Ctrl-C).
    """
    set_library_defaults()
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise Interrupted

    with ThreadPoolExecutor(1, thread_name_prefix="quaere-work") as threads:
        result = threads.submit(work, check)
        try:
            return result.result()
        except KeyboardInterrupt:
            stop.set()
            wait([result])
            raise


def _hand_over(task: asyncio.Task[T], result: Future[T]) -> None:
    if task.cancelled():
        result.set_exception(CancelledError())
    elif error := task.exception():
        result.set_exception((isinstance(error, _Ending) and error.__cause__) or error)
    else:
        result.set_result(task.result())
