"""How far a command is through work in several parts, each of a known or unknown size.

with show_progress() as progress:
    progress("wording questions", 512, 6000)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from quaere.api.counts import Progress

LOG_S = 30.0
_DRAW_S = 0.1
Describe = Callable[[str, int, int | None], str]


def describe_count(doing: str, done: int, total: int | None) -> str:
    """How much is done.

    describe_count("embedding", 512, 23784) == "512 of 23,784"
    """
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"


@contextmanager
def show_progress(describe: Describe = describe_count) -> Iterator[Progress]:
    """A bar on a terminal; elsewhere a line every now and then, and none at all if it does not take long."""
    if not sys.stderr.isatty():
        yield LogProgress(sys.stderr, describe=describe)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    amount, left = TextColumn("{task.fields[amount]}"), (TextColumn("left"), TimeRemainingColumn())
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeElapsedColumn(), *left)
    with Bars(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None, amount="")
        shown_at = 0.0

        def progress(doing: str, done: int, total: int | None, stands: str = "") -> None:
            nonlocal shown_at
            now = time.monotonic()
            if now - shown_at > _DRAW_S or done in (0, total):
                bar.tasks[0].total = total  # `update` would take None for "as before"
                amount = ", ".join(filter(None, (describe(doing, done, total), stands)))
                bar.update(task, description=doing, completed=done, amount=amount)
                shown_at = now

        yield progress


class LogProgress:
    """Says how far it is, a line every half minute: "reading documents: 12.4 of 98.0 MB"."""

    def __init__(
        self, stream: TextIO, clock: Callable[[], float] = time.monotonic, *, describe: Describe = describe_count
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._describe = describe
        self._said_at = clock()

    def __call__(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        """So much is done."""
        if self.is_due():
            said = ", ".join(filter(None, (self._describe(doing, done, total), stands)))
            print(f"{doing}: {said}", file=self._stream, flush=True)

    def is_due(self) -> bool:
        """True if nothing was said for half a minute; then that begins anew."""
        now = self._clock()
        if now - self._said_at < LOG_S:
            return False
        self._said_at = now
        return True
