"""What a proposal earns in a step of Dr. Zero, read from its episode."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from quaere.rewards.difficulty import ProposerReward, proposer_reward
from quaere.training.phases.proposals import Proposed
from quaere.training.self_play.config import ProposerConfig


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
