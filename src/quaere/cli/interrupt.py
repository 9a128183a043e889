"""Ctrl-C while a model is working: acknowledged at once, done within seconds.

    with interruptible():
        asyncio.run(ask(...))

A forward pass of a large model cannot be aborted, and an orderly stop waits for it, on a CPU for half a minute. By then
everything finished is on disk, so after a few seconds the process simply exits.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

INTERRUPTED = 130
GRACE_S = 3.0
_SAID = b"\nstopping; what is finished is stored (Ctrl-C again to leave at once)\n"


@contextmanager
def interruptible() -> Iterator[None]:
    """Handle Ctrl-C in this block: acknowledge it, then allow a few seconds for an orderly stop."""
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield
        return
    timer = threading.Timer(GRACE_S, os._exit, [INTERRUPTED])
    timer.daemon = True
    is_stopping = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal is_stopping
        if is_stopping:  # not `timer.is_alive()`: a second Ctrl-C may come while the timer is being started
            os._exit(INTERRUPTED)
        is_stopping = True
        os.write(2, _SAID)  # not `print`: it may be what was interrupted
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
