"""Bounds that several commands put on their options."""

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
        raise argparse.ArgumentTypeError(f"{text!r} is neither a step nor best nor last") from None
