"""Fused Triton kernels for the operations between a model's matrix products.

A decode step of a small model runs a thousand kernels of two microseconds each; most are parts of a norm, a rotary
embedding or a gate. Here each of these is one kernel, with the same intermediate rounding, so that results equal those
of the model's own code. `bridge.fuse` installs them after comparing the results.
"""

# ruff: noqa: N803 (capitals are compile-time constants of a kernel)
# mypy: disable-error-code="import,no-untyped-def,untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def rms_norm(states: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """RMS norm over the last dimension: `states / rms(states) * weight`, rounded before the weight is applied."""
    width = states.shape[-1]
    # Heads may be a slice of wider rows, (1, tokens, heads, width): two strides address them without a copy.
    rows = states.reshape(-1, *states.shape[-2:])
    output = states.new_empty(states.shape)
    _norm_kernel[(rows.shape[0] * rows.shape[1],)](
        rows, weight, output, epsilon, rows.stride(0), rows.stride(1), rows.shape[1],
        WIDTH=width, BLOCK=triton.next_power_of_2(width),
    )  # fmt: skip
    return output


def gated_silu(gate: Tensor, up: Tensor) -> Tensor:
    """`silu(gate) * up`; both may be slices of wider rows."""
    width = gate.shape[-1]
    gates, ups = gate.reshape(-1, width), up.reshape(-1, width)
    output = gate.new_empty(gate.shape)
    _gate_kernel[(len(gates), triton.cdiv(width, 512))](
        gates, ups, output, gates.stride(0), ups.stride(0), width, BLOCK=512
    )
    return output


