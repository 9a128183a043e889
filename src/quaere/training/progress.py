"""Progress of a training run: its events, the sinks that record them, and the request to stop it.

    writers = open_writers(["tensorboard"], Path("runs/evolve-20250301-101500"))
    writers[0].step(report)                       # tensorboard --logdir runs/evolve-20250301-101500/tensorboard

    with accept_stop() as stop:
        signal.signal(signal.SIGUSR1, lambda number, frame: stop())
        asyncio.run(recipe.train(config, store, reporter))    # KeyboardInterrupt, after the step and its checkpoint

The run's own store has everything that a sink records; losing a sink loses no data.
"""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from contextvars import ContextVar
from netrc import NetrcParseError, netrc
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from quaere.chat.terminal_text import shorten_number
from quaere.errors import BadInput, ExtraMissing, import_extra

if TYPE_CHECKING:
    from quaere.runs.reader import RunReader


class StepReport(Struct, frozen=True):
    """A finished step. `step` counts over the whole run, `phase_step` within the phase; both start at 1.

    StepReport(step=3, num_steps=110, iteration=0, phase="proposer", phase_step=3, num_phase_steps=50,
               metrics={"reward/mean": 0.4}, alarms=())
    """

    step: int
    num_steps: int
    iteration: int
    phase: str
    phase_step: int
    num_phase_steps: int
    metrics: dict[str, float]
    alarms: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line for a log: "proposer 3/50 · iteration 1 · reward 0.41 · entropy 0.81"."""
        where = (f"{self.phase} {self.phase_step}/{self.num_phase_steps}", f"iteration {self.iteration + 1}")
        return " · ".join([*where, *describe_figures(self)])


Part = Literal["playing", "learning", "saving"]
"""What a step is doing: sampling episodes, updating weights, or writing a checkpoint."""


class StepProgress(Struct, frozen=True):
    """Progress of the current part of a step; a step may play several roles in turn.

    `num_done` of `num_all` counts episodes while playing and micro-batches while learning; saving has no count.
    `num_tokens` are the tokens sampled in `seconds`.

        StepProgress(step=3, num_steps=110, phase="proposer", part="playing", role="solver", num_done=120, num_all=1280,
                     num_tokens=24_360, seconds=30.0).tokens_per_s == 812.0
    """

    step: int
    num_steps: int
    phase: str
    part: Part
    role: str
    num_done: int = 0
    num_all: int = 0
    num_tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        """Sampled tokens per second, of the finished turns."""
        return self.num_tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float:
        """Estimated time for the remaining episodes."""
        return self.seconds / self.num_done * (self.num_all - self.num_done) if self.num_done else math.inf


class Reporter(Protocol):
    """A receiver of progress events."""

    def step(self, report: StepReport) -> None:
        """Receive a finished step."""

    def progress(self, progress: StepProgress) -> None:
        """Receive the progress within a step: after each turn, episode and micro-batch, and as a part begins."""

    def note(self, line: str) -> None:
        """Receive a line about an event: a phase started, a checkpoint was written."""

    def close(self) -> None:
        """Release resources; no more events follow."""


class Reporters:
    """A reporter that forwards everything to several reporters.

    Reporters([LiveReporter(console), board])
    """

    def __init__(self, reporters: Iterable[Reporter]) -> None:
        self._reporters = tuple(reporters)

    def step(self, report: StepReport) -> None:
        """Forward a finished step to all reporters."""
        for reporter in self._reporters:
            reporter.step(report)

    def progress(self, progress: StepProgress) -> None:
        """Forward the progress within a step to all reporters."""
        for reporter in self._reporters:
            reporter.progress(progress)

    def note(self, line: str) -> None:
        """Forward a line of text to all reporters."""
        for reporter in self._reporters:
            reporter.note(line)

    def close(self) -> None:
        """Close all reporters, even if one of them fails."""
        with ExitStack() as stack:
            for reporter in reversed(self._reporters):
                stack.callback(reporter.close)


def describe_figures(report: StepReport) -> list[str]:
    """The main metrics of a step as phrases; metrics it does not have are left out.

    describe_figures(report) -> ["reward 0.41", "passes 0.22", "valid 0.93", "entropy 0.81", "812 tok/s", "41 s/step"]
    """
    shown = (
        ("reward/mean", "reward {:.2f}"),
        ("passes/mean", "passes {:.2f}"),
        ("validation/exact_match", "validation {:.2f}"),
        ("proposer/valid", "valid {:.2f}"),
        ("report/finished", "finished {:.2f}"),
        ("consistency/mean", "agreement {:.2f}"),
        ("check/grounded", "cited {:.2f}"),
        ("policy/entropy", "entropy {:.2f}"),
        (f"{report.phase}/tokens_per_s", "{} tok/s"),
        ("step/seconds", "{} s/step"),
    )
    found = ((report.metrics.get(name, math.nan), form) for name, form in shown)
    finite = ((value, form) for value, form in found if math.isfinite(value))
    return [form.format(shorten_number(value) if "{}" in form else value) for value, form in finite]


# ------------------------------------------------------------------------------- TensorBoard, Weights & Biases, Trackio


_MODULES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "trackio": "trackio"}
_NAMES = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases", "trackio": "Trackio"}
WRITERS = tuple(_MODULES)
PROJECT = "quaere"


def open_writers(names: Sequence[str], run_path: str | Path) -> list[Reporter]:
    """Reporters to these services (tensorboard, wandb, trackio), for the run in this directory.

    open_writers(["tensorboard", "wandb"], "runs/evolve-20250301-101500")
    """
    check_writers(names)
    return [_open_writer(name, Path(run_path)) for name in dict.fromkeys(names)]  # without duplicate names


def check_writers(names: Sequence[str]) -> None:
    """Raise BadInput for an unknown writer and ExtraMissing for a missing package, before a run is created."""
    for name in names:
        if name not in WRITERS:
            raise BadInput(f"unknown writer {name}; the writers are {', '.join(WRITERS[:-1])} and {WRITERS[-1]}")
    for name in names:
        _import_writer(name)


def find_missing(names: Sequence[str]) -> dict[str, ExtraMissing]:
    """The writers whose packages are not installed, each with the error that says how to install it."""
    missing: dict[str, ExtraMissing] = {}
    for name in names:
        try:
            _import_writer(name)
        except ExtraMissing as error:
            missing[name] = error
    return missing


def _open_writer(name: str, run_path: Path) -> Reporter:
    if name == "tensorboard":
        return TensorBoardReporter(run_path / "tensorboard")
    from quaere.runs import Run  # here, because the command line lists WRITERS, which must cost nothing

    with Run.open(run_path) as run:
        if name == "trackio":
            return TrackioReporter(PROJECT, run.info.id, run.info.settings, goes_on=run.last_step() > 0)
        return WandbReporter(PROJECT, run.info.id, run.info.settings, folder=run_path)


class _Sink:
    """A reporter that records finished steps only and ignores notes and progress, which the terminal shows."""

    def progress(self, progress: StepProgress) -> None:
        """Do nothing."""

    def note(self, line: str) -> None:
        """Do nothing."""


class TensorBoardReporter(_Sink):
    """Writes TensorBoard event files into a folder.

    A run that is resumed or rolled back repeats some steps. TensorBoard discards the first attempt if a file states the
    step from which it counts, so a new file is started wherever the step number goes back.
    """

    def __init__(self, folder: Path) -> None:
        self._writer_class = _import_writer("tensorboard").SummaryWriter
        self._folder = folder
        self._writer: Any = None
        self._step = 0
        self._notes: list[str] = []  # notes to write with the next step

    def step(self, report: StepReport) -> None:
        """Write the step's metrics and alarms and flush them to disk."""
        if self._writer is None or report.step <= self._step:
            if self._writer is not None:
                self._writer.close()
            self._writer = self._writer_class(str(self._folder), purge_step=report.step)
        self._step = report.step
        for name, value in report.metrics.items():
            self._writer.add_scalar(name, value, report.step)
        for line in report.alarms:
            self._writer.add_text("alarms", line, report.step)
        while self._notes:
            self._writer.add_text("notes", self._notes.pop(0), report.step)
        self._writer.flush()

    def note(self, line: str) -> None:
        """Store the line, to be written with the next step."""
        self._notes.append(line)

    def close(self) -> None:
        """Write the remaining notes with the last step and close the file."""
        if self._writer is None:
            return
        for line in self._notes:
            self._writer.add_text("notes", line, self._step)
        self._writer.close()
        self._writer = None


