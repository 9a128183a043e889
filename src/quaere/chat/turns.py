"""What happened in a turn, as several dialects need to know it."""

from __future__ import annotations

from quaere.records import Search, Turn


def was_searched(turn: Turn) -> bool:
    """Was it a search whose results the policy was shown? One that found nothing counts: its one result is empty."""
    return isinstance(turn.action, Search) and bool(turn.results) and turn.failure is None
