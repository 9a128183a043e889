"""Attention, used in forward passes instead of the model's own: over slots in sampling, within sequences in training.

A pass packs the tokens of many slots into one sequence, `(1, tokens)`. All parts of a model except attention treat
tokens independently, so only attention needs to know each token's slot and the slot's KV cache. It reads each slot's
real length, without padding, and does not expand grouped keys and values.

On a CPU torch's attention is called once per slot, or once for all decoding slots if they are adjacent and of similar
length; on a GPU one kernel serves all slots (`kernels`).

Training packs sequences end to end, and attention has gradients:

    use_varlen_attention(model)                                             # see bridge
    states_TD = packed_states(model, token_ids_T, Packing((3, 5), device))

A sequence may continue another one, its prefix: its tokens then see the prefix and themselves. So a prompt with several
answers is packed once. On a GPU in half precision one kernel computes all sequences if none has a prefix; otherwise the
sequences are computed one after another.

Shapes: T packed tokens, H heads, D the width of one.
"""

# ruff: noqa: N806 (capitals are shapes)
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from quaere.policies.native.device import has_kernels
from quaere.policies.native.kv_cache import KVStorage, Span


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


# ----------------------------------------------------------------------------------------------------------- over slots


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


# ----------------------------------------------------------------------------------------------------- within sequences

VARLEN = "quaere_varlen"
T = TypeVar("T")
# If it is true, attention without a packing raises, because the model failed to pass it on.
expected: ContextVar[bool] = ContextVar("quaere_packing_expected", default=False)


class PackingLost(Exception):
    """A model did not pass the packing on to its attention."""


class Packing:
    """Bounds of the sequences in a packed one, and the prefix that each continues, if any.

    Packing((3, 5), torch.device("cpu")).bounds -> tensor([0, 3, 8])
    Packing((3, 2, 1), torch.device("cpu"), prefixes=(None, 0, 0)).positions_T -> tensor([0, 1, 2, 3, 4, 3])
    """

    def __init__(
        self, lengths: Sequence[int], device: torch.device, prefixes: Sequence[int | None] | None = None
    ) -> None:
        self.lengths = list(lengths)
        self.prefixes = list(prefixes or [None] * len(lengths))
        # Positions continue where the prefix ends; a prefix has no prefix itself.
        self.starts = [0 if prefix is None else self.lengths[prefix] for prefix in self.prefixes]
        self.is_plain = not any(self.starts)  # no sequence has a prefix
        ends = [start + length for start, length in zip(self.starts, self.lengths, strict=True)]
        self.longest = max(ends)
        self.bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
        ranges = [torch.arange(start, end) for start, end in zip(self.starts, ends, strict=True)]
        self.positions_T = torch.cat(ranges).to(device)
        self._masks: dict[int, Tensor] = {}

    def mask(self, number: int, window: int | None) -> Tensor | None:
        """Attention mask of a sequence over its prefix and itself; None for plain causal attention."""
        start, end = self.starts[number], self.starts[number] + self.lengths[number]
        window = self.longest if window is None else window
        if start == 0 and end <= window:
            return None
        if window not in self._masks:  # for the longest sequence; the masks of others are slices of it
            place = torch.arange(self.longest, device=self.bounds.device)
            ago = place[:, None] - place
            self._masks[window] = (ago >= 0) & (ago < window)
        return self._masks[window][start:end, :end]


