"""What an update saw at the tokens of an episode."""

from __future__ import annotations

from msgspec import Struct


class TokenTrace(Struct, frozen=True):
    """Advantage of each token that an update trained on, with the learner's log-prob and entropy before the update.

    `places` are positions in the episode's tokens. An episode has one only if training was asked to store it.

        TokenTrace(places=(212, 213), advantages=(0.5, 0.5), logprobs=(-0.26, -1.1), entropies=(0.8, 1.9))
    """

    places: tuple[int, ...]
    advantages: tuple[float, ...]
    logprobs: tuple[float, ...]
    entropies: tuple[float, ...]
