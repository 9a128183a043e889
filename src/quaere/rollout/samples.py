"""Training samples: the tokens of an episode with loss mask, sampler log-probs and advantages."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from quaere.records import Episode


class Sample(Struct, frozen=True):
    """One training sequence; every field has one entry per token.

    `logprobs` are those of the sampler. `logprobs` and `advantages` are meaningful only where `loss_mask` is true.
    `episode_id` names the episode that it was made from, if any.

        Sample(token_ids=(5, 7, 9), loss_mask=(False, True, True), logprobs=(0.0, -0.7, -0.1),
               advantages=(0.0, 1.2, 1.2))
    """

    token_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    advantages: tuple[float, ...]
    episode_id: str = ""


def make_sample(episode: Episode, advantage: float, factors: Sequence[float] | None = None) -> Sample:
    """The episode as a training sample: each model token gets `advantage`, times its entry of `factors` if given.

    Raises ValueError for an episode of a text endpoint, which has no tokens.
    """
    if not episode.segments:
        raise ValueError(f"episode {episode.id} has no tokens: episodes of a text endpoint cannot be trained on")
    logprobs: list[float] = []
    for segment in episode.segments:
        logprobs += segment.logprobs or (0.0,) * len(segment.token_ids)
    mask = episode.loss_mask
    weighted = [advantage] * len(mask) if factors is None else [advantage * factor for factor in factors]
    advantages = tuple(value if flag else 0.0 for value, flag in zip(weighted, mask, strict=True))
    return Sample(episode.token_ids, mask, tuple(logprobs), advantages, episode.id)
