"""Checks of option values that several commands share."""

from __future__ import annotations

import argparse
from typing import Literal

from quaere.api.options import check_positive as check_positive


def checkpoint(text: str) -> int | Literal["best", "last"]:
    """The value of `--checkpoint`: a step, `best` or `last`."""
    if text == "best":
        return "best"
    if text == "last":
        return "last"
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a step (a whole number), best or last") from None
