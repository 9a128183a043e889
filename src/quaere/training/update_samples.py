"""Which samples of a batch an update computes, and which batches it refuses."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from msgspec import structs

from quaere.errors import TrainingStopped
from quaere.rollout.episode import Sample
from quaere.training.learner_settings import LearnerSettings


def select_samples(samples: Sequence[Sample], settings: LearnerSettings) -> tuple[Sequence[Sample], LearnerSettings]:
    """The samples to compute, and the settings for them.

    Samples of zero advantage have no policy gradient and are skipped, unless the KL term includes them. If all are
    flat, they are computed for their metrics only, without KL term.
    """
    if settings.kl_beta and settings.kl_flat:
        return samples, settings
    if found := _with_gradient(samples):
        return found, settings
    return samples, structs.replace(settings, kl_beta=0.0)


def _with_gradient(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Samples with a non-zero advantage on a token that carries loss."""
    return [sample for sample in samples if any(map(operator.mul, sample.advantages, sample.loss_mask))]


def refuse_unusable(samples: Sequence[Sample]) -> None:
    """Raise TrainingStopped if nothing carries loss, or if an advantage or a log-prob is not finite."""
    if not any(any(sample.loss_mask) for sample in samples):
        raise TrainingStopped("no token of the batch carries loss: there is nothing to train on")
    for number, sample in enumerate(samples):
        for name, values in (("advantage", sample.advantages), ("log-prob", sample.logprobs)):
            if not all(map(math.isfinite, values)):
                raise TrainingStopped(f"a {name} of sample {number} is not finite; no weight was changed")
