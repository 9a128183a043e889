"""Progress of a warm-up as plain lines, as JSON, or as bars on a terminal.

with open_display(as_json=False) as display:
    display.note("teaching smollm2-135m on cpu")
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from quaere.cli.interrupt import interruptible
from quaere.cli.work_progress import LogProgress
from quaere.training.progress import accept_stop

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import TaskID

    from quaere.warmup.imitation import TeachingStep


def open_display(as_json: bool) -> Display:
    """The display: JSON if asked for, bars if stderr is a terminal, else lines."""
    if as_json:
        return _JsonDisplay()
    return _LiveDisplay() if sys.stderr.isatty() else Display()


class Display:
    """Progress as plain lines on stderr."""

    def __init__(self) -> None:
        self._taken_s: list[float] = []
        self._log = LogProgress(sys.stderr)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the display."""

    def note(self, line: str) -> None:
        """Print a line of text."""
        print(line, file=sys.stderr, flush=True)

    def progress(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        """A part of the work is further than before: a line every half minute."""
        self._log(doing, done, total, stands)

    def step(self, step: TeachingStep) -> None:
        """A step was taken."""
        from quaere.api.counts import format_duration

        self._taken_s.append(step.num_tokens / step.tokens_per_s)
        left_s = sum(self._taken_s) / len(self._taken_s) * (step.num_steps - step.step)
        left = f" · about {format_duration(left_s)} left" if left_s else ""
        self.note(f"step {step.step}/{step.num_steps} · loss {step.loss:.3f} · {step.tokens_per_s:.0f} tok/s{left}")

    @contextmanager
    def teaching(self) -> Iterator[None]:
        """Context in which the first Ctrl-C ends the teaching after a step, with a model to save."""
        step = "the step under way, whose model is then saved"
        with accept_stop() as stop, interruptible("no model is written", after=step, ask=stop):
            yield


class _JsonDisplay(Display):
    """Progress as lines of JSON on stdout: {"event": "step", "step": 3, "loss": 1.62, ...}."""

    def note(self, line: str) -> None:
        print(json.dumps({"event": "note", "line": line}), flush=True)

    def progress(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        if self._log.is_due():
            told = {"event": "progress", "doing": doing, "done": done, "total": total, "stands": stands}
            print(json.dumps(told), flush=True)

    def step(self, step: TeachingStep) -> None:
        from msgspec import structs

        print(json.dumps({"event": "step", **structs.asdict(step)}), flush=True)


class _LiveDisplay(Display):
    """Progress as bars on a terminal; notes scroll above them."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True, highlight=False))
        self._doing = ""
        self._bar: TaskID | None = None

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def note(self, line: str) -> None:
        self._progress.console.print(line, style="dim", markup=False)

    def progress(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        if doing != self._doing:  # one bar at a time: writing and checking questions has a dozen parts
            self._doing = doing
            if self._bar is not None:
                self._progress.update(self._bar, visible=False)
            self._bar = self._progress.add_task(doing, total=total)
        assert self._bar is not None
        self._progress.update(self._bar, completed=done, description=f"{doing} ({stands})" if stands else doing)

    def step(self, step: TeachingStep) -> None:
        figures = f"loss {step.loss:.3f}, {step.tokens_per_s:.0f} tok/s"
        self.progress("teaching", step.step, step.num_steps, figures)
