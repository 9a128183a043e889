"""Triton kernels for attention over slots on a GPU.

Both read keys and values in place, `(slots, heads, capacity, head_dim)`, up to each slot's real length. They use the
online softmax with running maximum and sum, so scores are never written to memory.

prefill   one program per head and block of `BLOCK_M` queries of one slot
decode    one program per key head and slot, or several if there are few slots: each takes a part of the keys, and a
          second kernel combines the parts. The query heads that share a key head are the rows of one matrix product.
"""

# ruff: noqa: N803, N806 (capitals are compile-time constants of a kernel)
# Triton has no types, and is not installed where there is no GPU:
# mypy: disable-error-code="import,no-untyped-def,untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from quaere.policies.native.attention import Kind
from quaere.policies.native.kv_cache import Span

BLOCK_M = 64
BLOCK_N = 64
MAX_PARTS = 16


def query_blocks(spans: list[Span], device: torch.device) -> Tensor:
    """Blocks of queries as `(blocks, 4)` int32: slot, offset in the packed sequence, position in the slot, length."""
    blocks = [
        (span.slot, span.offset + first, span.start + first, min(BLOCK_M, span.length - first))
        for span in spans
        for first in range(0, span.length, BLOCK_M)
    ]
    return torch.tensor(blocks, dtype=torch.int32, device=device)


def prefill_attention(query: Tensor, keys: Tensor, values: Tensor, blocks: Tensor, kind: Kind) -> Tensor:
    """Attention of packed queries `(1, heads, tokens, head_dim)` of slots; returns `(1, tokens, heads, head_dim)`."""
    _, heads, tokens, head_dim = query.shape
    output = query.new_empty(1, tokens, heads, values.shape[3])
    _prefill_kernel[(len(blocks), heads)](
        query, keys, values, output, blocks, query if kind.sinks is None else kind.sinks,
        kind.scale, kind.window or 0, kind.softcap or 0.0,
        query.stride(1), query.stride(2),
        keys.stride(0), keys.stride(1), keys.stride(2),
        values.stride(0), values.stride(1), values.stride(2),
        output.stride(1), output.stride(2),
        GROUPS=heads // keys.shape[1], HEAD_DIM=head_dim, VALUE_DIM=values.shape[3],
        BLOCK_D=_padded(head_dim), BLOCK_V=_padded(values.shape[3]), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        HAS_SINKS=kind.sinks is not None, EXACT=query.dtype == torch.float32, num_warps=4, num_stages=2,
    )  # fmt: skip
    return output


def decode_attention(
    query: Tensor, keys: Tensor, values: Tensor, slots: Tensor, positions: Tensor, kind: Kind
) -> Tensor:
    """Attention of one query per slot, packed `(1, heads, rows, head_dim)`; returns `(1, rows, heads, head_dim)`."""
    _, heads, rows, head_dim = query.shape
    key_heads, value_dim = keys.shape[1], values.shape[3]
    groups = heads // key_heads
    parts = num_parts(rows * key_heads)
    output = query.new_empty(1, rows, heads, value_dim)
    # Per part: the unnormalised result, followed by the maximum score and the sum of its weights.
    partial = query.new_empty((rows, heads, parts, value_dim + 2) if parts > 1 else (1,), dtype=torch.float32)
    _decode_kernel[(rows, key_heads, parts)](
        query, keys, values, output, partial, slots, positions, query if kind.sinks is None else kind.sinks,
        kind.scale, kind.window or 0, kind.softcap or 0.0,
        query.stride(1), query.stride(2),
        keys.stride(0), keys.stride(1), keys.stride(2),
        values.stride(0), values.stride(1), values.stride(2),
        GROUPS=groups, HEAD_DIM=head_dim, VALUE_DIM=value_dim, BLOCK_G=_padded(groups),
        BLOCK_D=_padded(head_dim), BLOCK_V=_padded(value_dim), BLOCK_N=BLOCK_N, PARTS=parts,
        HAS_SINKS=kind.sinks is not None, EXACT=query.dtype == torch.float32, num_warps=4, num_stages=2,
    )  # fmt: skip
    if parts > 1:
        _combine_kernel[(rows * heads,)](
            partial, output, VALUE_DIM=value_dim, BLOCK_V=_padded(value_dim), PARTS=parts, BLOCK_P=_padded(parts)
        )
    return output


