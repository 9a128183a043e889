"""Per-token values of some episodes of an update, for the viewer: advantage, learner's log-prob and entropy.

    trace_tokens(step, samples)                  # before the update; the step stores what was found
    step.traces["i0-s3-q1-r0"].logprobs[0] -> -0.26

The learner scores the chosen samples once more, without gradients: no weight and no random draw depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaere.records.episodes import TokenTrace
from quaere.rollout.episode import Sample
from quaere.rollout.policy import derive_seed
from quaere.training.step import Step


def trace_tokens(step: Step, samples: Sequence[Sample]) -> None:
    """Keep the per-token values of `step.num_traced` samples, chosen by the step's seed. Call it before the update."""
    if not step.num_traced:
        return
    usable = [sample for sample in samples if sample.episode_id and any(sample.loss_mask)]
    order = sorted(usable, key=lambda sample: derive_seed(step.seed, "trace", sample.episode_id))
    chosen = order[: step.num_traced]
    for sample, scores in zip(chosen, step.learner.score_tokens(chosen), strict=True):
        places = tuple(place for place, flag in enumerate(sample.loss_mask) if flag)
        advantages = tuple(sample.advantages[place] for place in places)
        step.traces[sample.episode_id] = TokenTrace(places, advantages, *scores)
