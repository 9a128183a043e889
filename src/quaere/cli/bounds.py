"""Bounds that several commands put on their options."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from quaere.errors import BadInput


def check_positive(args: argparse.Namespace, names: Iterable[str]) -> None:
    """Refuse the first of these options that was given and is below 1.

    check_positive(args, ("limit", "max_rows"))    # BadInput: --max-rows must be at least 1, not 0
    """
    for name in names:
        value = getattr(args, name)
        if value is not None and value < 1:
            raise BadInput(f"--{name.replace('_', '-')} must be at least 1, not {value}")