@contextmanager
def bound(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Context manager: inside, the context variable has this value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


# A deliberate graph break: neither the kernel nor a loop over sequences gains from torch.compile.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def varlen_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attention function registered with transformers: `(1, H, T, head_dim)` in, `(1, T, H, head_dim)` out."""
    kind = Kind.read(query.shape[-1], options)
    device = query.device.type
    if torch.is_autocast_enabled(device):  # the rotary embedding has turned queries and keys into float32
        dtype = torch.get_autocast_dtype(device)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    packing = options.get("packing")
    if packing is None:  # a call without a packing: padded rows, with a mask as for sdpa
        if expected.get():
            raise PackingLost(f"{type(module).__name__} is not told where one packed sequence ends and the next begins")
        return _attend_rows(query, key, value, attention_mask, kind).transpose(1, 2), None
    is_usable = packing.is_plain and query.is_cuda and kind.is_plain and not kind.dropout
    shape = query.shape[1], key.shape[1], query.shape[3]
    attend = _attend_flash if is_usable and kernel_works(query.device, query.dtype, *shape) else _attend_each
    return attend(query, key, value, packing, kind).transpose(1, 2), None


def _attend_flash(query: Tensor, key: Tensor, value: Tensor, packing: Packing, kind: Kind) -> Tensor:
    """Attention of all sequences in one kernel. torch's `varlen_attn` wraps this call; its signature still changes."""
    packed_THD = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    sizes = packing.bounds, packing.bounds, packing.longest, packing.longest
    window = {"window_size_left": -1 if kind.window is None else kind.window - 1, "window_size_right": 0}
    output_THD, *_ = torch.ops.aten._flash_attention_forward(
        *packed_THD, *sizes, 0.0, kind.window is None, False, scale=kind.scale, **window
    )
    return output_THD.transpose(0, 1)[None]


def _attend_each(query: Tensor, key: Tensor, value: Tensor, packing: Packing, kind: Kind) -> Tensor:
    """Attention of one sequence after another: on any device, in any precision, with any attention parameters."""
    queries, keys, values = (tensor.split(packing.lengths, dim=2) for tensor in (query, key, value))
    outputs = []
    for number, prefix in enumerate(packing.prefixes):
        key, value = keys[number], values[number]
        if prefix is not None:
            key, value = torch.cat((keys[prefix], key), dim=2), torch.cat((values[prefix], value), dim=2)
        outputs.append(_attend_rows(queries[number], key, value, packing.mask(number, kind.window), kind))
    return torch.cat(outputs, dim=2)


def _attend_rows(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kind: Kind) -> Tensor:
    """Attention of rows of equal length. Without a mask it is causal; a single query token sees all keys."""
    if not kind.is_plain:
        return explicit_attention(query, key, value, mask, kind)
    # The CPU kernel supports grouped-query attention in place; elsewhere shared key heads are repeated.
    in_place = query.device.type == "cpu"
    if not in_place:
        key, value = repeat_heads(query, key, value)
    is_causal = mask is None and query.shape[2] > 1
    return scaled_dot_product_attention(
        query, key, value, mask, kind.dropout, is_causal, scale=kind.scale, enable_gqa=in_place
    )


@lru_cache
def kernel_works(device: torch.device, dtype: torch.dtype, num_heads: int, num_kv_heads: int, head_dim: int) -> bool:
    """True if torch's flash kernel for packed sequences works here and agrees with `_attend_each`, gradients included.

    It is tested once per shape of head; it does not support float32, every width or every device.

        kernel_works(torch.device("cpu"), torch.float32, 9, 3, 64) == False
    """
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return False
    # Identity hooks: under gradient checkpointing its own hooks would take the tensors saved here for the model's.
    apart = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    try:
        with apart, torch.enable_grad(), torch.autocast(device.type, enabled=False):
            return all(_agrees(window, device, dtype, num_heads, num_kv_heads, head_dim) for window in (None, 7))
    except (RuntimeError, TypeError, AttributeError):
        return False


def _agrees(
    window: int | None, device: torch.device, dtype: torch.dtype, num_heads: int, num_kv_heads: int, head_dim: int
) -> bool:
    packing = Packing((5, 70, 1), device)
    kind = Kind(head_dim**-0.5, window, None, 0.0)
    seed = torch.Generator().manual_seed(0)
    pull, query, key, value = (
        torch.randn(1, heads, 76, head_dim, generator=seed).to(device, dtype).requires_grad_()
        for heads in (num_heads, num_heads, num_kv_heads, num_kv_heads)
    )
    each = _attend_each(query, key, value, packing, kind)
    flash = _attend_flash(query, key, value, packing, kind)
    slow, fast = (torch.autograd.grad(output, (query, key, value), pull.detach()) for output in (each, flash))
    pairs = zip((each, *slow), (flash, *fast), strict=True)
    return all(bool((a.float() - b.float()).norm() < 0.02 * a.float().norm()) for a, b in pairs)
