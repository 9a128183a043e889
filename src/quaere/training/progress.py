"""Progress of a training run, sent to a terminal, to JSON lines or to metric sinks."""

from __future__ import annotations

import math
from typing import Protocol

from msgspec import Struct


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


class PlayProgress(Struct, frozen=True):
    """Progress of the episodes that a step plays as one role; a step may play several roles in turn.

    `num_tokens` are the tokens sampled in `seconds`.

        PlayProgress(step=3, num_steps=110, phase="proposer", role="solver", num_done=120, num_all=1280,
                     num_tokens=24_360, seconds=30.0).tokens_per_s == 812.0
    """

    step: int
    num_steps: int
    phase: str
    role: str
    num_done: int
    num_all: int
    num_tokens: int
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        """Sampled tokens per second, of the finished episodes."""
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

    def progress(self, progress: PlayProgress) -> None:
        """Receive the progress within a step, after each episode."""
        ...

    def note(self, line: str) -> None:
        """Receive a line about an event: a phase started, a checkpoint was written."""
        ...

    def close(self) -> None:
        """Release resources; no more events follow."""
        ...
