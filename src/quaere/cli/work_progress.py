"""Progress of work in several parts, each of a known or unknown size, and of a warm-up: as lines, JSON or bars.

with show_progress() as progress:
    progress("wording questions", 512, 6000)
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TextIO

from msgspec import structs

from quaere.api.printing import Progress, format_duration
from quaere.cli.terminal import interruptible
from quaere.training.progress import accept_stop

if TYPE_CHECKING:
    from quaere.warmup.imitation import TeachingStep


LOG_S = 30.0
_DRAW_S = 0.1


def describe_count(doing: str, done: int, total: int | None) -> str:
    """How much is done; documents are read by the byte.

    describe_count("embedding", 512, 23784) == "512 of 23,784"
    describe_count("reading documents", 12_400_000, 98_000_000) == "12.4 of 98.0 MB"
    """
    from quaere.search.index import READING

    if doing == READING and total is not None:
        return f"{done / 1e6:.1f} of {total / 1e6:.1f} MB"
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"


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
    """Says how far it is, a line every half minute: "reading documents: 12.4 of 98.0 MB"."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self.lull = Lull(clock)

    def __call__(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        """Print the progress if nothing was printed for half a minute."""
        if self.lull.ends():
            said = ", ".join(filter(None, (describe_count(doing, done, total), stands)))
            print(f"{doing}: {said}", file=self._stream, flush=True)


# -------------------------------------------------------------------------------------------------------------- warm-up


def open_display(as_json: bool) -> _Display:
    """The display: JSON if asked for, else a bar or lines."""
    return _JsonDisplay() if as_json else _Display()


class _Display:
    """Progress on stderr: a bar on a terminal, with notes above it; elsewhere plain lines."""

    def __init__(self) -> None:
        self._taken_s: list[float] = []
        self._held = ExitStack()
        self._is_live = sys.stderr.isatty()

    def __enter__(self) -> _Display:
        self._show = self._held.enter_context(show_progress())
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def note(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def progress(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        self._show(doing, done, total, stands)

    def step(self, step: TeachingStep) -> None:
        loss, pace = f"loss {step.loss:.3f}", f"{step.tokens_per_s:.0f} tok/s"
        if self._is_live:
            self.progress("teaching", step.step, step.num_steps, f"{loss}, {pace}")
            return
        self._taken_s.append(step.num_tokens / step.tokens_per_s)
        left_s = sum(self._taken_s) / len(self._taken_s) * (step.num_steps - step.step)
        left = f" · about {format_duration(left_s)} left" if left_s else ""
        self.note(f"step {step.step}/{step.num_steps} · {loss} · {pace}{left}")

    @contextmanager
    def teaching(self) -> Iterator[None]:
        """Context in which the first Ctrl-C ends the teaching after a step, with a model to save."""
        step = "the step under way, whose model is then saved"
        with accept_stop() as stop, interruptible("no model is written", after=step, ask=stop):
            yield


class _JsonDisplay(_Display):
    """Progress as lines of JSON on stdout: {"event": "step", "step": 3, "loss": 1.62, ...}."""

    def __enter__(self) -> _Display:
        self._lull = Lull(time.monotonic)
        return self

    def note(self, line: str) -> None:
        print(json.dumps({"event": "note", "line": line}), flush=True)

    def progress(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        if self._lull.ends():
            told = {"event": "progress", "doing": doing, "done": done, "total": total, "stands": stands}
            print(json.dumps(told), flush=True)

    def step(self, step: TeachingStep) -> None:
        print(json.dumps({"event": "step", **structs.asdict(step)}), flush=True)
