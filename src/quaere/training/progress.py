"""How a training run tells the world where it stands: to a terminal, to lines of JSON, to TensorBoard."""

from __future__ import annotations

import math
from typing import Protocol

from msgspec import Struct


class StepReport(Struct, frozen=True):
    """A step that was taken. `step` counts over the whole run, `phase_step` within the phase; both from 1.

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
    """How far the episodes are that a step is playing as one role; a step may play as several, one after another.

    `num_tokens` are those that the role has sampled in `seconds`.

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
        """Sampled tokens a second, of the episodes that are done."""
        return self.num_tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float:
        """How long the others will take at this pace."""
        return self.seconds / self.num_done * (self.num_all - self.num_done) if self.num_done else math.inf


class Reporter(Protocol):
    """Somebody who is told."""

    def step(self, report: StepReport) -> None:
        """A step was taken."""
        ...

    def progress(self, progress: PlayProgress) -> None:
        """Another episode of a step is done."""
        ...

    def note(self, line: str) -> None:
        """Something worth a line happened: a phase began, a checkpoint was written."""
        ...

    def close(self) -> None:
        """There will be nothing more to tell."""
        ...
