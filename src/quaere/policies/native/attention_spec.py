"""Attention parameters of a layer, read from transformers; sampling and training use the same."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from quaere.errors import ModelMissing


class Kind(NamedTuple):
    """Attention parameters of a layer: scale of the scores, sliding window, soft cap of the scores, dropout.

    Kind(scale=0.125, window=None, softcap=None, dropout=0.0)
    """

    scale: float
    window: int | None = None
    softcap: float | None = None
    dropout: float = 0.0

    @classmethod
    def read(cls, head_dim: int, options: dict[str, Any]) -> Kind:
        """The parameters from the options that transformers passes to an attention function."""
        if options.get("s_aux") is not None:
            raise ModelMissing("models with attention sinks are not supported yet", hint="choose another model")
        scale = options.get("scaling")
        return cls(
            scale if scale is not None else head_dim**-0.5,
            options.get("sliding_window"),
            options.get("softcap"),
            options.get("dropout") or 0.0,
        )


def softcapped_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kind: Kind) -> Tensor:
    """Attention with scores capped by tanh, as in Gemma 2; torch has no kernel for it.

    Without a mask it is causal; a single query token sees all keys.
    """
    assert kind.softcap is not None
    scores = torch.tanh(query @ key.transpose(2, 3) * kind.scale / kind.softcap) * kind.softcap
    if mask is None and query.shape[2] > 1:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # not -inf: a row without keys would be nan
    weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    return torch.nn.functional.dropout(weights, kind.dropout) @ value
