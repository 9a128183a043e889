"""What was learned as one page."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

from quaere.disk import write_file

if TYPE_CHECKING:
    from quaere.api.learning import Learned


def write_page(learned: Learned, path: Path) -> None:
    """Write the page, which needs no other file."""
    gain = learned.gain
    said = f"{learned.plan.model}: {100 * gain.mean:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]"
    write_file(path, f"<!doctype html><title>Learned</title><p>{html.escape(said)}</p>\n")
