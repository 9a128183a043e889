"""The check after `quaere warmup RECIPE --also RECIPE`: held-out tasks, played in each dialect."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quaere.api.warmup_settings import WarmupSettings
    from quaere.records import Episode
    from quaere.rollout.episode import Limits
    from quaere.warmup.dialect_check import Learnt
    from quaere.warmup.dialects import Dialect


def measure_dialects(
    settings: WarmupSettings,
    episodes: Sequence[Episode],
    limits: Callable[[Dialect], Limits],
    note: Callable[[str], None],
) -> dict[str, Learnt]:
    """What the model at `settings.out` makes of what `teach` held out of these episodes, in the world they are of."""
    from msgspec import structs

    from quaere.warmup.dialect_check import describe_learnt
    from quaere.warmup.imitation import split_held_out
    from quaere.warmup.lessons import build_world

    held_out, _ = split_held_out(episodes, settings.seed)
    longest = max(turn.num_tokens for episode in episodes for turn in episode.turns)
    most = max(len(episode.turns) for episode in episodes)

    def bounded(dialect: Dialect) -> Limits:
        # Longer or more turns than were demonstrated were not learnt, and sampling them could take minutes.
        usual = limits(dialect)
        allowed = {
            "turn_tokens": min(usual.turn_tokens, longest + longest // 4),
            "max_turns": min(usual.max_turns, most + 1),
        }
        return structs.replace(usual, **allowed)

    note(f"playing {len(held_out)} held-out tasks with the model that was taught")
    with tempfile.TemporaryDirectory(prefix=f".{settings.out.name}.world-", dir=settings.out.parent) as folder:
        _, index = build_world(settings.world_seed, settings.articles, Path(folder), settings.family)
        learnt = asyncio.run(_play(settings, held_out, index.path, bounded))
    for line in describe_learnt(learnt):
        note(line)
    return learnt


async def _play(
    settings: WarmupSettings, held_out: Sequence[Episode], index: Path, limits: Callable[[Dialect], Limits]
) -> dict[str, Learnt]:
    from quaere.rollout.policy import open_policy
    from quaere.search.searcher import open_searcher
    from quaere.warmup.dialect_check import open_spoken, play_held_out

    spoken = open_spoken(settings.dialects, settings.style)
    policy = open_policy(str(settings.out), device=settings.device, max_rows=settings.max_rows)
    searcher = open_searcher(str(index))
    try:
        return await play_held_out(policy, held_out, searcher, spoken, limits, concurrency=settings.max_rows)
    finally:
        await searcher.close()
        await policy.stop()
