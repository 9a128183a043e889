"""How a training run tells the world where it stands: to a terminal, to lines of JSON, to TensorBoard."""

from __future__ import annotations

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


class Reporter(Protocol):
    """Somebody who is told."""

    def step(self, report: StepReport) -> None:
        """A step was taken."""
        ...

    def note(self, line: str) -> None:
        """Something worth a line happened: a phase began, a checkpoint was written."""
        ...

    def close(self) -> None:
        """There will be nothing more to tell."""
        ...