class WandbReporter(_Sink):
    """Logs to Weights & Biases; nothing leaves the machine unless `WANDB_MODE` or a login allows it.

    Every process is its own W&B run, in a group named after the run, so that a resumed run stays together.
    """

    def __init__(
        self, project: str, name: str, config: Mapping[str, Any] | None = None, *, folder: Path | None = None
    ) -> None:
        wandb = _import_writer("wandb")
        self._run = wandb.init(
            project=project,
            name=name,
            group=name,
            config=dict(config or {}),
            dir=None if folder is None else str(folder),
            mode=_wandb_mode(),
            settings=wandb.Settings(console="off"),  # capturing the console would break the progress display
        )
        # The step is logged as a metric: W&B's own step counter cannot go back, as a rollback does.
        self._run.define_metric("*", step_metric="run/step")

    def step(self, report: StepReport) -> None:
        """Log the step's metrics, and send an alert per alarm."""
        self._run.log({**report.metrics, "run/step": report.step})
        for line in report.alarms:
            self._run.alert(title=f"step {report.step}", text=line)

    def close(self) -> None:
        """Upload what is left and finish the W&B run."""
        self._run.finish()


class TrackioReporter(_Sink):
    """Logs to Trackio, on this machine (`trackio show --project quaere`) or where its environment variables say.

    A resumed run continues the same run in Trackio. Steps repeated after a checkpoint are logged a second time,
    because Trackio cannot delete the first.
    """

    def __init__(
        self, project: str, name: str, config: Mapping[str, Any] | None = None, *, goes_on: bool = False
    ) -> None:
        self._trackio = _import_writer("trackio")
        with redirect_stdout(sys.stderr):  # stdout may be read by a program
            self._run = self._trackio.init(
                project=project,
                name=name,
                config=dict(config or {}),
                resume="allow" if goes_on else "never",  # another run may once have had this name
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def step(self, report: StepReport) -> None:
        """Log the step's metrics, and raise an alert for each alarm."""
        self._run.log(dict(report.metrics), step=report.step)
        with redirect_stdout(io.StringIO()):  # the terminal has shown it
            for line in report.alarms:
                self._run.alert(title=f"step {report.step}", text=line)

    def close(self) -> None:
        """Flush the remaining metrics and finish the Trackio run."""
        with redirect_stdout(sys.stderr):
            self._trackio.finish()


def replay_steps(run: RunReader, reporter: Reporter) -> int:
    """Send every stored step of a finished run to a reporter, and return the number of steps."""
    measured: dict[int, dict[str, float]] = {}
    for name, values in run.all_metrics().items():
        for metric in values:
            measured.setdefault(metric.step, {})[name] = metric.value
    alarms: dict[int, list[str]] = {}
    for event in run.events():
        alarms.setdefault(event.step, []).append(event.message)
    for step, metrics in sorted(measured.items()):
        iteration = int(metrics.get("run/iteration", 0))
        said = tuple(alarms.get(step, ()))
        reporter.step(StepReport(step, max(measured), iteration, "", step, max(measured), metrics, said))
    return len(measured)


def _wandb_mode() -> str:
    """`WANDB_MODE` if set, else "online" for logged-in users, else "offline"."""
    return os.environ.get("WANDB_MODE") or ("online" if _is_logged_in() else "offline")


def _is_logged_in() -> bool:
    """True if there is a key where `wandb login` stores it; asking wandb itself would open a prompt."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    try:
        return host in netrc(os.environ.get("NETRC")).hosts
    except (OSError, NetrcParseError):
        return False


def _import_writer(name: str) -> Any:
    return import_extra(_MODULES[name], f"writing to {_NAMES[name]} needs {name}", extra=name)


# -------------------------------------------------------------------------------------------------- the request to stop


# A context variable, which tasks inherit: it decouples signal handlers from the training loop.
_request: ContextVar[Event | None] = ContextVar("stop_request", default=None)


@contextmanager
def accept_stop() -> Iterator[Callable[[], None]]:
    """Context that yields a function to stop the runs started inside it; safe to call from a signal handler."""
    event = Event()
    token = _request.set(event)
    try:
        yield event.set
    finally:
        _request.reset(token)


def stop_requested() -> bool:
    """True once the function that `accept_stop` yielded has been called; always False outside its context."""
    event = _request.get()
    return event is not None and event.is_set()
