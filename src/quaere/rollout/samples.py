"""From episodes to what a learner takes: tokens, which of them carry loss, and what they are worth."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from quaere.records import Episode


class Sample(Struct, frozen=True):
    """One sequence to learn from; all fields have one entry per token.

    `logprobs` are the sampler's; they and `advantages` mean something only where `loss_mask` is true.

        Sample(token_ids=(5, 7, 9), loss_mask=(False, True, True), logprobs=(0.0, -0.7, -0.1),
               advantages=(0.0, 1.2, 1.2))
    """

    token_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    advantages: tuple[float, ...]


def make_sample(episode: Episode, advantage: float, factors: Sequence[float] | None = None) -> Sample:
    """The episode as a sample, every model token worth the same advantage, or that times a factor of its own.

    Raises ValueError for an episode without tokens, which a text endpoint played.
    """
    if not episode.segments:
        raise ValueError(f"episode {episode.id} has no tokens: a text endpoint played it")
    logprobs: list[float] = []
    for segment in episode.segments:
        logprobs += segment.logprobs or (0.0,) * len(segment.token_ids)
    mask = episode.loss_mask
    worth = [advantage] * len(mask) if factors is None else [advantage * factor for factor in factors]
    advantages = tuple(value if flag else 0.0 for value, flag in zip(worth, mask, strict=True))
    return Sample(episode.token_ids, mask, tuple(logprobs), advantages)
