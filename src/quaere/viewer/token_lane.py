"""The tokens of an episode in rows of cells: who wrote each, whether it is trained on, and its log-prob.

read_lane(episode, start=0).rows[0].cells[0] == TokenCell(token_id=1, origin="prompt", is_trained=False, logprob=None)

Long episodes are read by range: a page has `NUM_TOKENS` of them, and the next page begins where it ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from quaere.records import Episode
from quaere.records.episodes import Origin

ROW_TOKENS = 64
NUM_TOKENS = 16 * ROW_TOKENS
# Upper ends of the log-probs of each shade, from sure to surprised.
_SHADES = (-0.1, -0.7, -2.0, -5.0)


class TokenCell(Struct, frozen=True):
    """A token; `logprob` is the sampler's, None where nothing was sampled. `shade` 0 is sure, 4 surprised."""

    token_id: int
    origin: Origin
    is_trained: bool
    logprob: float | None

    @property
    def shade(self) -> int:
        """How surprising the token was to the sampler."""
        return 0 if self.logprob is None else sum(self.logprob < limit for limit in _SHADES)


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

    SegmentLine(origin="model", start=212, num_tokens=23, num_trained=23, mean_logprob=-0.4)
    """

    origin: Origin
    start: int
    num_tokens: int
    num_trained: int
    mean_logprob: float | None


class TokenLane(Struct, frozen=True):
    """Some tokens of an episode, and all its segments; `next` is where the following tokens begin, 0 at the end."""

    start: int
    num_tokens: int
    next: int
    rows: list[TokenRow]
    segments: list[SegmentLine]


def read_lane(episode: Episode, start: int) -> TokenLane:
    """The tokens from `start` on, rounded down to a row."""
    num_tokens = sum(len(segment.token_ids) for segment in episode.segments)
    start = min(max(0, start), max(0, num_tokens - 1)) // ROW_TOKENS * ROW_TOKENS
    cells = list(islice(_cells(episode), start, start + NUM_TOKENS))
    rows = [TokenRow(start + at, cells[at : at + ROW_TOKENS]) for at in range(0, len(cells), ROW_TOKENS)]
    end = start + len(cells)
    return TokenLane(start, num_tokens, end if end < num_tokens else 0, rows, _segments(episode))


def _cells(episode: Episode) -> Iterator[TokenCell]:
    for segment in episode.segments:
        logprobs = segment.logprobs if len(segment.logprobs) == len(segment.token_ids) else ()
        for at, (token_id, is_trained) in enumerate(zip(segment.token_ids, segment.loss_mask, strict=True)):
            yield TokenCell(token_id, segment.origin, is_trained, logprobs[at] if logprobs else None)


def _segments(episode: Episode) -> list[SegmentLine]:
    lines, start = [], 0
    for segment in episode.segments:
        mean = sum(segment.logprobs) / len(segment.logprobs) if segment.logprobs else None
        count = len(segment.token_ids)
        lines.append(SegmentLine(segment.origin, start, count, sum(segment.loss_mask), mean))
        start += count
    return lines
