"""What results are printed with: counts, durations and intervals in words, tables, JSON, and progress.

with counting("verifying", 200) as advance:
    advance("mean V +0.310")
Console().print(plain_table("claim", "V", rows=[("c1", between(interval, scale=1))]))
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from quaere.chat.terminal_text import printable, shorten_number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from quaere.evaluation.intervals import Interval, SeededInterval

_LEAST_S, _MOST_S = 1.0, 30.0


class Progress(Protocol):
    """A receiver of progress: `done` of `total` (None if unknown); `stands` is the interim result as text."""

    def __call__(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        """Receive the progress of one part of the work."""


def no_progress(doing: str, done: int, total: int | None, stands: str = "") -> None:
    """Ignore the progress."""


@contextmanager
def counting(doing: str, total: int, quiet: Console | None = None) -> Iterator[Callable[[str], None]]:
    """A bar with the time left on a terminal; elsewhere a line after every tenth and every half minute.

    Yields `advance`, which takes the current state as text ("mean V +0.310").
    """
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = quiet or Console(stderr=True, highlight=False)
    num_done, started, said = 0, time.monotonic(), -math.inf
    columns = (TextColumn(doing), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    is_terminal = sys.stderr.isatty()
    with Progress(
        *columns, TextColumn("{task.fields[stands]}"), console=console, disable=not is_terminal, transient=True
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
                console.print(", ".join(filter(None, (f"{num_done} of {total} done", stands, left))), markup=False)

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


# -------------------------------------------------------------------------------------------------------- results


def plain_table(
    *names: str, rows: Iterable[Sequence[str]] = (), right: Collection[str] = (), whole: Collection[str] = ()
) -> Table:
    """A table without lines; columns named in `right` are right-aligned, those in `whole` are never wrapped."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        how: dict[str, Any] = {"no_wrap": True} if name in whole else {"overflow": "fold"}
        table.add_column(Text(printable(name)), justify="right" if name in right else "left", **how)
    for row in rows:
        table.add_row(*cells(*row))
    return table


def cells(*values: str) -> list[Text]:
    """Untrusted text as the cells of a table row."""
    from rich.text import Text

    return [Text(printable(value)) for value in values]


def between(interval: Interval | SeededInterval, sign: str = "", scale: float = 100, digits: int = 1) -> str:
    """Mean and interval, in percent unless `scale` is another: "31.0 [27.0, 35.0]"."""
    values = (scale * value for value in (interval.mean, interval.low, interval.high))
    mean, low, high = (f"{value:{sign}.{digits}f}" for value in values)
    return f"{mean} [{low}, {high}]"


def share_table(title: str, heading: str, shares: Mapping[str, Interval]) -> Table:
    """A row per share: its name, the share with its interval, and of how many it is."""
    rows = [(name, between(share), str(share.num)) for name, share in shares.items()]
    return plain_table(title, heading, "of", rows=rows, whole=(heading, "of"))


def wide_console(num_columns: int) -> Console:
    """A console for tables: a file or pipe has no width of its own, and tables would be wrapped at 80 columns."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else num_columns)


def as_json(value: Any) -> str:
    """Indented JSON in ASCII, so that no character of a document reaches the terminal as itself."""
    return json.dumps(json.loads(msgspec.json.encode(value)), indent=2)  # msgspec writes NaN as null, json would not