def num_parts(programs: int) -> int:
    """Number of parts to split the keys into, so that a GPU with about 130 processors is busy.

    It must not depend on the allocated capacity, which grows during a run: sums split at other places round
    differently, so a resumed run would not repeat bit for bit.

    num_parts(768) == 1; num_parts(6) == 16
    """
    return max(1, min(MAX_PARTS, 264 // max(1, programs)))


def _padded(size: int) -> int:
    """Block size for a matrix product: a power of two, at least 16."""
    return max(16, int(triton.next_power_of_2(size)))


@triton.jit
def _prefill_kernel(
    query, keys, values, output, blocks, sinks, scale, window, softcap,
    query_head, query_token,
    key_slot, key_head, key_token,
    value_slot, value_head, value_token,
    output_token, output_head,
    GROUPS: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    HAS_SINKS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    PRECISION: tl.constexpr = "ieee" if EXACT else "tf32"
    block = blocks + tl.program_id(0) * 4
    slot = tl.load(block).to(tl.int64)
    offset = tl.load(block + 1)
    start = tl.load(block + 2)
    count = tl.load(block + 3)
    head = tl.program_id(1)
    m = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    v = tl.arange(0, BLOCK_V)
    here = m < count
    q = tl.load(
        query + head * query_head + (offset + m)[:, None] * query_token + d[None, :],
        mask=here[:, None] & (d < HEAD_DIM)[None, :], other=0.0,
    )  # fmt: skip
    key_base = keys + slot * key_slot + (head // GROUPS) * key_head
    value_base = values + slot * value_slot + (head // GROUPS) * value_head
    asked = start + m
    best = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    if HAS_SINKS:  # a key that was seen already, whose value is zero
        best = tl.zeros([BLOCK_M], tl.float32) + tl.load(sinks + head).to(tl.float32)
        total += 1.0
    result = tl.zeros([BLOCK_M, BLOCK_V], tl.float32)
    end = start + count
    first = 0
    if window > 0:
        first = tl.maximum(0, (start - window + 1) // BLOCK_N * BLOCK_N)
    for begin in range(first, end, BLOCK_N):
        at = begin + n
        seen = (at[None, :] <= asked[:, None]) & (at < end)[None, :]
        if window > 0:
            seen = seen & (at[None, :] > asked[:, None] - window)
        k = tl.load(
            key_base + at[None, :] * key_token + d[:, None],
            mask=(at < end)[None, :] & (d < HEAD_DIM)[:, None], other=0.0,
        )  # fmt: skip
        scores = tl.dot(q, k, input_precision=PRECISION) * scale
        if softcap > 0:
            scores = softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)
        scores = tl.where(seen, scores, float("-inf"))
        new_best = tl.maximum(best, tl.max(scores, 1))
        # For a query without any visible key so far, -inf - -inf would be NaN.
        safe = tl.where(new_best == float("-inf"), 0.0, new_best)
        weights = tl.exp(scores - safe[:, None])
        shrink = tl.exp(best - safe)
        total = total * shrink + tl.sum(weights, 1)
        w = tl.load(
            value_base + at[:, None] * value_token + v[None, :],
            mask=(at < end)[:, None] & (v < VALUE_DIM)[None, :], other=0.0,
        )  # fmt: skip
        result = result * shrink[:, None] + tl.dot(weights.to(w.dtype), w, input_precision=PRECISION)
        best = new_best
    total = tl.where(total == 0, 1.0, total)
    tl.store(
        output + (offset + m)[:, None] * output_token + head * output_head + v[None, :],
        (result / total[:, None]).to(output.dtype.element_ty),
        mask=here[:, None] & (v < VALUE_DIM)[None, :],
    )


@triton.jit
def _decode_kernel(
    query, keys, values, output, partial, slots, positions, sinks, scale, window, softcap,
    query_head, query_token,
    key_slot, key_head, key_token,
    value_slot, value_head, value_token,
    GROUPS: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_G: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr,
    HAS_SINKS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    PRECISION: tl.constexpr = "ieee" if EXACT else "tf32"
    row = tl.program_id(0)
    key_head_number = tl.program_id(1)
    part = tl.program_id(2)
    heads = tl.num_programs(1) * GROUPS
    slot = tl.load(slots + row).to(tl.int64)
    end = tl.load(positions + row).to(tl.int32) + 1
    first = 0
    if window > 0:
        first = tl.maximum(0, end - window)
    # This part's share of the keys, in whole blocks.
    share = tl.cdiv(tl.cdiv(end - first, BLOCK_N), PARTS) * BLOCK_N
    begin_part = first + part * share
    end_part = tl.minimum(end, begin_part + share)
    g = tl.arange(0, BLOCK_G)
    n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    v = tl.arange(0, BLOCK_V)
    head = key_head_number * GROUPS + g
    q = tl.load(
        query + head[:, None] * query_head + row * query_token + d[None, :],
        mask=(g < GROUPS)[:, None] & (d < HEAD_DIM)[None, :], other=0.0,
    )  # fmt: skip
    key_base = keys + slot * key_slot + key_head_number * key_head
    value_base = values + slot * value_slot + key_head_number * value_head
    best = tl.full([BLOCK_G], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_G], tl.float32)
    if HAS_SINKS:  # a key that the first part has seen already, whose value is zero
        scores = tl.load(sinks + head, mask=g < GROUPS, other=0.0).to(tl.float32)
        best = tl.where(part == 0, scores, float("-inf"))
        total = tl.where(part == 0, 1.0, 0.0) + total
    result = tl.zeros([BLOCK_G, BLOCK_V], tl.float32)
    for begin in range(begin_part, end_part, BLOCK_N):
        at = begin + n
        k = tl.load(
            key_base + at[None, :] * key_token + d[:, None],
            mask=(at < end_part)[None, :] & (d < HEAD_DIM)[:, None], other=0.0,
        )  # fmt: skip
        scores = tl.dot(q, k, input_precision=PRECISION) * scale
        if softcap > 0:
            scores = softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)
        scores = tl.where((at < end_part)[None, :], scores, float("-inf"))
        new_best = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp(scores - new_best[:, None])
        shrink = tl.exp(best - new_best)
        total = total * shrink + tl.sum(weights, 1)
        w = tl.load(
            value_base + at[:, None] * value_token + v[None, :],
            mask=(at < end_part)[:, None] & (v < VALUE_DIM)[None, :], other=0.0,
        )  # fmt: skip
        result = result * shrink[:, None] + tl.dot(weights.to(w.dtype), w, input_precision=PRECISION)
        best = new_best
    there = (g < GROUPS)[:, None] & (v < VALUE_DIM)[None, :]
    if PARTS == 1:
        target = output + (row * heads + head)[:, None] * VALUE_DIM + v[None, :]
        tl.store(target, (result / total[:, None]).to(output.dtype.element_ty), mask=there)
    else:
        target = partial + ((row * heads + head) * PARTS + part) * (VALUE_DIM + 2)
        tl.store(target[:, None] + v[None, :], result, mask=there)
        tl.store(target + VALUE_DIM, best, mask=g < GROUPS)
        tl.store(target + VALUE_DIM + 1, total, mask=g < GROUPS)


@triton.jit
def _combine_kernel(
    partial, output, VALUE_DIM: tl.constexpr, BLOCK_V: tl.constexpr, PARTS: tl.constexpr, BLOCK_P: tl.constexpr
):
    row = tl.program_id(0)
    p = tl.arange(0, BLOCK_P)
    v = tl.arange(0, BLOCK_V)
    base = partial + (row * PARTS + p) * (VALUE_DIM + 2)
    best = tl.load(base + VALUE_DIM, mask=p < PARTS, other=float("-inf"))
    total = tl.load(base + VALUE_DIM + 1, mask=p < PARTS, other=0.0)
    weight = tl.exp(best - tl.max(best, 0))  # a part without keys has -inf, so its weight is 0
    results = tl.load(base[:, None] + v[None, :], mask=(p < PARTS)[:, None] & (v < VALUE_DIM)[None, :], other=0.0)
    summed = tl.sum(results * weight[:, None], 0) / tl.sum(total * weight, 0)
    tl.store(output + row * VALUE_DIM + v, summed.to(output.dtype.element_ty), mask=v < VALUE_DIM)
