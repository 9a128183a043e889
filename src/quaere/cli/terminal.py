"""What commands print besides their results (notes, errors, warnings), and how they answer Ctrl-C.

with interruptible("every answer that is finished is stored"):
    asyncio.run(ask(...))

Text of models and documents cannot act on the terminal (`chat/terminal_text.py`). A forward pass of a large model
cannot be aborted, and an orderly stop waits for it, on a CPU for half a minute. By then everything finished is on disk,
so after a few seconds the process simply exits.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from quaere.chat.terminal_text import printable as printable
from quaere.chat.terminal_text import printable_line as printable_line
from quaere.errors import SampledLess, ServerDown, StaleIndex

if TYPE_CHECKING:
    from rich.console import Console

_show_usual = warnings.showwarning


def say_line(line: str) -> None:
    """Print a line to stderr, in the form of errors."""
    print(printable_line(f"quaere: {line}"), file=sys.stderr)


def open_console(stderr: bool = False) -> Console:
    """The console that results are printed to; text in them is not highlighted."""
    from quaere.api.console import Console

    return Console(stderr=stderr, highlight=False)


def note_line(line: str) -> None:
    """Print a dim line to stderr: what is loaded, downloaded or begun."""
    open_console(stderr=True).print(line, style="dim", markup=False)


def show_warnings() -> None:
    """Print warnings about stale indexes, lost servers and full memory as one line each, others as before."""
    warnings.showwarning = _show  # type: ignore[assignment]


def _show(message: Warning | str, category: type[Warning], *place: Any) -> None:
    if issubclass(category, (SampledLess, ServerDown, StaleIndex)):
        say_line(str(message))
    else:
        _show_usual(message, category, *place)


# --------------------------------------------------------------------------------------------------------------- Ctrl-C


INTERRUPTED = 130
GRACE_S = 3.0
ONE_PRESS_S = 0.2  # `timeout --signal=INT` signals the process and then its group: that is one request, not two
_SHOW_CURSOR = b"\x1b[?25h"
Note = str | Callable[[], str]


@contextmanager
def interruptible(
    kept: Note = "what is finished is stored", *, after: str = "", ask: Callable[[], None] | None = None, then: str = ""
) -> Iterator[None]:
    """Handle Ctrl-C in this block: a line acknowledges it, and after a few seconds the process exits.

    `kept` says what becomes of the work so far; if it is a function, then as it is at the Ctrl-C. With `ask`, the first
    Ctrl-C only asks to stop `after` something that may take its time, and the second one stops. `then` is printed by a
    process that exits before the block could end.
    """
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield
        return
    timer = threading.Timer(GRACE_S, _leave, [then])
    timer.daemon = True
    presses, last = 0, float("-inf")

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal presses, last
        now = time.monotonic()
        if now - last < ONE_PRESS_S:
            return
        last, said = now, kept if isinstance(kept, str) else kept()
        presses += 1  # not `timer.is_alive()`: another Ctrl-C may come while the timer is being started
        if ask is not None and presses == 1:
            _say(f"stopping after {after}; press Ctrl-C again to stop now ({said})")
            ask()
            return
        if presses > (1 if ask is None else 2):
            _leave(then)
        _say(f"stopping; {said}" + ("" if ask else "; press Ctrl-C again to stop now"))
        with suppress(Exception):
            sys.stdout.flush()
        timer.start()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        timer.cancel()


def _say(line: str) -> None:
    with suppress(OSError):  # stderr may be closed by now
        os.write(2, f"\n{line}\n".encode())  # not `print`: it may be what was interrupted


def _leave(then: str) -> None:
    with suppress(OSError):
        if os.isatty(2):
            os.write(2, _SHOW_CURSOR)  # a live display hides it
    if then:
        _say(then)
    os._exit(INTERRUPTED)
