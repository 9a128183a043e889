"""Optional sinks for a training run's metrics: TensorBoard, Weights & Biases and Trackio.

    writers = open_writers(["tensorboard"], Path("runs/evolve-20250301-101500"))
    writers[0].step(report)                       # tensorboard --logdir runs/evolve-20250301-101500/tensorboard

The run's own store has everything that is written here; losing a sink loses no data.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from quaere.errors import BadInput, ExtraMissing
from quaere.training.progress import Reporter, StepProgress, StepReport

if TYPE_CHECKING:
    from quaere.runs.reader import RunReader

_MODULES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "trackio": "trackio"}
_NAMES = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases", "trackio": "Trackio"}
WRITERS = tuple(_MODULES)
PROJECT = "quaere"


def open_writers(names: Sequence[str], run_path: str | Path) -> list[Reporter]:
    """The writers with these names, for the run in this directory.

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
        _import_extra(_MODULES[name], name)


def find_missing(names: Sequence[str]) -> dict[str, ExtraMissing]:
    """The writers whose packages are not installed, each with the error that says how to install it."""
    missing: dict[str, ExtraMissing] = {}
    for name in names:
        try:
            _import_extra(_MODULES[name], name)
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


class TensorBoardReporter:
    """Writes TensorBoard event files into a folder.

    A run that is resumed or rolled back repeats some steps. TensorBoard discards the first attempt if a file states the
    step from which it counts, so a new file is started wherever the step number goes back.
    """

    def __init__(self, folder: Path) -> None:
        self._writer_class = _import_extra(_MODULES["tensorboard"], "tensorboard").SummaryWriter
        self._folder = folder
        self._writer: Any = None
        self._step = 0
        self._notes: list[str] = []  # notes to write with the next step

    def step(self, report: StepReport) -> None:
        """Write the step's metrics and alarms and flush them to disk."""
        if self._writer is None or report.step <= self._step:
            self._begin_file(report.step)
        self._step = report.step
        for name, value in report.metrics.items():
            self._writer.add_scalar(name, value, report.step)
        for line in report.alarms:
            self._writer.add_text("alarms", line, report.step)
        while self._notes:
            self._writer.add_text("notes", self._notes.pop(0), report.step)
        self._writer.flush()

    def progress(self, progress: StepProgress) -> None:
        """Do nothing: only whole steps are written."""

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

    def _begin_file(self, step: int) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = self._writer_class(str(self._folder), purge_step=step)


class WandbReporter:
    """Logs to Weights & Biases; nothing leaves the machine unless `WANDB_MODE` or a login allows it.

    Every process is its own W&B run, in a group named after the run, so that a resumed run stays together.
    """

    def __init__(
        self, project: str, name: str, config: Mapping[str, Any] | None = None, *, folder: Path | None = None
    ) -> None:
        wandb = _import_extra("wandb", "wandb")
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

    def progress(self, progress: StepProgress) -> None:
        """Do nothing: only whole steps are logged."""

    def note(self, line: str) -> None:
        """Do nothing: W&B has no place for notes, and the terminal shows them."""

    def close(self) -> None:
        """Upload what is left and finish the W&B run."""
        self._run.finish()


class TrackioReporter:
    """Logs to Trackio's database on this machine (`trackio show --project quaere`), or where its variables say.

    A run that goes on is the same run there. Steps that it takes again after a checkpoint are logged a second time:
    Trackio forgets nothing.
    """

    def __init__(
        self, project: str, name: str, config: Mapping[str, Any] | None = None, *, goes_on: bool = False
    ) -> None:
        self._trackio = _import_extra("trackio", "trackio")
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

    def progress(self, progress: StepProgress) -> None:
        """A curve has a point a step."""

    def note(self, line: str) -> None:
        """Trackio has no place for a line; the terminal has shown it."""

    def close(self) -> None:
        """Hand over what is left."""
        with redirect_stdout(sys.stderr):
            self._trackio.finish()


def replay_steps(run: RunReader, reporter: Reporter) -> int:
    """Tell a reporter every step of a run that is over, and return how many there are."""
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


def _import_extra(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        said = f"writing to {_NAMES[extra]} needs {extra}"
        raise ExtraMissing(said, extra=extra) from error
