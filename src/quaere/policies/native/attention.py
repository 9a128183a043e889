"""Attention over slots, used in forward passes instead of the model's own attention, and its parameters per layer.

A pass packs the tokens of many slots into one sequence, `(1, tokens)`. All parts of a model except attention treat
tokens independently, so only attention needs to know each token's slot and the slot's KV cache. It reads each slot's
real length, without padding, and does not expand grouped keys and values.

On a CPU torch's attention is called once per slot, or once for all decoding slots if they are adjacent and of similar
length; on a GPU one kernel serves all slots (`kernels`). Training has attention of its own (`varlen`) with the same
parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from quaere.policies.native.device import has_kernels
from quaere.policies.native.slots import KVStorage, Span


class Pass:
    """The packed tokens of one forward pass: their slots and positions, and the attention for the slots' KV cache.

    `_attend` maps queries and the memory of a layer's keys and values to the output.
    """

    _attend: Callable[..., Tensor]

    def __init__(self, storage: KVStorage, slots: Tensor, positions: Tensor) -> None:
        self.storage = storage
        self.slots, self.positions = slots, positions

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, kind: Kind) -> Tensor:
        """Attention of packed `(1, heads, tokens, head_dim)`; returns `(1, tokens, heads, head_dim)`."""
        keys, values = self.storage.write(layer, key, value, self.slots, self.positions)
        return self._attend(query, keys, values, kind=kind)


class PrefillPass(Pass):
    """Prefill of chunks of several slots, whose earlier tokens are in the KV cache."""

    def __init__(self, storage: KVStorage, spans: list[Span], device: torch.device) -> None:
        slots = np.concatenate([np.full(span.length, span.slot) for span in spans])
        positions = np.concatenate([np.arange(span.start, span.start + span.length) for span in spans])
        super().__init__(storage, *torch.from_numpy(np.stack([slots, positions])).to(device))
        self.spans = spans
        self._attend = partial(_attend_spans, spans=spans)
        if has_kernels(device):
            from quaere.policies.native import kernels

            self._attend = partial(kernels.prefill_attention, blocks=kernels.query_blocks(spans, device))


class DecodePass(Pass):
    """Decode of one token per slot: `slots[i]` has its newest token at `positions[i]`."""

    def __init__(self, storage: KVStorage, slots: Tensor, positions: Tensor) -> None:
        super().__init__(storage, slots, positions)
        if has_kernels(slots.device):
            from quaere.policies.native import kernels

            self._attend = partial(kernels.decode_attention, slots=slots, positions=positions)
        else:
            rows = enumerate(zip(slots.tolist(), positions.tolist(), strict=True))
            spans = [Span(slot, position, 1, offset) for offset, (slot, position) in rows]
            self._side_by_side = _SideBySide.of(slots, positions)
            self._attend = partial(_attend_spans, spans=spans, adjacent=self._side_by_side)


class _SideBySide:
    """Adjacent decoding slots as one padded batch: one attention call instead of one per slot."""

    def __init__(self, first: int, places: Tensor, lengths: Tensor, longest: int) -> None:
        self.first, self.longest = first, longest
        self.places = places  # index of each row within the range of slots
        self.lengths = lengths  # of every slot in the range; 1 for a slot that does not decode
        self._masks: dict[int | None, Tensor] = {}

    @classmethod
    def of(cls, slots: Tensor, positions: Tensor) -> _SideBySide | None:
        """The batch; None if padding and slots that do not decode would cost more than the calls saved."""
        first, last = int(slots.min()), int(slots.max())
        longest = int(positions.max()) + 1
        if len(slots) == 1 or (last - first + 1) * longest > 1.5 * (int(positions.sum()) + len(slots)):
            return None
        lengths = torch.ones(last - first + 1, dtype=torch.long, device=slots.device)
        lengths[slots - first] = positions + 1
        return cls(first, slots - first, lengths, longest)

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, kind: Kind) -> Tensor:
        _, heads, rows, head_dim = query.shape
        stretch = slice(self.first, self.first + len(self.lengths))
        key, value = keys[stretch, :, : self.longest], values[stretch, :, : self.longest]
        # Grouped-query attention: the heads that share a key head become several queries of that head.
        folded = query.new_zeros(len(self.lengths), key.shape[1], heads // key.shape[1], head_dim)
        folded[self.places] = query[0].transpose(0, 1).reshape(rows, *folded.shape[1:])
        result = scaled_dot_product_attention(folded, key, value, attn_mask=self._mask(kind.window), scale=kind.scale)
        return result[self.places].reshape(1, rows, heads, value.shape[3])

    def _mask(self, window: int | None) -> Tensor:
        """Mask `(slots, 1, 1, longest)`, cached for layers with the same window."""
        if window not in self._masks:
            columns = torch.arange(self.longest, device=self.lengths.device)
            mask = columns < self.lengths[:, None]
            if window is not None:
                mask &= columns >= self.lengths[:, None] - window
            self._masks[window] = mask[:, None, None, :]
        return self._masks[window]


def _attend_spans(
    query: Tensor, keys: Tensor, values: Tensor, spans: list[Span], kind: Kind, adjacent: _SideBySide | None = None
) -> Tensor:
    """Attention of all spans with torch's attention: one after another, or at once if they are `adjacent`."""
    if adjacent is not None and kind.is_plain:
        return adjacent.attend(query, keys, values, kind)
    outputs = [
        _attend_span(query[:, :, span.offset : span.offset + span.length], keys, values, span, kind) for span in spans
    ]
    return torch.cat(outputs, 2).transpose(1, 2)


