"""Attention within each of many sequences packed end to end, with gradients, for training.

    use_varlen_attention(model)                                             # see bridge
    states_TD = packed_states(model, token_ids_T, Packing((3, 5), device))

A sequence may continue another one, its prefix: its tokens then see the prefix and themselves. So a prompt with several
answers is packed once. On a GPU in half precision one kernel computes all sequences if none has a prefix; otherwise the
sequences are computed one after another.

Shapes: T packed tokens, H heads, D the width of one.
"""

# ruff: noqa: N806 (capitals are shapes)
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from itertools import accumulate
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from quaere.policies.native.attention import Kind, explicit_attention, repeat_heads

VARLEN = "quaere_varlen"
T = TypeVar("T")
# If it is true, attention without a packing raises, because the model failed to pass it on.
is_expected: ContextVar[bool] = ContextVar("quaere_packing_expected", default=False)


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


# -------------------------------------------------------------------------------------------------------- attention


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
        if is_expected.get():
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


# ----------------------------------------------------------------------------------------------------- the kernel


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
