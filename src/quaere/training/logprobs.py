"""Log-probs of given tokens under a model, without the logits of the whole batch in memory at once.

Logits are the largest tensor of a training step. They are needed only at tokens that carry loss, and only one value of
each row; so those positions are selected first and projected in chunks. The gradient with respect to the states is
computed in the forward pass while a chunk's logits exist. The gradient of a trainable head depends on the incoming
gradient, which is known only in the backward pass, where each chunk is projected again except the last, whose result is
kept.

Shapes: N tokens that carry loss, D hidden size, V vocabulary size.
"""

# ruff: noqa: N803, N806 (capitals are shapes)
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from quaere.policies.native.bridge import Head, output_head, packed_states
from quaere.training.adapters import plain_model
from quaere.training.batches import MicroBatch

CHUNK_TOKENS = 1024


def packed_logprobs(model: Any, batch: MicroBatch) -> tuple[Tensor, Tensor]:
    """Log-prob and entropy `(N,)` of every token that carries loss, given the tokens before it.

    Entropy has no gradient.
    """
    model = plain_model(model)
    states_TD = packed_states(model, batch.token_ids_T, batch.packing)
    return head_logprobs(states_TD[batch.before_N], output_head(model), batch.targets_N)


def head_logprobs(states_ND: Tensor, head: Head, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    """Log-prob of each target, and entropy, under the logits of a head on the states.

    Matrix products use the precision of autocast or of the weights, everything else float32 or better.

        head_logprobs(zeros(1, 4), Head(zeros(2, 4), None, None), tensor([1])) -> [-0.693], [0.693]
    """
    device = states_ND.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else head.weight.dtype
    with torch.autocast(device, enabled=False):
        found: tuple[Tensor, Tensor] = _HeadLogProbs.apply(
            states_ND, head.weight, head.bias, targets_N, head.softcap, dtype
        )
    return found


class _HeadLogProbs(torch.autograd.Function):  # type: ignore[misc]
    """From states to log-probs as one autograd function, so that no logits outlive their chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        states_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        softcap: float | None,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        """Log-probs and entropy.

        If gradients are needed, also the gradient of each log-prob with respect to its state.
        """
        needs_states, *needs_head = ctx.needs_input_grad[:3]
        head = Head(weight_VD.to(dtype), None if bias_V is None else bias_V.to(dtype), softcap)
        precise = torch.promote_types(dtype, torch.float32)
        logprobs_N, entropy_N, sums_N = (states_ND.new_empty(len(targets_N), dtype=precise) for _ in range(3))
        moves_ND = torch.empty_like(states_ND) if needs_states else None
        pulls = None
        for chunk in _chunks(len(targets_N)):
            logits = _logits(states_ND[chunk].to(dtype), head, precise)
            sums_N[chunk] = sums = logits.logsumexp(dim=-1)
            slopes = _slopes(logits, softcap) if any(ctx.needs_input_grad) else None
            logits -= sums[:, None]  # log-probs from here on
            probabilities = logits.exp()
            logprobs_N[chunk] = logits.gather(-1, targets_N[chunk, None])[:, 0]
            # An impossible token (-inf) contributes 0; without the clamp, 0 * -inf would be NaN.
            entropy_N[chunk] = -(logits.clamp_(min=torch.finfo(precise).min).mul_(probabilities)).sum(dim=-1)
            del logits
            if any(ctx.needs_input_grad):
                pulls = _pulls(probabilities, slopes, targets_N[chunk]).to(dtype)
            if moves_ND is not None:
                moves_ND[chunk] = pulls @ head.weight
        again = (states_ND, weight_VD, bias_V, targets_N, sums_N, pulls) if any(needs_head) else ()
        ctx.save_for_backward(moves_ND, *again)
        ctx.softcap, ctx.dtype = softcap, dtype
        ctx.mark_non_differentiable(entropy_N)
        return logprobs_N, entropy_N

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, pull_N: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the states, and of the head if it is trained."""
        moves_ND, *again = ctx.saved_tensors
        states_grad = None if moves_ND is None else (pull_N[:, None] * moves_ND).to(moves_ND.dtype)
        head_grads = _head_gradients(ctx, pull_N, *again) if again else (None, None)
        return states_grad, *head_grads, None, None, None


def _head_gradients(
    ctx: Any,
    pull_N: Tensor,
    states_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    sums_N: Tensor,
    last_pulls: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of weight and bias. The last chunk's logit gradients were kept; the others are computed again."""
    dtype, precise = ctx.dtype, sums_N.dtype
    _, for_weight, for_bias, *_ = ctx.needs_input_grad
    head = Head(weight_VD.to(dtype), None if bias_V is None else bias_V.to(dtype), ctx.softcap)
    weight_grad = torch.zeros_like(weight_VD) if for_weight else None
    bias_grad = torch.zeros_like(bias_V) if for_bias and bias_V is not None else None
    for chunk in _chunks(len(targets_N)):
        if chunk.stop >= len(targets_N):
            pulls = last_pulls
        else:
            logits = _logits(states_ND[chunk].to(dtype), head, precise)
            slopes = _slopes(logits, ctx.softcap)
            pulls = _pulls(logits.sub_(sums_N[chunk, None]).exp_(), slopes, targets_N[chunk]).to(dtype)
        if weight_grad is not None:
            scaled = (states_ND[chunk] * pull_N[chunk, None]).to(dtype)  # scale the states: D columns, not V
            if weight_grad.dtype == dtype:
                weight_grad.addmm_(pulls.T, scaled)
            else:
                weight_grad += pulls.T @ scaled
        if bias_grad is not None:
            bias_grad += pull_N[chunk].to(dtype) @ pulls
    return weight_grad, bias_grad


def _chunks(count: int) -> Iterator[slice]:
    for start in range(0, count, CHUNK_TOKENS):
        yield slice(start, start + CHUNK_TOKENS)


def _logits(states_ND: Tensor, head: Head, precise: torch.dtype) -> Tensor:
    logits_NV = linear(states_ND, head.weight, head.bias).to(precise)
    if head.softcap is None:
        return logits_NV
    return logits_NV.div_(head.softcap).tanh_().mul_(head.softcap)


def _slopes(logits_NV: Tensor, softcap: float | None) -> Tensor | None:
    """Derivative of each logit with respect to its value before the softcap; None means 1."""
    return None if softcap is None else 1 - (logits_NV / softcap).square()


def _pulls(probabilities_NV: Tensor, slopes_NV: Tensor | None, targets_N: Tensor) -> Tensor:
    """Gradient of the target's log-prob with respect to the raw logits: one-hot minus probabilities. In place."""
    pulls_NV = probabilities_NV.neg_()
    pulls_NV.scatter_add_(1, targets_N[:, None], torch.ones_like(targets_N[:, None], dtype=pulls_NV.dtype))
    return pulls_NV if slopes_NV is None else pulls_NV.mul_(slopes_NV)
