"""What each role earns in a step of Dr. Zero, read from its episodes; and who is compared with whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from quaere.objectives.advantages import Advantages, grpo, hrpo, reinforce_global
from quaere.recipes.drzero.config import ProposerConfig
from quaere.rewards.difficulty import ProposerReward, proposer_reward
from quaere.training.phases.proposals import Proposed
from quaere.training.phases.stage import check_finite, shuffled


class Judged(Struct, frozen=True):
    """A proposal with what the solver made of it and what it earned.

    Judged(proposed=Proposed(...), num_right=1, num_attempts=5, reward=ProposerReward(0.4375, 1.0, 1.4375))
    """

    proposed: Proposed
    num_right: int
    num_attempts: int
    reward: ProposerReward

    def measured(self) -> dict[str, float]:
        """Every part of the reward, for the store."""
        return {
            "reward/total": self.reward.total,
            "reward/format": self.reward.format,
            "reward/difficulty": self.reward.difficulty,
            **self.proposed.measured(),
            "attempts/right": float(self.num_right),
            "attempts/num": float(self.num_attempts),
        }


def judge_proposal(proposed: Proposed, rights: Sequence[float], config: ProposerConfig) -> Judged:
    """Pay a proposal (Eq. 4). One that is not valid was not tried, and earns its format part alone."""
    num_right, num_attempts = int(sum(rights)), len(rights)
    reward = proposer_reward(
        proposed.score,
        num_right,
        max(2, num_attempts),  # of an untried proposal no attempt is right, whatever their number
        shape=config.reward.shape,
        format_weight=config.reward.format_weight,
    )
    return Judged(proposed, num_right, num_attempts, reward)


def proposer_advantages(
    rewards: Sequence[float], proposals: Sequence[Proposed], config: ProposerConfig, seed: int
) -> Advantages:
    """Standardise rewards by requested hops (HRPO), by document (GRPO) or over the batch (REINFORCE++)."""
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
