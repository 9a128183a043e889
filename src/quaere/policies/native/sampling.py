"""Sampling of tokens from logits.

Each request has its own seed; the random number of its n-th token is a pure function of (seed, n), so the tokens of a
request do not depend on the other rows of the batch. All operations are tensor arithmetic without reading any value, so
that they can be part of a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from quaere.policies.sampler import SamplingParams

_MASK = (1 << 64) - 1
_STRIDE, _STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

_BLOCK = 256  # tokens of the vocabulary

Draw = Literal["greedy", "plain", "cut"]


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1) from a seed and an index, by the splitmix64 finaliser.

    uniform(7, 0) == uniform(7, 0) != uniform(7, 1)
    """
    return float(uniforms(torch.tensor([signed(seed)]), torch.tensor([index])))


def uniforms(seeds: Tensor, indices: Tensor) -> Tensor:
    """One float64 number in [0, 1) per int64 seed and index; arithmetic wraps at 64 bits."""
    state = seeds * signed(_STRIDE) + (indices + 1) * signed(_STEP)
    for _ in range(2):
        state = state + signed(_STRIDE)
        state = (state ^ _shifted(state, 30)) * signed(_FIRST)
        state = (state ^ _shifted(state, 27)) * signed(_SECOND)
        state = state ^ _shifted(state, 31)
    return _shifted(state, 11).double() / (1 << 53)


def signed(number: int) -> int:
    """The int64 with the same 64 bits.

    signed(0xFFFFFFFFFFFFFFFF) == -1
    """
    number &= _MASK
    return number - (1 << 64) if number >> 63 else number


def _shifted(state: Tensor, bits: int) -> Tensor:
    """Logical shift right: zeros are shifted in, as for an unsigned number."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)


def how_to_draw(params: Sequence[SamplingParams]) -> Draw:
    """The cheapest sampling method that serves all these rows: `cut` (top-k and top-p) serves any."""
    if all(param.temperature == 0 for param in params):
        return "greedy"
    plain = all(param.temperature > 0 and param.top_k == 0 and param.top_p >= 1 for param in params)
    return "plain" if plain else "cut"


def pick_tokens(
    logits: Tensor, draw: Draw, temperatures: Tensor, top_k: Tensor, top_p: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """One token per row of float32 `logits`, and its log-prob at temperature 1 without top-k and top-p.

    Logits [[0.0, 2.0]] at temperature 0 give token 1 with log-prob -0.126928...
    """
    if draw == "greedy":
        tokens = logits.argmax(dim=-1)
    else:
        # A temperature below 1e-6 would overflow, and picks the best token anyway.
        scaled = logits / temperatures.clamp(min=1e-6)[:, None]
        if draw == "cut":
            scaled = _cut(scaled, top_k, top_p)
        tokens = _invert(scaled, numbers)
        if draw == "cut":
            tokens = torch.where(temperatures > 0, tokens, logits.argmax(dim=-1))
    picked = logits.gather(1, tokens[:, None])[:, 0] - logits.logsumexp(-1)
    return tokens, picked


def _cut(logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """The logits after top-k, then top-p, per row; the most probable token always stays."""
    size = logits.shape[1]
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(size, device=logits.device)
    kept = torch.where(top_k > 0, top_k, size)
    ordered = ordered.masked_fill(ranks >= kept[:, None], float("-inf"))
    mass = ordered.double().softmax(-1).cumsum(-1)
    # A token is removed if the tokens before it already reach the mass top_p.
    gone = torch.zeros_like(mass, dtype=torch.bool)
    gone[:, 1:] = mass[:, :-1] >= top_p[:, None]
    ordered = ordered.masked_fill(gone & (top_p < 1)[:, None], float("-inf"))
    return torch.full_like(logits, float("-inf")).scatter(1, order, ordered)


def _invert(logits: Tensor, numbers: Tensor) -> Tensor:
    """Invert the cumulative distribution at one uniform number per row.

    The block of the vocabulary is found first, then the token in it: both sums are in float64, without a float64 copy
    of all probabilities.
    """
    rows, size = logits.shape
    blocks = -(-size // _BLOCK)
    weights = torch.nn.functional.pad(logits.softmax(-1), (0, blocks * _BLOCK - size)).view(rows, blocks, _BLOCK)
    before = weights.sum(-1, dtype=torch.float64).cumsum(-1)
    targets = numbers[:, None] * before[:, -1:]
    block = torch.searchsorted(before, targets, right=True).clamp(max=blocks - 1)
    rest = targets - torch.where(block > 0, before.gather(1, (block - 1).clamp(min=0)), 0.0)
    within = weights.gather(1, block[:, :, None].expand(-1, -1, _BLOCK))[:, 0].double().cumsum(-1)
    place = torch.searchsorted(within, rest, right=True)
    # Rounding may push a number past the last token with a non-zero probability.
    last = (within < within[:, -1:]).sum(-1, keepdim=True)
    return (block * _BLOCK + torch.minimum(place, last))[:, 0]
