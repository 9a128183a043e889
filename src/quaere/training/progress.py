"""Progress of a training run, sent to a terminal, to JSON lines or to metric sinks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Literal, Protocol

from msgspec import Struct

from quaere.chat.terminal_text import shorten_number


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
        ...

    def progress(self, progress: StepProgress) -> None:
        """Receive the progress within a step: after each turn, episode and micro-batch, and as a part begins."""
        ...

    def note(self, line: str) -> None:
        """Receive a line about an event: a phase started, a checkpoint was written."""
        ...

    def close(self) -> None:
        """Release resources; no more events follow."""
        ...


class Reporters:
    """A reporter that forwards everything to several reporters.

    Reporters([LiveReporter(console), board])
    """

    def __init__(self, reporters: Iterable[Reporter]) -> None:
        self._reporters = tuple(reporters)

    def step(self, report: StepReport) -> None:
        """Report a finished step."""
        for reporter in self._reporters:
            reporter.step(report)

    def progress(self, progress: StepProgress) -> None:
        """A part of a step is further than before."""
        for reporter in self._reporters:
            reporter.progress(progress)

    def note(self, line: str) -> None:
        """Report a line of text."""
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
