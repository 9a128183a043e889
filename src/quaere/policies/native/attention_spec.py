"""Attention parameters of a layer, read from transformers; sampling and training use the same."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Kind(NamedTuple):
    """Attention parameters of a layer: scale of the scores, sliding window, soft cap of the scores, dropout, sinks.

    `sinks` has a score for each head (GPT-OSS): of a further key that every query sees, whose value is zero.

        Kind(scale=0.125, window=None, softcap=None, dropout=0.0, sinks=None)
    """

    scale: float
    window: int | None = None
    softcap: float | None = None
    dropout: float = 0.0
    sinks: Tensor | None = None

    @classmethod
    def read(cls, head_dim: int, options: dict[str, Any]) -> Kind:
        """The parameters from the options that transformers passes to an attention function."""
        scale = options.get("scaling")
        return cls(
            scale if scale is not None else head_dim**-0.5,
            options.get("sliding_window"),
            options.get("softcap"),
            options.get("dropout") or 0.0,
            options.get("s_aux"),
        )

    @property
    def is_plain(self) -> bool:
        """True if torch's attention can compute it: it has kernels neither for soft caps nor for sinks."""
        return self.softcap is None and self.sinks is None


def explicit_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kind: Kind) -> Tensor:
    """Attention with scores capped by tanh, as in Gemma 2, or with sinks, as in GPT-OSS.

    Without a mask it is causal; a single query token sees all keys.
    """
    scores = query @ key.transpose(2, 3) * kind.scale
    if kind.softcap is not None:
        scores = torch.tanh(scores / kind.softcap) * kind.softcap
    if mask is None and query.shape[2] > 1:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # not -inf: a row without keys would be nan
    if kind.sinks is not None:
        sinks = kind.sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat((scores, sinks), -1)
    weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    weights = weights[..., : key.shape[2]]
    return torch.nn.functional.dropout(weights, kind.dropout) @ value