def _attend_span(query: Tensor, keys: Tensor, values: Tensor, span: Span, kind: Kind) -> Tensor:
    end, window = span.start + span.length, kind.window
    # With a sliding window, a single token needs only the last `window` keys; the tokens of a chunk need a mask.
    first = max(0, end - window) if window is not None and span.length == 1 else 0
    key, value = keys[span.slot, None, :, first:end], values[span.slot, None, :, first:end]
    mask = None if span.length == 1 else _chunk_mask(span, window, query.device)
    if not kind.is_plain:
        return explicit_attention(query, key, value, mask, kind)
    groups = query.shape[1] // key.shape[1]
    if span.length == 1:
        # Grouped-query attention: the heads that share a key head become several queries of that head.
        folded = query.reshape(1, key.shape[1], groups, query.shape[3])
        output = scaled_dot_product_attention(folded, key, value, scale=kind.scale)
        return output.reshape(1, query.shape[1], 1, value.shape[3])
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=kind.scale, enable_gqa=groups > 1
    )


def _chunk_mask(span: Span, window: int | None, device: torch.device) -> Tensor | None:
    """Causal mask `(length, start + length)` of a chunk of one slot; None if it is a plain triangle."""
    total = span.start + span.length
    if span.start == 0 and (window is None or total <= window):
        return None
    rows = torch.arange(span.start, total, device=device)[:, None]
    columns = torch.arange(total, device=device)
    mask = columns <= rows
    if window is not None:
        mask &= columns > rows - window
    return mask


# ------------------------------------------------------------------------------------------------- attention of a layer


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
        scale, window, softcap = (options.get(name) for name in ("scaling", "sliding_window", "softcap"))
        dropout, sinks = options.get("dropout") or 0.0, options.get("s_aux")
        return cls(head_dim**-0.5 if scale is None else scale, window, softcap, dropout, sinks)

    @property
    def is_plain(self) -> bool:
        """True if torch's attention can compute it: it has kernels neither for soft caps nor for sinks."""
        return self.softcap is None and self.sinks is None


def repeat_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values with each head repeated for all heads of queries that share it."""
    groups = query.shape[1] // key.shape[1]
    return (key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)) if groups > 1 else (key, value)


def explicit_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kind: Kind) -> Tensor:
    """Attention with scores capped by tanh, as in Gemma 2, or with sinks, as in GPT-OSS.

    Without a mask it is causal; a single query token sees all keys.
    """
    key, value = repeat_heads(query, key, value)
    scores = query @ key.transpose(2, 3) * kind.scale
    if kind.softcap is not None:
        scores = torch.tanh(scores / kind.softcap) * kind.softcap
    if mask is None and query.shape[2] > 1:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # not -inf: a row without keys would be nan
    if kind.sinks is not None:
        sinks = kind.sinks.to(scores.dtype)[:, None, None]
        scores = torch.cat((scores, sinks.expand(*scores.shape[:-1], 1)), -1)
    weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    return torch.nn.functional.dropout(weights[..., : key.shape[2]], kind.dropout) @ value
