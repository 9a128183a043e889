"""Statistics of the training since the last revision of the harness."""

from __future__ import annotations

import math

from msgspec import Struct, field, structs


class Statistics(Struct, frozen=True, forbid_unknown_fields=True):
    """The input of a meta-harness. Scores are on a scale from 0 to 1; None is what was not measured.

    `score_spread` is the mean, over questions with several scored reports, of the standard deviation of their scores;
    `num_scored` is the number of scored reports. Changes are relative to the previous statistics (`compare`).

        Statistics(step=10, num_scored=64, mean_reward=0.8, score_spread=0.12, share_at_ceiling=0.05)
    """

    step: int = 0
    num_scored: int = 0
    mean_reward: float = 0.0
    score_spread: float | None = 0.0
    share_at_ceiling: float = 0.0
    share_under_verified: float = 0.0
    share_invalid_rubrics: float = 0.0
    share_invalid_assessments: float = 0.0
    mean_searches: float = 0.0
    citation_validity: float | None = None
    consistency: float | None = None
    diversity: float | None = None
    entropy: float | None = None
    reward_change: float = 0.0
    citation_change: float = 0.0
    entropy_change: float = 0.0
    dimension_counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # JSON has no NaN: it would be stored as null, and the state could not be read again.
        for name, value in structs.asdict(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number, not {value}")


def compare(now: Statistics, before: Statistics | None) -> Statistics:
    """`now` with its changes since `before`; a change is 0 if there is nothing to compare with.

    compare(Statistics(mean_reward=0.75), Statistics(mean_reward=0.5)).reward_change -> 0.25
    """
    if before is None:
        return structs.replace(now, reward_change=0.0, citation_change=0.0, entropy_change=0.0)
    return structs.replace(
        now,
        reward_change=now.mean_reward - before.mean_reward,
        citation_change=_change(now.citation_validity, before.citation_validity),
        entropy_change=_change(now.entropy, before.entropy),
    )


def _change(now: float | None, before: float | None) -> float:
    return 0.0 if now is None or before is None else now - before
