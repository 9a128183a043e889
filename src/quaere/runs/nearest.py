"""A hint for a name that does not exist: the one that was probably meant.

nearest_hint("ask-l", ["ask-1", "demo-7"], "quaere runs list") == "did you mean ask-1? see: quaere runs list"
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def nearest_hint(name: str, known: Sequence[str], command: str) -> str:
    """The nearest known name, where one is near, and the command that lists them all."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}? see: {command}" if close else command
