"""Putting samples of different lengths into padded micro-batches with little padding.

Shapes: B rows, T tokens.
"""

# ruff: noqa: N815 (capitals are shapes)
from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from msgspec import Struct
from torch import Tensor

from quaere.rollout.samples import Sample


class MicroBatch(Struct, frozen=True):
    """Some samples as right-padded tensors; `rows` are their numbers in the whole batch.

    `mask_BT[b, t]` says that token t carries loss, i.e. that its log-prob given the tokens before it counts.
    """

    rows: tuple[int, ...]
    token_ids_BT: Tensor
    attention_BT: Tensor
    mask_BT: Tensor
    logprobs_BT: Tensor
    advantages_BT: Tensor


def split_batch(samples: Sequence[Sample], max_tokens: int, device: torch.device) -> Iterator[MicroBatch]:
    """Micro-batches of samples of similar length, each of at most `max_tokens` padded tokens (or one sample).

    The split is a function of the samples alone, so that a repeated step is the same step.
    """
    order = sorted(range(len(samples)), key=lambda row: (len(samples[row].token_ids), row))
    while order:
        longest = len(samples[order[-1]].token_ids)
        count = max(1, min(len(order), max_tokens // max(1, longest)))
        taken, order = order[-count:], order[:-count]
        yield _pad([samples[row] for row in taken], tuple(taken), device)


def _pad(samples: Sequence[Sample], rows: tuple[int, ...], device: torch.device) -> MicroBatch:
    width = max(len(sample.token_ids) for sample in samples)

    def tensor(values: list[Sequence[float]], dtype: torch.dtype) -> Tensor:
        return torch.tensor([[*row, *[0] * (width - len(row))] for row in values], dtype=dtype, device=device)

    return MicroBatch(
        rows=rows,
        token_ids_BT=tensor([sample.token_ids for sample in samples], torch.long),
        attention_BT=tensor([[1] * len(sample.token_ids) for sample in samples], torch.long),
        mask_BT=tensor([sample.loss_mask for sample in samples], torch.bool),
        logprobs_BT=tensor([sample.logprobs for sample in samples], torch.float32),
        advantages_BT=tensor([sample.advantages for sample in samples], torch.float32),
    )
