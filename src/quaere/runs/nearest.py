"""Hints for unknown names: the closest known name.

nearest_hint("ask-l", ["ask-1", "demo-7"], "quaere runs list") == "did you mean ask-1? see: quaere runs list"
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def nearest_hint(name: str, known: Sequence[str], command: str) -> str:
    """The closest known name, if one is similar enough, and the command that lists all names."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}? see: {command}" if close else command
