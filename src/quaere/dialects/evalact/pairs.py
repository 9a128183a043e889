"""The tokens of an episode that belong to a search and to the policy's evaluation of it.

    find_pairs(episode) -> [Pair(score=9.0, spans=((212, 240), (391, 420)), turn=0)]

The environment's reply stands between the two turns and belongs to neither span.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from quaere.chat.protocol import was_searched
from quaere.records import Episode, Evaluate, Turn

PairSegment = Literal["with_think", "search_eval"]
"""The tokens of a pair: its two calls with the thoughts before them (with_think), or the calls alone (search_eval)."""

Span = tuple[int, int]


class Pair(Struct, frozen=True):
    """A search and the policy's score of it: `spans` are the tokens `[start, end)` of both turns in the episode.

    `turn` is the index of the search among the episode's turns; the evaluation is the next turn. An episode that a
    text endpoint sampled has no tokens, and its pairs have no spans.

        Pair(score=9.0, spans=((212, 240), (391, 420)), turn=0)
    """

    score: float
    spans: tuple[Span, ...]
    turn: int


def find_pairs(episode: Episode, segment: PairSegment = "with_think") -> list[Pair]:
    """Every executed search that the next turn evaluates, in order."""
    pairs = []
    for place, (turn, after) in enumerate(pairwise(episode.turns)):
        if was_searched(turn) and isinstance(after.action, Evaluate):
            spans = (_span(turn, segment), _span(after, segment)) if episode.segments else ()
            pairs.append(Pair(after.action.score, spans, place))
    return pairs


def token_factors(episode: Episode, factors: Sequence[float], segment: PairSegment = "with_think") -> list[float]:
    """One factor per token of the episode: the factor of its pair inside the pair's spans, 1 elsewhere.

    token_factors(episode, [1.5]) -> [1.0, 1.0, 1.5, 1.5, 1.0, 1.5, 1.0]
    """
    found = [1.0] * len(episode.token_ids)
    for pair, factor in zip(find_pairs(episode, segment), factors, strict=True):
        for start, end in pair.spans:
            found[start:end] = [factor] * (end - start)
    return found


def _span(turn: Turn, segment: PairSegment) -> Span:
    start = max(turn.start, turn.acts_at) if segment == "search_eval" else turn.start
    return start, turn.start + turn.num_tokens
