"""Reward of a proposal in a step of Dr. Zero."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from quaere.rewards.difficulty import ProposerReward, proposer_reward
from quaere.training.phases.proposals import Proposed
from quaere.training.self_play.config import ProposerConfig


class Judged(Struct, frozen=True):
    """A proposal with the results of the solver's attempts and its reward.

    Judged(proposed=Proposed(...), num_right=1, num_attempts=5, reward=ProposerReward(0.4375, 1.0, 1.4375))
    """

    proposed: Proposed
    num_right: int
    num_attempts: int
    reward: ProposerReward

    def measured(self) -> dict[str, float]:
        """Every component of the reward, as metrics for the store."""
        return {
            "reward/total": self.reward.total,
            "reward/format": self.reward.format,
            "reward/difficulty": self.reward.difficulty,
            **self.proposed.measured(),
            "attempts/right": float(self.num_right),
            "attempts/num": float(self.num_attempts),
        }


def judge_proposal(proposed: Proposed, rights: Sequence[float], config: ProposerConfig) -> Judged:
    """A proposal with its reward (Eq. 4). An invalid proposal is not attempted and earns its format part alone."""
    num_right, num_attempts = int(sum(rights)), len(rights)
    reward = proposer_reward(
        proposed.score,
        num_right,
        max(2, num_attempts),  # an unattempted proposal has no right attempt; the reward needs a number of at least 2
        shape=config.reward.shape,
        format_weight=config.reward.format_weight,
    )
    return Judged(proposed, num_right, num_attempts, reward)
