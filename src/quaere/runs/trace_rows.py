"""Per-token values of an episode as a row of `token_traces`: each list is an array of 32-bit numbers, little-endian.

read_trace(row) == trace for trace_row("e1", 3, trace), up to the precision of a 32-bit float
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quaere.records.token_trace import TokenTrace

TRACE_COLUMNS = "places, advantages, logprobs, entropies"


def trace_row(episode_id: str, step: int, trace: TokenTrace) -> dict[str, str | int | bytes]:
    """The row of an episode's trace."""
    return {
        "episode_id": episode_id,
        "step": step,
        "places": np.array(trace.places, dtype="<i4").tobytes(),
        "advantages": np.array(trace.advantages, dtype="<f4").tobytes(),
        "logprobs": np.array(trace.logprobs, dtype="<f4").tobytes(),
        "entropies": np.array(trace.entropies, dtype="<f4").tobytes(),
    }


def read_trace(row: Sequence[bytes]) -> TokenTrace:
    """The trace of a row with `TRACE_COLUMNS`."""
    places, *values = row
    return TokenTrace(
        tuple(np.frombuffer(places, dtype="<i4").tolist()),
        *(tuple(np.frombuffer(value, dtype="<f4").tolist()) for value in values),
    )
