"""What a proposer is paid for a question that is hard and can be solved.

A question is tried n times; k of the attempts are right. Dr. Zero pays most for exactly one right attempt and nothing
when all or none are (Eq. 4); a parabola that peaks at one half is the alternative it was compared with.
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
    """4 p (1 - p) with p = k / n: highest when half the attempts are right, 0 when all or none are.

    Dr. Zero's ablation names the peak and not the formula; this is the parabola with values in [0, 1].

        parabola_reward(2, 4) -> 1.0
        parabola_reward(1, 4) -> 0.75
    """
    _check(num_right, num_attempts)
    pass_rate = num_right / num_attempts
    return 4 * pass_rate * (1 - pass_rate)


def expected_difficulty(pass_rate: float, num_attempts: int) -> float:
    """The mean of `difficulty_reward` when each attempt is right with chance p (EVE, Eq. 4 and Lemma B.1).

    phi_n(p) = n / (n - 1) * (1 - p) * (1 - (1 - p)^(n - 1))

        expected_difficulty(0.5, 2) -> 0.5
    """
    _check(0, num_attempts)
    if not 0 <= pass_rate <= 1:
        raise ValueError(f"a pass rate lies in [0, 1], not {pass_rate}")
    failing = 1 - pass_rate
    return num_attempts / (num_attempts - 1) * failing * (1 - failing ** (num_attempts - 1))


def best_pass_rate(num_attempts: int) -> float:
    """The pass rate a proposer is paid most for on average: 1 - n^(-1 / (n - 1)) (EVE, Lemma B.1).

    There the expected reward is what is left to 1. It falls with n: 0.5 for 2 attempts, about 0.331 for 5.

        best_pass_rate(2) -> 0.5
    """
    _check(0, num_attempts)
    return float(1 - num_attempts ** (-1 / (num_attempts - 1)))


class ProposerReward(Struct, frozen=True):
    """What a proposer earned and for what; the parts add up to `total`.

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
    """Difficulty plus half the format score (Dr. Zero, Eq. 4). An invalid proposal earns its format part alone.

    `shape="parabola"` and `format_weight=0` are two of Dr. Zero's ablations.

        proposer_reward(FormatScore(1.0, 1.0, 0.5, True, total=0.875), num_right=2, num_attempts=5)
        -> ProposerReward(format=0.4375, difficulty=0.75, total=1.1875)
    """
    if shape not in ("single", "parabola"):
        raise ValueError(f"shape is 'single' or 'parabola', not {shape!r}")
    pay = difficulty_reward if shape == "single" else parabola_reward
    earned = pay(num_right, num_attempts)
    difficulty = earned if score.valid else 0.0
    kept = format_weight * score.total
    return ProposerReward(format=kept, difficulty=difficulty, total=kept + difficulty)


def _check(num_right: int, num_attempts: int) -> None:
    if num_attempts < 2:
        raise ValueError(f"difficulty needs at least 2 attempts, not {num_attempts}")
    if not 0 <= num_right <= num_attempts:
        raise ValueError(f"of {num_attempts} attempts, {num_right} cannot be right")
