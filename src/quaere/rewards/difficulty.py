"""Difficulty reward of a proposer: highest for questions that are hard but solvable.

A question is attempted n times; k of the attempts are right. Dr. Zero pays most for exactly one right attempt and
nothing if all or none are right (Eq. 4); its ablation compares with a parabola that peaks at one half.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from quaere.rewards.format import FormatScore

DifficultyShape = Literal["single", "parabola"]

FORMAT_WEIGHT = 0.5


def difficulty_reward(num_right: int, num_attempts: int) -> float:
    """(n - k) / (n - 1) if some but not all attempts are right, else 0 (Dr. Zero, Eq. 4).

    difficulty_reward(1, 5) -> 1.0
    difficulty_reward(3, 5) -> 0.5
    difficulty_reward(5, 5) -> 0.0
    """
    _check(num_right, num_attempts)
    if num_right in (0, num_attempts):
        return 0.0
    return (num_attempts - num_right) / (num_attempts - 1)


def parabola_reward(num_right: int, num_attempts: int) -> float:
    """4 p (1 - p) with p = k / n: highest if half of the attempts are right, 0 if all or none are.

    Dr. Zero's ablation states the peak but no formula; this is the parabola with values in [0, 1].

        parabola_reward(2, 4) -> 1.0
        parabola_reward(1, 4) -> 0.75
    """
    _check(num_right, num_attempts)
    pass_rate = num_right / num_attempts
    return 4 * pass_rate * (1 - pass_rate)


class ProposerReward(Struct, frozen=True):
    """A proposer's reward and its parts, which add up to `total`.

    ProposerReward(format=0.4375, difficulty=0.75, total=1.1875)
    """

    format: float
    difficulty: float
    total: float


def proposer_reward(
    score: FormatScore,
    num_right: int,
    num_attempts: int,
    *,
    shape: DifficultyShape = "single",
    format_weight: float = FORMAT_WEIGHT,
) -> ProposerReward:
    """Difficulty reward plus half the format score (Dr. Zero, Eq. 4). An invalid proposal gets its format part only.

    `shape="parabola"` and `format_weight=0` are two of Dr. Zero's ablations.

        proposer_reward(FormatScore(1.0, 1.0, 0.5, True, total=0.875), num_right=2, num_attempts=5)
        -> ProposerReward(format=0.4375, difficulty=0.75, total=1.1875)
    """
    if shape not in ("single", "parabola"):
        raise ValueError(f"shape must be 'single' or 'parabola', not {shape!r}")
    pay = difficulty_reward if shape == "single" else parabola_reward
    earned = pay(num_right, num_attempts)
    difficulty = earned if score.valid else 0.0
    kept = format_weight * score.total
    return ProposerReward(format=kept, difficulty=difficulty, total=kept + difficulty)


def _check(num_right: int, num_attempts: int) -> None:
    if num_attempts < 2:
        raise ValueError(f"the difficulty reward needs at least 2 attempts (num_attempts), not {num_attempts}")
    if not 0 <= num_right <= num_attempts:
        raise ValueError(f"num_right must be from 0 to num_attempts ({num_attempts}), not {num_right}")
