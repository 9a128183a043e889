"""From logits to tokens.

Each request brings its own seed; the random number of its n-th token is a pure function of (seed, n), so what a request
samples does not depend on who else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from quaere.policies.sampler import SamplingParams

_MASK = (1 << 64) - 1


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1) from a seed and a position, by the splitmix64 finaliser.

    uniform(7, 0) == uniform(7, 0) != uniform(7, 1)
    """
    state = (seed * 0x9E3779B97F4A7C15 + (index + 1) * 0xD1B54A32D192ED03) & _MASK
    for _ in range(2):
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return (state >> 11) / (1 << 53)


def pick_tokens(
    logits: Tensor, params: Sequence[SamplingParams], uniforms: Sequence[float]
) -> tuple[list[int], list[float]]:
    """One token per row of float32 `logits`, and its log-prob under the unscaled, uncut distribution.

    pick_tokens(tensor([[0.0, 2.0]]), [SamplingParams(temperature=0)], [0.3]) -> ([1], [-0.126928...])
    """
    logprobs = torch.log_softmax(logits, dim=-1)
    tokens = logits.argmax(dim=-1)
    warm = [row for row, param in enumerate(params) if param.temperature > 0]
    if warm:
        chosen = [params[row] for row in warm]
        scaled = _cut(_scale(logits[warm], chosen), chosen)
        tokens[warm] = _invert(scaled, torch.tensor([uniforms[row] for row in warm], dtype=torch.float64))
    picked = logprobs.gather(1, tokens[:, None])[:, 0]
    return tokens.tolist(), picked.tolist()


def _scale(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    temperatures = torch.tensor([param.temperature for param in params], device=logits.device)
    # Subtract the maximum first, so that a tiny temperature overflows nothing.
    return (logits - logits.amax(-1, keepdim=True)) / temperatures[:, None]


def _cut(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Apply top-k, then top-p, per row; the most probable token always stays."""
    if all(param.top_k == 0 and param.top_p >= 1 for param in params):
        return logits
    size = logits.shape[1]
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(size, device=logits.device)
    top_k = torch.tensor([min(param.top_k, size) or size for param in params], device=logits.device)
    ordered = ordered.masked_fill(ranks >= top_k[:, None], float("-inf"))
    top_p = torch.tensor([param.top_p for param in params], device=logits.device, dtype=torch.float64)
    mass = ordered.double().softmax(-1).cumsum(-1)
    # A token goes when the ones before it already hold the mass.
    gone = torch.zeros_like(mass, dtype=torch.bool)
    gone[:, 1:] = mass[:, :-1] >= top_p[:, None]
    ordered = ordered.masked_fill(gone & (top_p < 1)[:, None], float("-inf"))
    return torch.full_like(logits, float("-inf")).scatter(1, order, ordered)


def _invert(logits: Tensor, uniforms: Tensor) -> Tensor:
    """Invert the cumulative distribution at one uniform number per row, in float64."""
    cumulative = logits.double().softmax(-1).cumsum(-1)
    targets = uniforms.to(logits.device)[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, targets, right=True)[:, 0]
    return tokens.clamp(max=logits.shape[1] - 1)
