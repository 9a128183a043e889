"""Share of the learner's change since the start of the run that its sampler has; 1 if both are the same policy.

    measure_update(learner, samples) -> {"sampler/update_seen": 0.99, "sampler/update_size": 0.21, ...}

For the same model tokens there are three log-probs: the learner's, those of the model the run started from (the start),
and the sampler's, which come with the samples. `update_seen` is the least-squares slope, through the origin, of sampler
- start on learner - start. A mismatch between two engines is noise around that line; a sampler that lost part of the
change lies below it.

Two effects bias the slope slightly. Learner and start are computed by the same engine, whose noise s pulls the slope
towards 1/2 if the change is not larger than s: by s**2 over the mean square of learner - start. `update_noise` is at
least that, if the sampler's engine has similar noise, and the alarm allows for it. Also, the tokens were drawn from the
sampler, so its own noise favours them; that effect is of order s**2, against a change of order s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from quaere.rollout.episode import Sample
from quaere.training.role_learner import RoleLearner

MIN_TOKENS = 2000


def measure_update(learner: RoleLearner, samples: Sequence[Sample]) -> dict[str, float]:
    """The slope over the first samples with 2,000 model tokens, or over all; {} if the start model is not available.

    Call it before the learner's step: the samples come from a sampler with the weights before it.
    """
    chosen = _choose(samples)
    if not (chosen and learner.has_reference):
        return {}
    sampler = [
        logprob for sample in chosen for logprob, flag in zip(sample.logprobs, sample.loss_mask, strict=True) if flag
    ]
    return compare_update(_flat(learner.score_reference(chosen)), _flat(learner.score(chosen)), sampler)


def compare_update(start: Sequence[float], learner: Sequence[float], sampler: Sequence[float]) -> dict[str, float]:
    """Slope, size and noise of a change, from log-probs of the same tokens.

    `size` is the root mean square of learner - start. `noise` is the residual mean square over that of the change. If
    the learner has not changed there is no slope; values that are not finite are not measured.

        compare_update([0.0, 0.0], [-1.0, 2.0], [-0.5, 1.0])
        -> {"sampler/update_size": 1.58, "sampler/update_seen": 0.5, "sampler/update_noise": 0.0}
    """
    changes = [new - old for new, old in zip(learner, start, strict=True)]
    seen = [new - old for new, old in zip(sampler, start, strict=True)]
    if not all(map(math.isfinite, (*changes, *seen))):
        return {}  # the learner's step will stop with the cause
    total = math.fsum(change * change for change in changes)
    measured = {"sampler/update_size": math.sqrt(total / len(changes))}
    if not total:
        return measured
    slope = math.fsum(a * b for a, b in zip(changes, seen, strict=True)) / total
    unexplained = math.fsum((b - slope * a) ** 2 for a, b in zip(changes, seen, strict=True))
    return measured | {"sampler/update_seen": slope, "sampler/update_noise": unexplained / total}


def _choose(samples: Sequence[Sample]) -> list[Sample]:
    chosen: list[Sample] = []
    num_tokens = 0
    for sample in samples:
        if num_tokens >= MIN_TOKENS:
            break
        if any(sample.loss_mask):
            chosen.append(sample)
            num_tokens += sum(sample.loss_mask)
    return chosen


def _flat(rows: Sequence[Sequence[float]]) -> list[float]:
    return [value for row in rows for value in row]
