"""Unbiased rounding of float32 weights to bfloat16, by a hash of the weight's name and the element's index.

    copy_rounded(sampler_weight, learner_weight, "model.layers.0.mlp.up_proj.weight")

bfloat16 has 8 significant bits, so round-to-nearest drops every change of a weight below 0.2 to 0.4 % of it, which is
most of a small update. Here a weight is rounded up with the probability that makes the expectation exact, so that an
update reaches the copy, spread over many elements. The random bits are a hash of name and index: the same weights give
the same bits at any step, on any device and after any restart, and a weight that does not change keeps its rounding.
"""

from __future__ import annotations

from hashlib import blake2s
from typing import Any

import torch
from torch import Tensor

# Odd constants with well-mixed bits: the golden ratio, and those of MurmurHash3's finaliser.
_STEP, _FIRST, _SECOND = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35
_NAN = 0x7FC00000
# Elements rounded at a time: on a CPU as many as fit the cache; on a GPU more, which needs fewer launches.
_CPU_CHUNK, _GPU_CHUNK = 1 << 17, 1 << 23


@torch.no_grad()  # type: ignore[untyped-decorator]
def copy_rounded(target: Tensor, source: Tensor, name: str, *, chunk: int = 0) -> None:
    """Copy `source` into `target` in place: with hashed rounding from float32 to bfloat16, else a plain copy.

    An element's index is its number in row-major order, whatever the strides. `chunk` elements are computed at a time,
    which affects memory and time but no bit of the result.
    """
    if target.dtype != torch.bfloat16 or source.dtype != torch.float32:
        target.copy_(source)
        return
    flat = source.reshape(-1)
    whole = target.view(-1) if target.is_contiguous() else torch.empty_like(flat, dtype=target.dtype)
    chunk = chunk or (_CPU_CHUNK if whole.device.type == "cpu" else _GPU_CHUNK)
    steps = torch.arange(min(chunk, len(flat)), dtype=torch.int32, device=whole.device) * _signed(_STEP)
    # A NaN element makes the sum NaN: without one, the check of every element is skipped.
    holds_nan = bool(flat.sum().isnan())
    key = name_key(name)
    for start in range(0, len(flat), chunk):
        part = flat[start : start + chunk].to(whole.device)
        words = _hash(steps[: len(part)] + _signed(key + start * _STEP))
        words += part.view(torch.int32)  # carries into the upper half, which rounds up, if low half + hash overflow
        if holds_nan:
            words.masked_fill_(part.isnan(), _NAN)
        words >>= 16
        whole[start : start + chunk].view(torch.int16).copy_(words)
    if not target.is_contiguous():
        target.copy_(whole.view(target.shape))


def round_weights(model: Any, dtype: torch.dtype, device: str | torch.device = "") -> Any:
    """Convert the model's weights to another dtype in place, one at a time, and move them to `device` if given.

    Buffers keep their dtype: rotary frequencies stay in float32.
    """
    for name, weight in model.named_parameters():
        if weight.dtype == dtype:
            continue
        rounded = torch.empty(weight.shape, dtype=dtype, device=device or weight.device)
        copy_rounded(rounded, weight, name)
        weight.data = rounded
    return model.to(device) if device else model


def name_key(name: str) -> int:
    """32-bit hash of a weight's name: the start of its elements in the sequence of hashes."""
    return int.from_bytes(blake2s(name.encode(), digest_size=4).digest(), "little")


def _hash(words: Tensor) -> Tensor:
    """16 well-mixed bits of every 32-bit word, in place; signed shifts lose one bit of 32 but save an operation."""
    for factor in (_FIRST, _SECOND):
        words ^= words >> 15
        words *= _signed(factor)
    words >>= 16
    words &= 0xFFFF
    return words


def _signed(number: int) -> int:
    """The int32 with the low 32 bits of a number."""
    return (number + 2**31) % 2**32 - 2**31
