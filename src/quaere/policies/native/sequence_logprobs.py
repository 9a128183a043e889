"""Log-probs of given tokens: many sequences side by side in packed passes, without sampling.

    score_sequences(partial(forward, model), [[5, 7, 9], [5, 8]], device=cpu, max_rows=32, max_step_tokens=2048)
    -> [[0.0, -0.7, -0.1], [0.0, -2.3]]

Memory is bounded for any number of sequences: the KV cache holds at most `max_rows` of them, a pass has at most
`max_step_tokens` tokens, and logits over the vocabulary are computed for at most 2048 of them.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from msgspec import Struct

from quaere.policies.native.attention import PrefillPass
from quaere.policies.native.decoder import Forward
from quaere.policies.native.kv_cache import KVStorage, Span

_MAX_LOGITS = 2048  # rows of logits at once


def score_sequences(
    forward: Forward,
    sequences: Sequence[Sequence[int]],
    starts: Sequence[int] = (),
    *,
    device: torch.device,
    max_rows: int,
    max_step_tokens: int,
    make_storage: Callable[[], KVStorage] = KVStorage,
) -> list[list[float]]:
    """Per sequence, the log-prob of every token given those before it; 0 for the first token.

    With `starts`, only the tokens from that position on are scored in each sequence and the others are 0: a shared or
    irrelevant prefix then costs only its way through the layers, not through the output layer.
    """
    starts = starts or [1] * len(sequences)
    if len(starts) != len(sequences) or any(start < 1 for start in starts):
        raise ValueError("starts needs one position per sequence, each at least 1: the first token has no log-prob")
    scores = [[0.0] * len(sequence) for sequence in sequences]
    # Sequences of similar length share a KV storage, whose slots are all as long as the longest: less memory is wasted.
    order = sorted(range(len(sequences)), key=lambda number: len(sequences[number]))
    order = [number for number in order if starts[number] < len(sequences[number])]
    for first in range(0, len(order), max_rows):
        rows = [_Row(sequences[number], starts[number], scores[number]) for number in order[first : first + max_rows]]
        storage = make_storage()
        storage.reserve(len(rows), max(len(row.token_ids) for row in rows), {})
        _score_rows(forward, storage, rows, device, max_step_tokens)
    return scores


class _Row(Struct):
    """A sequence and its progress: `num_stored` of its tokens were fed."""

    token_ids: Sequence[int]
    start: int
    scores: list[float]
    num_stored: int = 0

    @property
    def num_left(self) -> int:
        """Number of tokens still to be fed; the last token is only predicted, so it is never fed."""
        return len(self.token_ids) - 1 - self.num_stored


class _Chunk(NamedTuple):
    """Tokens of one row in a pass; `scored` are the indices of its tokens whose log-probs they predict."""

    row: _Row
    span: Span
    scored: range


def _score_rows(
    forward: Forward, storage: KVStorage, rows: list[_Row], device: torch.device, max_step_tokens: int
) -> None:
    for chunks in _passes(rows, max_step_tokens):
        where = PrefillPass(storage, [span for _, span, _ in chunks], device)
        fed = [row.token_ids[span.start : span.start + span.length] for row, span, _ in chunks]
        # The logits of a token predict the next one.
        wanted = [span.offset + place - 1 - span.start for _, span, scored in chunks for place in scored]
        targets = [row.token_ids[place] for row, _, scored in chunks for place in scored]
        with torch.no_grad():
            ids = torch.tensor([token for tokens in fed for token in tokens], device=device)
            places = torch.tensor(wanted, dtype=torch.long, device=device)
            logits = forward(where, ids, where.positions, places).float()
            if not targets:
                continue
            chosen = torch.tensor(targets, device=device)[:, None]
            values = iter((logits.gather(1, chosen)[:, 0] - logits.logsumexp(-1)).tolist())
        for row, _, scored in chunks:
            row.scores[scored.start : scored.stop] = islice(values, len(scored))


def _passes(rows: list[_Row], max_step_tokens: int) -> Iterator[list[_Chunk]]:
    """Chunks of the rows, grouped into passes that are filled as far as the limits allow."""
    chunks: list[_Chunk] = []
    for slot, row in enumerate(rows):
        while row.num_left:
            num_tokens = sum(chunk.span.length for chunk in chunks)
            num_logits = sum(len(chunk.scored) for chunk in chunks)
            # Tokens before the first scored one need no logits; from there on each token needs a row of logits.
            begin, free = row.num_stored, max(0, row.start - 1 - row.num_stored)
            length = min(row.num_left, max_step_tokens - num_tokens, free + _MAX_LOGITS - num_logits)
            if length > 0:
                row.num_stored = end = begin + length
                scored = range(max(begin + 1, row.start), end + 1)
                chunks.append(_Chunk(row, Span(slot, begin, length, num_tokens), scored))
            if row.num_left:  # the pass is full
                yield chunks
                chunks = []
    if chunks:
        yield chunks
