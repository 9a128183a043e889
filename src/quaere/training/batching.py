"""Putting samples of different lengths into micro-batches without padding.

The samples of a micro-batch stand end to end in one packed sequence. What belongs to the tokens that carry loss, far
fewer, is kept as one list, and as a grid with a row per sample for losses that are means over sequences.

Shapes: T packed tokens, N tokens that carry loss, B samples, W most such tokens in one sample.
"""

# ruff: noqa: N803, N815 (capitals are shapes)
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from msgspec import Struct
from torch import Tensor

from quaere.policies.native.varlen import Packing
from quaere.rollout.samples import Sample


class MicroBatch(Struct, frozen=True):
    """Some samples, packed; `rows` are their numbers in the whole batch.

    A token that carries loss is `targets_N[n]`; `before_N[n]` is the place in the packed sequence of the token before
    it, whose state predicts it; `places_N[n]` is its place in the grid, row by row. `logprobs_N` are the sampler's.
    """

    rows: tuple[int, ...]
    token_ids_T: Tensor
    packing: Packing
    before_N: Tensor
    targets_N: Tensor
    logprobs_N: Tensor
    places_N: Tensor
    mask_BW: Tensor
    advantages_BW: Tensor

    def grid(self, values_N: Tensor) -> Tensor:
        """Values of the tokens that carry loss as `(B, W)`: a row per sample, filled from the left, then zeros."""
        flat = values_N.new_zeros(self.mask_BW.numel())
        return flat.index_copy(0, self.places_N, values_N).view(self.mask_BW.shape)


def split_batch(samples: Sequence[Sample], max_tokens: int, device: torch.device) -> Iterator[MicroBatch]:
    """Micro-batches of at most `max_tokens` tokens each, or of one sample that is longer.

    Longest first, each sample goes to the first micro-batch with room for it. Samples without a token that carries
    loss are left out. The split is a function of the samples alone, so that a repeated step is the same step.
    """
    lengths = [_num_needed(sample) for sample in samples]
    order = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: (-lengths[row], row))
    bins: list[list[int]] = []
    room: list[int] = []
    for row in order:
        place = next((number for number, left in enumerate(room) if left >= lengths[row]), len(bins))
        if place == len(bins):
            bins.append([])
            room.append(max_tokens)
        bins[place].append(row)
        room[place] -= lengths[row]
    for rows in bins:
        yield _pack([samples[row] for row in rows], tuple(rows), device)


def _num_needed(sample: Sample) -> int:
    """How many tokens to read in order to predict all that carry loss: those before the last of them."""
    if any(sample.loss_mask[:1]):
        raise ValueError("the first token of a sequence cannot carry loss")
    return max((place for place, flag in enumerate(sample.loss_mask) if flag), default=0)


def _pack(samples: Sequence[Sample], rows: tuple[int, ...], device: torch.device) -> MicroBatch:
    lengths = [_num_needed(sample) for sample in samples]
    starts = [0, *accumulate(lengths)][:-1]
    marked = [[place for place, flag in enumerate(sample.loss_mask) if flag] for sample in samples]
    width = max(map(len, marked))

    def tensor(values: list[list[float]], dtype: torch.dtype) -> Tensor:
        return torch.tensor([value for row in values for value in row], dtype=dtype, device=device)

    def pick(name: str) -> list[list[float]]:
        return [[getattr(s, name)[place] for place in places] for s, places in zip(samples, marked, strict=True)]

    def pad(values: list[list[float]], dtype: torch.dtype) -> Tensor:
        return tensor([[*row, *[0] * (width - len(row))] for row in values], dtype).view(len(rows), width)

    return MicroBatch(
        rows=rows,
        token_ids_T=tensor([[*s.token_ids[:length]] for s, length in zip(samples, lengths, strict=True)], torch.long),
        packing=Packing(lengths, device),
        before_N=tensor([[start + p - 1 for p in ps] for start, ps in zip(starts, marked, strict=True)], torch.long),
        targets_N=tensor(pick("token_ids"), torch.long),
        logprobs_N=tensor(pick("logprobs"), torch.float32),
        places_N=tensor([[number * width + n for n in range(len(p))] for number, p in enumerate(marked)], torch.long),
        mask_BW=pad([[1] * len(places) for places in marked], torch.bool),
        advantages_BW=pad(pick("advantages"), torch.float32),
    )
