"""Putting samples of different lengths into micro-batches without padding.

The samples of a micro-batch stand end to end in one packed sequence, where a prompt that several of them begin with may
stand once for all. What belongs to the tokens that carry loss, far fewer, is kept as one list, and as a grid with a row
per sample for losses that are means over sequences.

Shapes: T packed tokens, N tokens that carry loss, B samples, W most such tokens in one sample.
"""

# ruff: noqa: N803, N815 (capitals are shapes)
from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from msgspec import Struct
from torch import Tensor

from quaere.policies.native.varlen import Packing
from quaere.rollout.samples import Sample


class MicroBatch(Struct, frozen=True):
    """Some samples, packed; `rows` are their numbers in the whole batch.

    A token that carries loss is `targets_N[n]`; `before_N[n]` is the place in the packed sequence of the token before
    it, whose state predicts it: the end of a shared prompt predicts the first such token of several samples.
    `places_N[n]` is its place in the grid, row by row. `logprobs_N` are the sampler's.
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


def split_batch(
    samples: Sequence[Sample], max_tokens: int, device: torch.device, *, share_prompts: bool = False
) -> Iterator[MicroBatch]:
    """Micro-batches of at most `max_tokens` tokens each, or of one sample that is longer.

    Longest first, each sample goes to the first micro-batch with room for it. With `share_prompts`, those that have all
    before their first token that carries loss in common follow one another, and each goes where it adds the fewest
    tokens. Samples without a token that carries loss are left out. The split is a function of the samples alone, so
    that a repeated step is the same step.
    """
    lengths = [_num_needed(sample) for sample in samples]
    prompts = [_prompt(sample) if share_prompts else () for sample in samples]
    order = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: (-lengths[row], row))
    ranks = {prompt: rank for rank, prompt in enumerate(dict.fromkeys(prompts[row] for row in order))}
    bins: list[list[int]] = []
    room: list[int] = []
    for row in sorted(order, key=lambda row: ranks[prompts[row]]):
        # A prompt that is there already is that of the last to come.
        known = [len(prompts[row]) if prompts[row] == prompts[rows[-1]] else 0 for rows in bins]
        adds = [(lengths[row] - shared, number) for number, shared in enumerate(known)]
        tokens, place = min((one for one in adds if one[0] <= room[one[1]]), default=(lengths[row], len(bins)))
        if place == len(bins):
            bins.append([])
            room.append(max_tokens)
        bins[place].append(row)
        room[place] -= tokens
    for rows in bins:
        yield _pack([samples[row] for row in rows], tuple(rows), [prompts[row] for row in rows], device)


def _num_needed(sample: Sample) -> int:
    """How many tokens to read in order to predict all that carry loss: those before the last of them."""
    if any(sample.loss_mask[:1]):
        raise ValueError("the first token of a sequence cannot carry loss")
    return max((place for place, flag in enumerate(sample.loss_mask) if flag), default=0)


def _prompt(sample: Sample) -> tuple[int, ...]:
    """The tokens before the first that carries loss."""
    return sample.token_ids[: sample.loss_mask.index(True)] if any(sample.loss_mask) else ()


class _Pack:
    """A packed sequence that grows, piece by piece; a piece may continue another one."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.lengths: list[int] = []
        self.prefixes: list[int | None] = []

    def add(self, token_ids: Sequence[int], prefix: int | None = None) -> range:
        """Where these tokens stand now."""
        start = len(self.token_ids)
        if token_ids:
            self.token_ids += token_ids
            self.lengths.append(len(token_ids))
            self.prefixes.append(prefix)
        return range(start, len(self.token_ids))


def _lay_out(samples: Sequence[Sample], prompts: Sequence[tuple[int, ...]]) -> tuple[_Pack, list[list[int]]]:
    """The packed tokens, and for every sample where its own stand. Neighbours with the same prompt share it."""
    pack = _Pack()
    places: list[list[int]] = []
    for prompt, group in groupby(zip(samples, prompts, strict=True), key=operator.itemgetter(1)):
        alike = [sample for sample, _ in group]
        shared = prompt if len(alike) > 1 else ()
        first = pack.add(shared)
        prefix = len(pack.lengths) - 1 if shared else None
        for sample in alike:
            own = pack.add(sample.token_ids[len(shared) : _num_needed(sample)], prefix)
            places.append([*first, *own])
    return pack, places


def _pack(
    samples: Sequence[Sample], rows: tuple[int, ...], prompts: Sequence[tuple[int, ...]], device: torch.device
) -> MicroBatch:
    pack, stands = _lay_out(samples, prompts)
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
        token_ids_T=torch.tensor(pack.token_ids, device=device),
        packing=Packing(pack.lengths, device, pack.prefixes),
        before_N=tensor([[where[p - 1] for p in ps] for where, ps in zip(stands, marked, strict=True)], torch.long),
        targets_N=tensor(pick("token_ids"), torch.long),
        logprobs_N=tensor(pick("logprobs"), torch.float32),
        places_N=tensor([[number * width + n for n in range(len(p))] for number, p in enumerate(marked)], torch.long),
        mask_BW=pad([[1] * len(places) for places in marked], torch.bool),
        advantages_BW=pad(pick("advantages"), torch.float32),
    )
