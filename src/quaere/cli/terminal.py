"""What commands say beside their output; text from elsewhere cannot act on the terminal (`chat/terminal_text.py`)."""

from __future__ import annotations

import sys
import warnings
from typing import TextIO

from quaere.chat.terminal_text import printable as printable
from quaere.chat.terminal_text import printable_line as printable_line
from quaere.errors import ServerDown, StaleIndex

_show_usual = warnings.showwarning


def say_line(line: str) -> None:
    """Print a line to stderr, in the form of errors."""
    print(printable_line(f"quaere: {line}"), file=sys.stderr)


def show_warnings() -> None:
    """Print warnings about stale indexes and lost servers as one line each, others as before."""
    warnings.showwarning = _show


def _show(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, (ServerDown, StaleIndex)):
        say_line(str(message))
    else:
        _show_usual(message, category, filename, lineno, file, line)
