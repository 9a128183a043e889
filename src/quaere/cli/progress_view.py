"""Reporters that show a training run to a person, a log file or a program.

    reporter = open_reporter(json=False)    # a live display on a terminal, else a line per step
    reporter.step(report)
    reporter.close()

Lines for people go to stderr; lines of JSON to stdout.
"""

import json as jsonlib
import math
import sys
import time
from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import Any, TextIO

from msgspec import Struct, structs
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from quaere.api.printing import Lull, format_duration
from quaere.chat.terminal_text import shorten_number
from quaere.cli.terminal import printable
from quaere.training.progress import Reporter, StepProgress, StepReport, describe_figures

BARS = "▁▂▃▄▅▆▇█"
_NUM_REWARDS = 40
_NUM_ALARMS = 3


def open_reporter(json: bool = False, stream: TextIO | None = None) -> Reporter:
    """The reporter for this stream: JSON if asked for, a live display on a terminal, else plain lines."""
    if json:
        return _JsonReporter(stream or sys.stdout)
    stream = stream or sys.stderr
    console = Console(file=stream, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return _LiveReporter(console)
    return _PlainReporter(stream)


class _LineReporter:
    """A reporter that writes lines, and flushes each, so that the reader of a pipe is not a step behind."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._pace = Pace()
        self._lull = Lull(clock)

    def close(self) -> None:
        """Does nothing: every line is flushed when it is written."""

    def _put(self, line: str) -> None:
        self._lull.restart()
        print(line, file=self._stream, flush=True)


class _JsonReporter(_LineReporter):
    """One JSON object per line: {"event": "step", "step": 3, ..., "eta_s": 2100.0} or {"event": "note", ...}."""

    def progress(self, progress: StepProgress) -> None:
        if self._lull.ends():
            left = progress.seconds_left if math.isfinite(progress.seconds_left) else None
            self._tell("progress", **structs.asdict(progress), eta_s=left)

    def step(self, report: StepReport) -> None:
        estimate, fields = self._pace.add(report), structs.asdict(report)
        # JSON has no NaN: values that are not finite become null.
        fields["metrics"] = {name: value if math.isfinite(value) else None for name, value in report.metrics.items()}
        self._tell("step", **fields, eta_s=estimate.seconds if estimate else None)

    def note(self, line: str) -> None:
        self._tell("note", line=line)

    def _tell(self, event: str, **fields: Any) -> None:
        self._put(jsonlib.dumps({"event": event, **fields}, allow_nan=False))


class _PlainReporter(_LineReporter):
    """One line per step, for logs.

    proposer 3/50 · iteration 1 · reward 0.41 · passes 0.22 · entropy 0.81 · 812 tok/s · 41 s/step · about 35 min left
    """

    def progress(self, progress: StepProgress) -> None:
        if self._lull.ends():
            self.note(f"step {progress.step}/{progress.num_steps} · {describe_progress(progress)}")

    def step(self, report: StepReport) -> None:
        self.note(" · ".join([str(report), *describe_left(self._pace.add(report))]))
        for alarm in report.alarms:
            self.note(f"alarm: {alarm}")

    def note(self, line: str) -> None:
        self._put(printable(line))


class _LiveReporter:
    """A display at the bottom of a terminal; notes scroll above it.

    The last alarms stay below it in red. It starts with the first report and leaves its last state on the screen.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._pace = Pace()
        # A thread of rich reads these while they are set, so each is replaced as a whole and never changed in place.
        self._report: StepReport | None = None
        self._estimate: Estimate | None = None
        self._rewards: tuple[float, ...] = ()
        self._alarms: tuple[str, ...] = ()
        self._progress: StepProgress | None = None
        self._told_s = clock()
        # Redirected standard output must reach its file; output to the same terminal would break the display, so it is
        # printed above it.
        self._live = Live(
            console=console, get_renderable=self.render, refresh_per_second=2, redirect_stdout=sys.stdout.isatty()
        )

    def step(self, report: StepReport) -> None:
        self._live.start()
        last, reward = self._report, report.metrics.get("reward/mean", math.nan)
        is_same_phase = last is not None and (last.iteration, last.phase) == (report.iteration, report.phase)
        self._rewards = ((*self._rewards, reward) if is_same_phase else (reward,))[-_NUM_REWARDS:]
        self._alarms = (*self._alarms, *(f"step {report.step}: {alarm}" for alarm in report.alarms))[-_NUM_ALARMS:]
        self._estimate, self._report, self._told_s = self._pace.add(report), report, self._clock()
        self._progress = None
        self._live.refresh()

    def progress(self, progress: StepProgress) -> None:
        self._live.start()
        self._progress = progress  # drawn with the next refresh

    def note(self, line: str) -> None:
        self._live.start()
        self._console.print(Text(printable(line), style="dim"))

    def close(self) -> None:
        self._progress = None
        self._live.stop()

    def render(self) -> RenderableType:
        waited_s = max(0.0, self._clock() - self._told_s)
        report = self._report
        progress, waited = self._progress, format_duration(waited_s)
        doing = [describe_progress(progress)] if progress else []
        if report is None:
            return Text(" · ".join(["the first step is under way", *doing, waited]), style="dim")
        left = describe_left(self._estimate, waited_s)
        columns = Column(no_wrap=True), Column(ratio=1), Column(no_wrap=True)
        bars = Table.grid(*columns, padding=(0, 2), expand=True)
        bars.add_row(
            "run", _bar(report.step, report.num_steps), " · ".join([f"{report.step}/{report.num_steps}", *left])
        )
        place = f"{report.phase_step}/{report.num_phase_steps} · iteration {report.iteration + 1}"
        bars.add_row(printable(report.phase), _bar(report.phase_step, report.num_phase_steps), place)
        figures = Text(" · ".join(describe_figures(report)))
        if self._console.encoding.startswith("utf"):
            figures.append(f"  {draw_sparkline(self._rewards)}", style="dim")
        alarms = [Text(printable(alarm), style="red") for alarm in self._alarms]
        under_way = [Text(" · ".join(["the next step is under way", *doing, waited]), style="dim")] if doing else []
        return Group(bars, figures, *under_way, *alarms)


def _bar(num_done: int, num_all: int) -> ProgressBar:
    # rich's default colours include a red that would look like an alarm.
    return ProgressBar(total=max(1, num_all), completed=num_done, complete_style="cyan", finished_style="green")


# ------------------------------------------------------------------------------------------------------- remaining time


class Estimate(Struct, frozen=True):
    """The remaining time of a run; `rough` while it has phases whose step time is unknown.

    Estimate(seconds=2100.0, rough=True)
    """

    seconds: float
    rough: bool


class Pace:
    """Step times of each phase and the order of phases, learnt from the steps so far."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}
        self._sizes: dict[str, int] = {}
        self._next: dict[str, str] = {}
        self._last: StepReport | None = None

    def add(self, report: StepReport) -> Estimate | None:
        """Record a step; the remaining time, or None if no step time is known yet."""
        seconds = report.metrics.get("step/seconds", math.nan)
        if math.isfinite(seconds):
            self._seconds.setdefault(report.phase, []).append(seconds)
        self._sizes[report.phase] = max(1, report.num_phase_steps)
        last, self._last = self._last, report
        # Only forwards: a rollback to a checkpoint does not show the order of phases.
        if last and last.step < report.step and (last.iteration, last.phase) != (report.iteration, report.phase):
            self._next[last.phase] = report.phase
        return self._estimate(report)

    def _estimate(self, report: StepReport) -> Estimate | None:
        """Sum the times of the remaining steps, phase by phase, as far as their order is known."""
        paces = {phase: median(seconds) for phase, seconds in self._seconds.items()}
        if not paces:
            return None
        typical = mean(paces.values())
        num_left = max(0, report.num_steps - report.step)
        phase, size = report.phase, report.num_phase_steps - report.phase_step
        total, rough = 0.0, False
        while num_left > 0:
            num_steps = min(max(0, size), num_left)
            total += num_steps * paces.get(phase, typical)
            rough |= num_steps > 0 and phase not in paces
            num_left -= num_steps
            if num_left and phase not in self._next:
                return Estimate(total + num_left * typical, rough=True)
            phase = self._next.get(phase, phase)
            size = self._sizes[phase]
        return Estimate(total, rough)


# ---------------------------------------------------------------------------------------------------------- formatting


def describe_progress(progress: StepProgress) -> str:
    """What a step is doing, and how far that is.

    describe_progress(progress) -> "playing solver: 120/1280 episodes · 812 tok/s · 5 min left"
    """
    if progress.part == "saving":
        return "saving the checkpoint"
    counted = "episodes" if progress.part == "playing" else "micro-batches"
    said = [f"{progress.part} {progress.role}: {progress.num_done}/{progress.num_all} {counted}"]
    said += [f"{shorten_number(progress.tokens_per_s)} tok/s"] if progress.tokens_per_s else []
    left = progress.seconds_left
    said += [f"{format_duration(left)} left"] if 0 < left < math.inf else []
    return " · ".join(said)


def describe_left(estimate: Estimate | None, waited_s: float = 0.0) -> list[str]:
    """The remaining time, `waited_s` after it was estimated; [] if it is unknown or has passed.

    describe_left(Estimate(seconds=2100.0, rough=True)) -> ["about 35 min left"]
    """
    if estimate is None or estimate.seconds <= waited_s:
        return []
    about = "about " if estimate.rough else ""
    return [f"{about}{format_duration(estimate.seconds - waited_s)} left"]


def draw_sparkline(values: Sequence[float]) -> str:
    """A sparkline of values, scaled to their range; a gap for values that are not finite.

    draw_sparkline([0.1, 0.2, 0.4]) -> "▁▃█"
    """
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return ""
    heights = (bar_height(value, min(known), max(known), len(BARS)) for value in values)
    return "".join(f" {BARS}"[height] for height in heights)


def bar_height(value: float, low: float, high: float, most: int) -> int:
    """The height of a bar: 1 for the lowest value, `most` for the highest, 0 for one that is not finite."""
    return 1 + round((value - low) / ((high - low) or 1.0) * (most - 1)) if math.isfinite(value) else 0
