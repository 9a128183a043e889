"""How long the episodes of a real run were, so that a benchmark can do the same work.

read_lengths(Path("runs/evolved"))[0] == {"prompt": 412, "turns": [(57, 240), (31, 0)]}   # sampled, then said to it
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_lengths(run: Path) -> list[dict[str, Any]]:
    """Per episode: tokens of its prompt, and per turn how many it sampled and how many the environment said then."""
    from quaere.runs import Run

    found = []
    with Run.open(run) as store:
        for episode in store.episodes():
            if not episode.segments:
                continue
            turns: list[tuple[int, int]] = []
            for segment in episode.segments[1:]:
                if segment.origin == "model":
                    turns.append((len(segment.token_ids), 0))
                elif turns:
                    turns[-1] = (turns[-1][0], turns[-1][1] + len(segment.token_ids))
            if turns:
                found.append({"prompt": len(episode.segments[0].token_ids), "turns": turns})
    return found
