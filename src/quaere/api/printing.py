"""What results are printed with: counts, durations and intervals in words, tables, JSON, and progress.

with counting("verifying", 200) as advance:
    advance("mean V +0.310")
Console().print(plain_table("claim", "V", rows=[("c1", between(interval, scale=1))]))
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import msgspec

from quaere.chat.terminal_text import printable, printable_line, shorten_number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from quaere.evaluation.intervals import Interval, SeededInterval


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


def describe_settings(settings: Mapping[str, Any]) -> list[str]:
    """Stored settings in words; those that are not set are left out.

    describe_settings({"limits": {"topk": 3}, "seed": None, "plain": True}) == ["limits: topk 3", "plain: yes"]
    """
    return [f"{name}: {_in_words(value)}" for name, value in settings.items() if value not in (None, [])]


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_in_words(part)}" for name, part in value.items() if part is not None)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_in_words, value))
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


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
    *names: str,
    rows: Iterable[Sequence[str]] = (),
    right: Collection[str] = (),
    whole: Collection[str] = (),
    filled: bool = False,
) -> Table:
    """A table without lines; columns named in `right` are right-aligned, those in `whole` are never wrapped.

    With `filled`, columns that are empty in every row are left out.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    if filled:
        columns = [column for column in zip(names, *rows, strict=True) if any(column[1:])]
        names, *rows = zip(*columns, strict=True)
    for name in names:
        how: dict[str, Any] = {"no_wrap": True} if name in whole else {"overflow": "fold"}
        table.add_column(Text(printable(name)), justify="right" if name in right else "left", **how)
    for row in rows:
        table.add_row(*cells(*row))
    return table


def command_line(line: str, style: str = "dim") -> Text:
    """A line with a command to paste, which no narrow terminal breaks; print it with `crop=False`."""
    from rich.text import Text

    return Text(printable(line), style, no_wrap=True, overflow="ignore")


def cells(*values: str) -> list[Text]:
    """Untrusted text as the cells of a table row."""
    from rich.text import Text

    return [Text(printable(value)) for value in values]


def between(interval: Interval | SeededInterval, sign: str = "", scale: float = 100, digits: int = 1) -> str:
    """Mean and interval, in percent unless `scale` is another: "31.0 [27.0, 35.0]".

    The interval of a single value is left out if it has no width, because it would suggest certainty.
    """
    values = (scale * value for value in (interval.mean, interval.low, interval.high))
    mean, low, high = (f"{value:{sign}.{digits}f}" for value in values)
    return mean if interval.num == 1 and interval.low == interval.high else f"{mean} [{low}, {high}]"


def share_table(title: str, heading: str, shares: Mapping[str, Interval]) -> Table:
    """A row per share: its name, the share with its interval, and of how many it is."""
    rows = [(name, between(share), str(share.num)) for name, share in shares.items()]
    return plain_table(title, heading, "of", rows=rows, whole=(heading, "of"))


def wide_console(num_columns: int) -> Console:
    """A console for tables: a file or pipe has no width of its own, and tables would be wrapped at 80 columns."""
    from quaere.api.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else num_columns)


def as_json(value: Any) -> str:
    """Indented JSON in ASCII, so that no character of a document reaches the terminal as itself."""
    return json.dumps(json.loads(msgspec.json.encode(value)), indent=2)  # msgspec writes NaN as null, json would not


# ------------------------------------------------------------------------------------------------------------ progress

LOG_S = 30.0
_DRAW_S = 0.1


class Progress(Protocol):
    """A receiver of progress: `done` of `total` (None if unknown); `stands` is the interim result as text."""

    def __call__(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        """Receive the progress of one part of the work."""


def no_progress(doing: str, done: int, total: int | None, stands: str = "") -> None:
    """Ignore the progress."""


@contextmanager
def counting(doing: str, total: int) -> Iterator[Callable[[str], None]]:
    """Context of work on `total` things of one kind, whose progress is shown (`show_progress`).

    Yields `advance`, which is called after each of them with the interim result as text ("mean V +0.310").
    """
    num_done = itertools.count(1)
    with show_progress() as progress:
        yield lambda stands: progress(doing, next(num_done), total, stands)


@contextmanager
def show_progress() -> Iterator[Progress]:
    """A bar on a terminal; elsewhere a line every now and then, and none at all if it does not take long."""
    if not sys.stderr.isatty():
        yield LogProgress(sys.stderr)
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
                amount = ", ".join(filter(None, (describe_count(doing, done, total), stands)))
                bar.update(task, description=doing, completed=done, amount=amount)
                shown_at = now

        yield progress


class Lull:
    """Tells when nothing was printed for half a minute, so that a log shows that work goes on, but not every part."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since_s = clock()

    def restart(self) -> None:
        """Note that something was printed."""
        self._since_s = self._clock()

    def ends(self) -> bool:
        """True if nothing was printed for half a minute; then that begins anew."""
        now = self._clock()
        if now - self._since_s < LOG_S:
            return False
        self._since_s = now
        return True


class LogProgress:
    """Says how far it is, a line every half minute: "reinforcing: 12 of 48, reward 0.41, about 7 min left"."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock, self._lull = stream, clock, Lull(clock)
        self._part, self._began_s, self._done_before = "", 0.0, 0

    def __call__(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        """Print the progress if nothing was printed for half a minute."""
        part = doing.partition(" (")[0]  # counts in parentheses change
        if part != self._part:
            self._part, self._began_s, self._done_before = part, self._clock(), done
        if self._lull.ends():
            # How long it took to do what a part was first heard of with is not known.
            num = done - self._done_before
            left_s = (self._clock() - self._began_s) / num * (total - done) if num > 0 and total else 0.0
            left = f"about {format_duration(left_s)} left" if left_s else ""
            said = ", ".join(filter(None, (describe_count(doing, done, total), stands, left)))
            print(printable_line(f"{doing}: {said}"), file=self._stream, flush=True)


def describe_count(doing: str, done: int, total: int | None) -> str:
    """How much is done; documents are read by the byte.

    describe_count("embedding", 512, 23784) == "512 of 23,784"
    describe_count("reading documents", 12_400_000, 98_000_000) == "12.4 of 98.0 MB"
    """
    from quaere.search.index_build import READING

    if doing == READING and total is not None:
        return f"{done / 1e6:.1f} of {total / 1e6:.1f} MB"
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"
