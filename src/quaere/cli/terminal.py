"""What commands say beside their output; text from elsewhere cannot act on the terminal (`chat/terminal_text.py`)."""

from __future__ import annotations

import sys

from quaere.chat.terminal_text import printable as printable
from quaere.chat.terminal_text import printable_line as printable_line


def say_line(line: str) -> None:
    """Say something beside a command's output, as errors are said."""
    print(printable_line(f"quaere: {line}"), file=sys.stderr)
