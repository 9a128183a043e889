"""Micro-batches of samples of different lengths, without padding.

The samples of a micro-batch are packed end to end into one sequence, in which a prompt shared by several samples may
occur once. Values of the tokens that carry loss, which are far fewer, are kept as one list, and as a grid with a row
per sample for losses that average over sequences.

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
from quaere.rollout.episode import Sample


class MicroBatch(Struct, frozen=True):
    """A packed micro-batch; `rows` are the samples' indices in the whole batch.

    `targets_N[n]` is a token that carries loss, and `before_N[n]` the packed position of the token before it, whose
    state predicts it: the end of a shared prompt predicts the first such token of several samples. `places_N[n]` is its
    position in the flattened grid. `logprobs_N` are the sampler's.
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
        """Values of the tokens that carry loss as `(B, W)`: one row per sample, left-aligned and padded with zeros."""
        flat = values_N.new_zeros(self.mask_BW.numel())
        return flat.index_copy(0, self.places_N, values_N).view(self.mask_BW.shape)


def split_batch(
    samples: Sequence[Sample], max_tokens: int, device: torch.device, *, share_prompts: bool = False
) -> Iterator[MicroBatch]:
    """Micro-batches of at most `max_tokens` tokens each, or of one longer sample.

    First-fit decreasing: longest first, each sample goes to the first micro-batch with room. With `share_prompts`,
    samples with the same prompt (all tokens before the first that carries loss) follow one another, and each goes where
    it adds the fewest tokens. Samples without a token that carries loss are left out. The split depends on the samples
    alone, so that a repeated step is identical.
    """
    lengths = [_num_needed(sample) for sample in samples]
    prompts = [_prompt(sample) if share_prompts else () for sample in samples]
    order = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: (-lengths[row], row))
    ranks = {prompt: rank for rank, prompt in enumerate(dict.fromkeys(prompts[row] for row in order))}
    bins: list[list[int]] = []
    room: list[int] = []
    for row in sorted(order, key=lambda row: ranks[prompts[row]]):
        # Samples arrive grouped by prompt, so a bin can share only the prompt of its last sample.
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
    """Number of tokens to read in order to predict every token that carries loss: those before the last of them."""
    if any(sample.loss_mask[:1]):
        raise ValueError("the first token of a sequence cannot carry loss: no token before it predicts it")
    return max((place for place, flag in enumerate(sample.loss_mask) if flag), default=0)


def _prompt(sample: Sample) -> tuple[int, ...]:
    """The tokens before the first that carries loss."""
    return sample.token_ids[: sample.loss_mask.index(True)] if any(sample.loss_mask) else ()


class _Pack:
    """A packed sequence under construction; a piece may continue an earlier piece."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.lengths: list[int] = []
        self.prefixes: list[int | None] = []

    def add(self, token_ids: Sequence[int], prefix: int | None = None) -> range:
        """Append tokens and return their positions."""
        start = len(self.token_ids)
        if token_ids:
            self.token_ids += token_ids
            self.lengths.append(len(token_ids))
            self.prefixes.append(prefix)
        return range(start, len(self.token_ids))


def _lay_out(samples: Sequence[Sample], prompts: Sequence[tuple[int, ...]]) -> tuple[_Pack, list[list[int]]]:
    """The packed tokens, and the positions of each sample's tokens. Neighbouring samples share an equal prompt."""
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
