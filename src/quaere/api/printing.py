"""Counts and durations in words, and the progress through a known number of items.

with counting("verifying", 200, console) as advance:
    advance("mean V +0.310")
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from quaere.chat.terminal_text import shorten_number

if TYPE_CHECKING:
    from rich.console import Console


_LEAST_S, _MOST_S = 1.0, 30.0


class Progress(Protocol):
    """A receiver of progress: `done` of `total` (None if unknown); `stands` is the interim result as text."""

    def __call__(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        """Receive the progress of one part of the work."""
        ...


def no_progress(doing: str, done: int, total: int | None, stands: str = "") -> None:
    """Ignore the progress."""


@contextmanager
def counting(doing: str, total: int, quiet: Console) -> Iterator[Callable[[str], None]]:
    """A bar with the time left on a terminal; elsewhere a line after every tenth and every half minute.

    Yields `advance`, which takes the current state as text ("mean V +0.310").
    """
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    num_done, started, said = 0, time.monotonic(), -math.inf
    columns = (TextColumn(doing), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    is_terminal = sys.stderr.isatty()
    with Progress(
        *columns, TextColumn("{task.fields[stands]}"), console=quiet, disable=not is_terminal, transient=True
    ) as bar:
        task = bar.add_task(doing, total=total, stands="")

        def advance(stands: str) -> None:
            nonlocal num_done, said
            num_done += 1
            now = time.monotonic()
            bar.update(task, advance=1, stands=stands)
            is_tenth = num_done % max(1, total // 10) == 0 and now - said >= _LEAST_S
            is_due = is_tenth or now - max(said, started) >= _MOST_S
            if not is_terminal and (is_due or num_done == total):
                said = now
                left_s = (now - started) / num_done * (total - num_done)
                left = f"about {format_duration(left_s)} left" if num_done < total else ""
                quiet.print(", ".join(filter(None, (f"{num_done} of {total} done", stands, left))), markup=False)

        yield advance


def count(number: int, noun: str) -> str:
    """A number with its noun in the right form.

    count(1, "search") == "1 search"; count(2, "search") == "2 searches"
    """
    return f"{number} {inflect(number, noun)}"


def inflect(number: float, noun: str) -> str:
    """The noun in the form that goes with a number.

    inflect(1, "search") == "search"; inflect(1.5, "search") == "searches"
    """
    plural = "es" if noun.endswith("ch") else "s"
    return noun if number == 1 else noun + plural


def format_duration(seconds: float) -> str:
    """A duration in words: "4.2 s", "41 s", "35 min", "2 h 05 min", "3 d 04 h"."""
    if round(seconds) < 120:
        return f"{shorten_number(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"
