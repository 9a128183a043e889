"""The tokens of an episode in rows of cells: who wrote each, whether it is trained on, its log-prob and its advantage.

read_lane(episode, None, start=0).rows[0].cells[0] == TokenCell(1, "prompt", is_trained=False, logprob=None)

Advantage, and the learner's own log-prob and entropy, are there where training stored them (`traced_episodes`).

Long episodes are read by range: a page has `NUM_TOKENS` of them, and the next page begins where it ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from quaere.records import Episode
from quaere.records.episodes import Origin, TokenTrace

ROW_TOKENS = 64
NUM_TOKENS = 16 * ROW_TOKENS
# Upper ends of the log-probs of each shade, from sure to surprised.
_SHADES = (-0.1, -0.7, -2.0, -5.0)
# Lower ends of the entropies of each shade, in nats, and of the sizes of advantages.
_ENTROPY_SHADES = (0.1, 0.5, 1.5, 3.0)
_ADVANTAGE_SHADES = (0.0, 0.25, 0.75, 1.5)


class TokenCell(Struct, frozen=True, omit_defaults=True):
    """A token; `logprob` is the sampler's, None where nothing was sampled. `shade` 0 is sure, 4 surprised.

    `advantage`, `learner_logprob` and `entropy` are of the update that trained on the token, None where not stored.
    """

    token_id: int
    origin: Origin
    is_trained: bool
    logprob: float | None
    advantage: float | None = None
    learner_logprob: float | None = None
    entropy: float | None = None

    @property
    def shade(self) -> int:
        """How surprising the token was to the sampler."""
        return 0 if self.logprob is None else sum(self.logprob < limit for limit in _SHADES)

    @property
    def entropy_shade(self) -> int:
        """How undecided the learner was: 0 to 4."""
        return 0 if self.entropy is None else sum(self.entropy > limit for limit in _ENTROPY_SHADES)

    @property
    def advantage_shade(self) -> int:
        """How large the advantage is, whatever its sign: 0 to 4."""
        return 0 if self.advantage is None else sum(abs(self.advantage) > limit for limit in _ADVANTAGE_SHADES)


class TokenRow(Struct, frozen=True):
    """Consecutive tokens from position `start` on."""

    start: int
    cells: list[TokenCell]

    @property
    def label(self) -> str:
        """The row in words: "tokens 64 to 127: 20 of the model, mean log-prob -0.41"."""
        sampled = [cell.logprob for cell in self.cells if cell.logprob is not None]
        mean = f", mean log-prob {sum(sampled) / len(sampled):.2f}" if sampled else ""
        num_model = sum(cell.origin == "model" for cell in self.cells)
        return f"tokens {self.start} to {self.start + len(self.cells) - 1}: {num_model} of the model{mean}"


class SegmentLine(Struct, frozen=True):
    """A run of tokens of one origin, summed up.

    The means are over the tokens that have the value; None if none has it.

    SegmentLine(origin="model", start=212, num_tokens=23, num_trained=23, mean_logprob=-0.4, mean_advantage=0.5)
    """

    origin: Origin
    start: int
    num_tokens: int
    num_trained: int
    mean_logprob: float | None
    mean_advantage: float | None = None
    mean_learner_logprob: float | None = None
    mean_entropy: float | None = None


class TokenLane(Struct, frozen=True):
    """Some tokens of an episode, and all its segments; `next` is where the following tokens begin, 0 at the end.

    `is_traced` is true if training stored the advantage, log-prob and entropy of its tokens.
    """

    start: int
    num_tokens: int
    next: int
    rows: list[TokenRow]
    segments: list[SegmentLine]
    is_traced: bool


def read_lane(episode: Episode, trace: TokenTrace | None, start: int) -> TokenLane:
    """The tokens from `start` on, rounded down to a row."""
    num_tokens = sum(len(segment.token_ids) for segment in episode.segments)
    start = min(max(0, start), max(0, num_tokens - 1)) // ROW_TOKENS * ROW_TOKENS
    everything = _cells(episode, trace)
    cells = everything[start : start + NUM_TOKENS]
    rows = [TokenRow(start + at, cells[at : at + ROW_TOKENS]) for at in range(0, len(cells), ROW_TOKENS)]
    end = start + len(cells)
    return TokenLane(
        start, num_tokens, end if end < num_tokens else 0, rows, _segments(episode, everything), trace is not None
    )


def _cells(episode: Episode, trace: TokenTrace | None) -> list[TokenCell]:
    found: list[TokenCell] = []
    stored = _by_place(trace)
    nothing = (None, None, None)
    for segment in episode.segments:
        logprobs = segment.logprobs if len(segment.logprobs) == len(segment.token_ids) else ()
        for at, (token_id, is_trained) in enumerate(zip(segment.token_ids, segment.loss_mask, strict=True)):
            values = stored.get(len(found), nothing)
            found.append(TokenCell(token_id, segment.origin, is_trained, logprobs[at] if logprobs else None, *values))
    return found


def _by_place(trace: TokenTrace | None) -> dict[int, tuple[float | None, float | None, float | None]]:
    if trace is None:
        return {}
    return dict(zip(trace.places, zip(trace.advantages, trace.logprobs, trace.entropies, strict=True), strict=True))


def _segments(episode: Episode, cells: Sequence[TokenCell]) -> list[SegmentLine]:
    lines, start = [], 0
    for segment in episode.segments:
        own = cells[start : start + len(segment.token_ids)]
        lines.append(
            SegmentLine(
                segment.origin,
                start,
                len(own),
                sum(segment.loss_mask),
                _mean([cell.logprob for cell in own]),
                _mean([cell.advantage for cell in own]),
                _mean([cell.learner_logprob for cell in own]),
                _mean([cell.entropy for cell in own]),
            )
        )
        start += len(own)
    return lines


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
