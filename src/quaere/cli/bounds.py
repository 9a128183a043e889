"""Checks of option values that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Literal

from quaere.errors import BadInput


def check_positive(args: argparse.Namespace, names: Iterable[str]) -> None:
    """Raise `BadInput` for the first of these options that was given and is below 1.

    check_positive(args, ("limit", "max_rows"))    # BadInput: --max-rows must be at least 1, not 0
    """
    for name in names:
        value = getattr(args, name)
        if value is not None and value < 1:
            raise BadInput(f"--{name.replace('_', '-')} must be at least 1, not {value}")


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
