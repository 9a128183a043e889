"""Predicates on turns, shared by several dialects."""

from __future__ import annotations

from quaere.records import Search, Turn


def was_searched(turn: Turn) -> bool:
    """True if the turn was a search whose results the policy was shown, including an empty result."""
    return isinstance(turn.action, Search) and bool(turn.results) and turn.failure is None
