"""Advantages of proposals by groups: HRPO, GRPO or REINFORCE++."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quaere.objectives.advantages import Advantages, grpo, hrpo, reinforce_global
from quaere.training.phases.proposals import Proposed
from quaere.training.phases.stage import check_finite, shuffled
from quaere.training.self_play.config import ProposerConfig


def proposer_advantages(
    rewards: Sequence[float], proposals: Sequence[Proposed], config: ProposerConfig, seed: int
) -> Advantages:
    """Rewards standardised by requested hops (HRPO), by document (GRPO) or over the batch (REINFORCE++)."""
    check_finite(rewards)
    options: dict[str, Any] = {"delta": config.delta, "unbiased": config.unbiased_std}
    if config.advantage == "hrpo":
        found = hrpo(rewards, [item.hops for item in proposals], lone_group=config.lone_group, **options)
    elif config.advantage == "grpo":
        tasks = [item.episode.task for item in proposals]
        documents = {task.id: number for number, task in enumerate(tasks)}
        found = grpo(rewards, [documents[task.id] for task in tasks], lone_group=config.lone_group, **options)
    else:
        found = reinforce_global(rewards, **options)
    return shuffled(found, seed) if config.shuffle_advantages else found
