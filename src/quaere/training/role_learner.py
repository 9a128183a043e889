"""The interface of a learner: what a training run and its recipes use, wherever gradients are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from quaere.rollout.episode import Sample
from quaere.training.learner_settings import LearnerSettings


class RoleLearner(Protocol):
    """Updates of one role's weights, and their place in the learning-rate schedule."""

    settings: LearnerSettings
    on_batch: Callable[[int, int, float], None]

    @property
    def has_reference(self) -> bool:
        """True if the reference model is available."""
        ...

    def step(
        self, samples: Sequence[Sample], how: LearnerSettings | None = None, *, moments: str = ""
    ) -> dict[str, float]:
        """Make one update on these samples and return its metrics."""
        ...

    def score(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-prob of every token that carries loss, in order, per sample."""
        ...

    def score_tokens(self, samples: Sequence[Sample]) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
        """Log-prob and entropy of every token that carries loss, per sample."""
        ...

    def score_reference(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-probs like `score`, by the reference model."""
        ...

    def save_optimizer(self, folder: Path) -> None:
        """Write the optimizer's moments and the place in the schedule."""
        ...

    def load_optimizer(self, file: Path) -> None:
        """Load what `save_optimizer` wrote to a folder's `OPTIMIZER_FILE`."""
        ...
