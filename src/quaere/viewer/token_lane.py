"""The tokens of an episode, as rows of cells and summaries of its segments.

read_lane(episode, None, start=0).rows[0].label == "tokens 0 to 63: 20 of the model, mean log-prob -0.41"

Advantages and the learner's log-probs and entropies are shown if training stored them (`traced_episodes`). Of a long
episode, a page has `NUM_TOKENS` tokens; the next page continues after them.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

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
        """How surprising the token was to the sampler: 0 (likely, or not sampled) to 4."""
        return 0 if self.logprob is None else sum(self.logprob < limit for limit in _SHADES)

    @property
    def entropy_shade(self) -> int:
        """How high the learner's entropy was at this token: 0 (low, or not stored) to 4."""
        return 0 if self.entropy is None else sum(self.entropy > limit for limit in _ENTROPY_SHADES)

    @property
    def advantage_shade(self) -> int:
        """How large the absolute advantage is: 0 (zero, or not stored) to 4."""
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
    """Summary of consecutive tokens of one origin.

    The means are over the tokens that have the value; None if none has it.

    SegmentLine(origin="model", start=212, num_tokens=23, num_trained=23, mean_logprob=-0.4, mean_advantage=0.5)
    """

    origin: Origin
    start: int
    num_tokens: int
    num_trained: int
    mean_logprob: float | None
    mean_advantage: float | None
    mean_learner_logprob: float | None
    mean_entropy: float | None


class TokenLane(Struct, frozen=True):
    """A range of an episode's tokens, and all its segments; `next` is where the next range starts, 0 at the end.

    `is_traced` is true if training stored the advantage, log-prob and entropy of its tokens.
    """

    start: int
    num_tokens: int
    next: int
    rows: list[TokenRow]
    segments: list[SegmentLine]
    is_traced: bool


def read_lane(episode: Episode, trace: TokenTrace | None, start: int) -> TokenLane:
    """Up to `NUM_TOKENS` tokens from `start`, rounded down to the start of a row; `trace` adds the learner's values."""
    cells = _cells(episode, trace)
    start = min(max(0, start), max(0, len(cells) - 1)) // ROW_TOKENS * ROW_TOKENS
    end = min(start + NUM_TOKENS, len(cells))
    return TokenLane(
        start=start,
        num_tokens=len(cells),
        next=end if end < len(cells) else 0,
        rows=[TokenRow(at, cells[at : min(at + ROW_TOKENS, end)]) for at in range(start, end, ROW_TOKENS)],
        segments=list(_segments(episode, cells)),
        is_traced=trace is not None,
    )


def _cells(episode: Episode, trace: TokenTrace | None) -> list[TokenCell]:
    found: list[TokenCell] = []
    traced = zip(*(structs.astuple(trace) if trace else ()), strict=True)
    stored = {place: values for place, *values in traced}
    for segment in episode.segments:
        num_tokens = len(segment.token_ids)
        logprobs = segment.logprobs if len(segment.logprobs) == num_tokens else [None] * num_tokens
        for token_id, is_trained, logprob in zip(segment.token_ids, segment.loss_mask, logprobs, strict=True):
            found.append(TokenCell(token_id, segment.origin, is_trained, logprob, *stored.get(len(found), ())))
    return found


def _segments(episode: Episode, cells: Sequence[TokenCell]) -> Iterator[SegmentLine]:
    start = 0
    for segment in episode.segments:
        own = cells[start : start + len(segment.token_ids)]
        known = [
            [value for cell in own if (value := getattr(cell, measure)) is not None]
            for measure in ("logprob", "advantage", "learner_logprob", "entropy")
        ]
        means = (sum(values) / len(values) if values else None for values in known)
        yield SegmentLine(segment.origin, start, len(own), sum(segment.loss_mask), *means)
        start += len(own)
