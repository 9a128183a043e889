"""The reward of an episode as a waterfall: each stored part begins where the one before it ended.

stack_rewards({"reward/total": 1.5, "reward/format": 0.5, "reward/difficulty": 1.0}) ->
[RewardBar("reward/format", 0.5, x=0.0, width=100.0), RewardBar("reward/difficulty", 1.0, x=100.0, width=200.0),
 RewardBar("reward/total", 1.5, x=0.0, width=300.0)]
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from quaere.viewer.plot import is_drawn

WIDTH = 300
TOTAL = "reward/total"
REST = "not itemised"  # weights and clipping: what the total has beyond the sum of the parts
_EXACT = 1e-6


class RewardBar(Struct, frozen=True):
    """A part of the reward and its place in a drawing of `WIDTH`.

    RewardBar("reward/format", 0.5, x=0.0, width=100.0)
    """

    name: str
    value: float
    x: float
    width: float


def stack_rewards(metrics: Mapping[str, float]) -> list[RewardBar]:
    """The bars, the total last; none if no total was stored."""
    total = metrics.get(TOTAL)
    if total is None or not is_drawn(total):
        return []
    parts = {
        name: value
        for name, value in metrics.items()
        if name.startswith("reward/") and name not in (TOTAL, "reward/mean") and is_drawn(value)
    }
    rest = total - sum(parts.values())
    if parts and abs(rest) > _EXACT * max(1.0, abs(total)):
        parts[REST] = rest
    spans, at = [], 0.0
    for name, value in parts.items():
        spans.append((name, value, at, at + value))
        at += value
    spans.append((TOTAL, total, 0.0, total))
    low = min(min(begin, end) for _, _, begin, end in spans)
    high = max(max(begin, end) for _, _, begin, end in spans)
    scale = WIDTH / ((high - low) or 1.0)
    return [
        RewardBar(name, value, round((min(begin, end) - low) * scale, 1), round(abs(end - begin) * scale, 1))
        for name, value, begin, end in spans
    ]
