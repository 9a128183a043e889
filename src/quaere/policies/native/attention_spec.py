"""How a layer wants its attention, as transformers says it; sampling and training read it alike."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from quaere.errors import ModelMissing


class Kind(NamedTuple):
    """How a layer attends: a factor on its scores, how far back it looks, and a bound that squashes scores.

    Kind(scale=0.125, window=None, softcap=None, dropout=0.0)
    """

    scale: float
    window: int | None = None
    softcap: float | None = None
    dropout: float = 0.0

    @classmethod
    def read(cls, head_dim: int, options: dict[str, Any]) -> Kind:
        """From what transformers hands to an attention function."""
        if options.get("s_aux") is not None:
            raise ModelMissing("models with attention sinks are not supported yet")
        scale = options.get("scaling")
        return cls(
            scale if scale is not None else head_dim**-0.5,
            options.get("sliding_window"),
            options.get("softcap"),
            options.get("dropout") or 0.0,
        )


def softcapped_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kind: Kind) -> Tensor:
    """Attention whose scores are squashed by tanh, as Gemma 2 has it; no kernel of torch offers it.

    Without a mask it is a causal triangle, or one token that sees all before it.
    """
    assert kind.softcap is not None
    scores = torch.tanh(query @ key.transpose(2, 3) * kind.scale / kind.softcap) * kind.softcap
    if mask is None and query.shape[2] > 1:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # finite: a row may see nothing at all
    weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    return torch.nn.functional.dropout(weights, kind.dropout) @ value
