"""How a training run tells the world where it stands: to a terminal, to lines of JSON, to TensorBoard."""

from __future__ import annotations

import math
from typing import Literal, Protocol

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


Part = Literal["playing", "learning", "saving"]
"""What a step is doing: sampling episodes, updating weights, or writing a checkpoint."""


class StepProgress(Struct, frozen=True):
    """How far the part of a step is that is running; a step may play as several roles, one after another.

    `num_done` of `num_all` are episodes while it plays, and micro-batches while it learns; a checkpoint has none.
    `num_tokens` are those that the role has sampled in `seconds`.

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
        """Sampled tokens a second, of the turns that are done."""
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

    def progress(self, progress: StepProgress) -> None:
        """A part of a step began, or is further than before."""
        ...

    def note(self, line: str) -> None:
        """Something worth a line happened: a phase began, a checkpoint was written."""
        ...

    def close(self) -> None:
        """There will be nothing more to tell."""
        ...