def rotate(query: Tensor, key: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    """Rotary embedding of `(1, heads, tokens, dim)` and `(1, key heads, tokens, dim)` by angles `(1, tokens, dim)`."""
    _, heads, tokens, dim = query.shape
    key_heads = key.shape[1]
    new_query, new_key = query.new_empty(1, tokens, heads, dim), key.new_empty(1, tokens, key_heads, dim)
    _rotate_kernel[(tokens, 2)](
        query, key, cosines, sines, new_query, new_key,
        query.stride(1), query.stride(2), key.stride(1), key.stride(2), cosines.stride(1), sines.stride(1),
        HEADS=heads, KEY_HEADS=key_heads, HALF=dim // 2, BLOCK_H=triton.next_power_of_2(heads),
        BLOCK_K=triton.next_power_of_2(key_heads), BLOCK=triton.next_power_of_2(dim // 2),
    )  # fmt: skip
    return new_query.transpose(1, 2), new_key.transpose(1, 2)


def write_slots(keys: Tensor, values: Tensor, key: Tensor, value: Tensor, slots: Tensor, positions: Tensor) -> None:
    """Write packed `(1, heads, tokens, dim)` keys and values to their slots."""
    _, heads, tokens, dim = key.shape
    _write_kernel[(tokens,)](
        keys, values, key, value, slots, positions,
        keys.stride(0), keys.stride(1), keys.stride(2), values.stride(0), values.stride(1), values.stride(2),
        key.stride(1), key.stride(2), value.stride(1), value.stride(2),
        HEADS=heads, DIM=dim, VALUE_DIM=value.shape[3], BLOCK_H=triton.next_power_of_2(heads),
        BLOCK_D=triton.next_power_of_2(dim), BLOCK_V=triton.next_power_of_2(value.shape[3]),
    )  # fmt: skip


def draw_tokens(logits: Tensor, temperatures: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """One token per row of `(rows, words)`, sampled with one number in [0, 1) each, and its log-prob at temperature 1.

    Equals `decoder.pick_tokens` for rows without greedy sampling, top-k or top-p; each row is read three times and no
    tensor of its size is written.
    """
    rows, size = logits.shape
    tokens = torch.empty(rows, dtype=torch.long, device=logits.device)
    logprobs = torch.empty(rows, dtype=torch.float32, device=logits.device)
    block = min(4096, triton.next_power_of_2(size))
    _draw_kernel[(rows,)](
        logits, temperatures, numbers, tokens, logprobs, logits.stride(0), size, BLOCK=block, num_warps=8
    )
    return tokens, logprobs


@triton.jit
def _norm_kernel(
    states, weight, output, epsilon, stride_outer, stride_inner, num_inner, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    there = at < WIDTH
    source = states + (row // num_inner).to(tl.int64) * stride_outer + (row % num_inner).to(tl.int64) * stride_inner
    x = tl.load(source + at, mask=there, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, 0) / WIDTH + epsilon)
    normed = (x * scale).to(output.dtype.element_ty)
    w = tl.load(weight + at, mask=there, other=0.0)
    tl.store(
        output + row.to(tl.int64) * WIDTH + at, (normed.to(tl.float32) * w.to(tl.float32)).to(output.dtype.element_ty),
        mask=there,
    )  # fmt: skip


@triton.jit
def _gate_kernel(gate, up, output, gate_row, up_row, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < width
    g = tl.load(gate + row * gate_row + at, mask=there, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_row + at, mask=there, other=0.0).to(tl.float32)
    opened = (g * tl.sigmoid(g)).to(output.dtype.element_ty).to(tl.float32)
    tl.store(output + row * width + at, (opened * u).to(output.dtype.element_ty), mask=there)


@triton.jit
def _rotate_kernel(
    query, key, cosines, sines, new_query, new_key,
    query_head, query_token, key_head, key_token, cosine_token, sine_token,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, HALF: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    cosines = cosines + token * cosine_token
    sines = sines + token * sine_token
    if tl.program_id(1) == 0:
        _rotate_heads(
            query + token * query_token, cosines, sines, new_query + token * HEADS * 2 * HALF, query_head,
            HEADS, HALF, BLOCK_H, BLOCK,
        )  # fmt: skip
    else:
        _rotate_heads(
            key + token * key_token, cosines, sines, new_key + token * KEY_HEADS * 2 * HALF, key_head,
            KEY_HEADS, HALF, BLOCK_K, BLOCK,
        )  # fmt: skip


@triton.jit
def _rotate_heads(
    states, cosines, sines, output, stride_head,
    HEADS: tl.constexpr, HALF: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Rotary embedding of all heads of one token."""
    h = tl.arange(0, BLOCK_H)
    d = tl.arange(0, BLOCK)
    there = (h < HEADS)[:, None] & (d < HALF)[None, :]
    base = states + h[:, None] * stride_head + d[None, :]
    dtype = output.dtype.element_ty
    x = tl.load(base, mask=there, other=0.0).to(tl.float32)
    y = tl.load(base + HALF, mask=there, other=0.0).to(tl.float32)
    cos_x = tl.load(cosines + d, mask=d < HALF, other=0.0).to(tl.float32)[None, :]
    sin_x = tl.load(sines + d, mask=d < HALF, other=0.0).to(tl.float32)[None, :]
    cos_y = tl.load(cosines + d + HALF, mask=d < HALF, other=0.0).to(tl.float32)[None, :]
    sin_y = tl.load(sines + d + HALF, mask=d < HALF, other=0.0).to(tl.float32)[None, :]
    # Every product is rounded before the sum, as in the model's own code, where these are separate operations.
    new_x = (x * cos_x).to(dtype).to(tl.float32) - (y * sin_x).to(dtype).to(tl.float32)
    new_y = (y * cos_y).to(dtype).to(tl.float32) + (x * sin_y).to(dtype).to(tl.float32)
    target = output + h[:, None] * 2 * HALF + d[None, :]
    tl.store(target, new_x.to(dtype), mask=there)
    tl.store(target + HALF, new_y.to(dtype), mask=there)


@triton.jit
def _write_kernel(
    keys, values, key, value, slots, positions,
    keys_slot, keys_head, keys_token, values_slot, values_head, values_token,
    key_head, key_token, value_head, value_token,
    HEADS: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    position = tl.load(positions + token).to(tl.int64)
    h = tl.arange(0, BLOCK_H)[:, None]
    d = tl.arange(0, BLOCK_D)[None, :]
    v = tl.arange(0, BLOCK_V)[None, :]
    k = tl.load(key + h * key_head + token * key_token + d, mask=(h < HEADS) & (d < DIM), other=0.0)
    w = tl.load(value + h * value_head + token * value_token + v, mask=(h < HEADS) & (v < VALUE_DIM), other=0.0)
    tl.store(keys + slot * keys_slot + h * keys_head + position * keys_token + d, k, mask=(h < HEADS) & (d < DIM))
    tl.store(
        values + slot * values_slot + h * values_head + position * values_token + v, w,
        mask=(h < HEADS) & (v < VALUE_DIM),
    )  # fmt: skip


@triton.jit
def _draw_kernel(logits, temperatures, numbers, tokens, logprobs, stride, size, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    words = logits + row.to(tl.int64) * stride
    places = tl.arange(0, BLOCK)
    heat = tl.maximum(tl.load(temperatures + row), 1e-6)  # a lower temperature would pick the best token as well

    highest = tl.full((), float("-inf"), tl.float32)
    for start in range(0, size, BLOCK):
        block = tl.load(words + start + places, mask=start + places < size, other=float("-inf")).to(tl.float32)
        highest = tl.maximum(highest, tl.max(block, 0))

    # Sums of blocks are added in float64, so that small probabilities are not lost.
    total = tl.full((), 0.0, tl.float64)
    plain = tl.full((), 0.0, tl.float64)
    for start in range(0, size, BLOCK):
        block = tl.load(words + start + places, mask=start + places < size, other=float("-inf")).to(tl.float32)
        total += tl.sum(tl.exp((block - highest) / heat), 0).to(tl.float64)
        plain += tl.sum(tl.exp(block - highest), 0).to(tl.float64)

    target = tl.load(numbers + row) * total
    before = tl.full((), 0.0, tl.float64)
    chosen, rest = tl.full((), -1, tl.int32), tl.full((), 0.0, tl.float64)
    last, last_before = tl.full((), 0, tl.int32), tl.full((), 0.0, tl.float64)
    for start in range(0, size, BLOCK):
        block = tl.load(words + start + places, mask=start + places < size, other=float("-inf")).to(tl.float32)
        mass = tl.sum(tl.exp((block - highest) / heat), 0).to(tl.float64)
        is_here = (chosen < 0) & (before + mass > target)
        chosen = tl.where(is_here, start, chosen)
        rest = tl.where(is_here, target - before, rest)
        last, last_before = tl.where(mass > 0, start, last), tl.where(mass > 0, before, last_before)
        before += mass
    # Rounding may push the target past the end: then the last block with a non-zero weight is used.
    rest = tl.where(chosen < 0, target - last_before, rest)
    chosen = tl.where(chosen < 0, last, chosen)

    block = tl.load(words + chosen + places, mask=chosen + places < size, other=float("-inf")).to(tl.float32)
    weights = tl.exp((block - highest) / heat)
    place = tl.sum((tl.cumsum(weights, 0) <= rest.to(tl.float32)).to(tl.int32), 0)
    place = tl.minimum(place, tl.max(tl.where(weights > 0, places, 0), 0))
    token = chosen + place
    tl.store(tokens + row, token.to(tl.int64))
    picked = tl.load(words + token).to(tl.float32)
    tl.store(logprobs + row, picked - highest - tl.log(plain).to(tl.float32))
