"""Per-token values of an episode as a row of `token_traces`: each list is an array of 32-bit numbers, little-endian.

read_trace(row) == trace for trace_row("e1", 3, trace), up to the precision of a 32-bit float
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from quaere.records.token_trace import TokenTrace

TRACE_COLUMNS = "places, advantages, logprobs, entropies"


def trace_row(episode_id: str, step: int, trace: TokenTrace) -> dict[str, str | int | bytes]:
    """The row of an episode's trace."""
    return {
        "episode_id": episode_id,
        "step": step,
        "places": _pack("i", trace.places),
        "advantages": _pack("f", trace.advantages),
        "logprobs": _pack("f", trace.logprobs),
        "entropies": _pack("f", trace.entropies),
    }


def read_trace(row: Sequence[bytes]) -> TokenTrace:
    """The trace of a row with `TRACE_COLUMNS`."""
    places, *values = row
    return TokenTrace(_unpack("i", places), *(_unpack("f", value) for value in values))


def _pack(kind: str, values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}{kind}", *values)


def _unpack(kind: str, packed: bytes) -> tuple[Any, ...]:
    return struct.unpack(f"<{len(packed) // 4}{kind}", packed)
