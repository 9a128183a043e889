"""Policy-gradient losses and KL estimates from log-probs and advantages.

Shapes: B sequences, T tokens. `mask_BT` is true where the policy sampled the token. Values at all other tokens
(prompts, tool responses, padding) never affect the loss or its gradient.

Advantages may be given per sequence (B) or per token (BT).

A batch may be split into micro-batches. Each divides by the count of the *whole* batch, so their losses add up to the
loss of the batch:

    denominator = count_terms(mask_BT, "token_mean")
    for rows in micro_batches:
        policy_gradient_loss(logprobs_BT[rows], ..., mask_BT[rows], denominator=denominator).backward()
"""

# ruff: noqa: N803, N806 (capitals are shapes)
from __future__ import annotations

from typing import Literal

import torch
from msgspec import Struct
from torch import Tensor

Aggregation = Literal["token_mean", "sequence_mean", "token_sum"]
Divergence = Literal["k1", "k2", "k3"]

# Bound on log-ratios before exp. e^20 is half a billion: beyond any meaningful ratio, and below float32's overflow.
MAX_LOG_RATIO = 20.0

# ------------------------------------------------------------------------------------------------------- aggregation


def aggregate(
    values_BT: Tensor, mask_BT: Tensor, how: Aggregation = "token_mean", *, denominator: int | None = None
) -> Tensor:
    """Reduce token values to one number for the batch.

    - "token_mean": mean over all tokens; long sequences weigh more.
    - "sequence_mean": mean over the tokens of each sequence, then over sequences; all sequences weigh the same.
    - "token_sum": sum over the tokens of each sequence, then mean over sequences.

    Sequences without an unmasked token are not counted. For a micro-batch, `denominator` is the count of the whole
    batch, from `count_terms`.

        values [[1, 3], [5, -]]: token_mean -> 3.0, sequence_mean -> 3.5, token_sum -> 4.5
    """
    mask_BT = _as_mask(values_BT, mask_BT)
    values_BT = _blank(values_BT, mask_BT)
    if denominator is not None and denominator < 0:
        raise ValueError(f"denominator must be 0 or more, not {denominator}")
    count = count_terms(mask_BT, how) if denominator is None else denominator
    if how == "sequence_mean":
        total = (values_BT.sum(dim=-1) / mask_BT.sum(dim=-1).clamp(min=1)).sum()
    else:
        total = values_BT.sum()
    return total / max(count, 1)


def count_terms(mask_BT: Tensor, how: Aggregation = "token_mean") -> int:
    """The divisor of `aggregate`: number of tokens, or of sequences with a token. Counts of micro-batches add up.

    count_terms(tensor([[1, 1], [1, 0], [0, 0]]), "token_mean") -> 3
    count_terms(tensor([[1, 1], [1, 0], [0, 0]]), "sequence_mean") -> 2
    """
    if how == "token_mean":
        return int(mask_BT.bool().sum())
    if how in ("sequence_mean", "token_sum"):
        return int(mask_BT.bool().any(dim=-1).sum())
    raise ValueError(f"how must be 'token_mean', 'sequence_mean' or 'token_sum', not {how!r}")


# ------------------------------------------------------------------------------------------------------------ losses


def policy_gradient_loss(
    logprobs_BT: Tensor,
    advantages: Tensor,
    mask_BT: Tensor,
    *,
    how: Aggregation = "token_mean",
    denominator: int | None = None,
) -> Tensor:
    """-log pi * A: the strictly on-policy objective of HRPO, without ratio and clipping (Dr. Zero, Eq. 2).

    The paper's log pi of a whole sequence is `how="token_sum"`. The default is the mean over tokens, which keeps long
    episodes from dominating the gradient.

        logprobs [[-1, -2]], advantage 3, both tokens sampled -> (3 + 6) / 2 = 4.5
    """
    mask_BT = _as_mask(logprobs_BT, mask_BT)
    values_BT = -_blank(logprobs_BT, mask_BT) * _per_token(advantages, mask_BT)
    return aggregate(values_BT, mask_BT, how, denominator=denominator)


class ClippedLoss(Struct, frozen=True, eq=False):
    """The clipped loss, and the number of tokens whose gradient is clipped. Counts of micro-batches add up.

    Counts are tensors: reading one synchronises with the device.

        ClippedLoss(loss=tensor(-0.32), num_tokens=tensor(100), num_clipped_low=tensor(2),
                    num_clipped_high=tensor(3)).clip_fraction -> 0.05
    """

    loss: Tensor
    num_tokens: Tensor
    num_clipped_low: Tensor
    num_clipped_high: Tensor

    @property
    def clip_fraction(self) -> float:
        """Share of tokens whose gradient is clipped."""
        return int(self.num_clipped_low + self.num_clipped_high) / max(int(self.num_tokens), 1)


def clipped_loss(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages: Tensor,
    mask_BT: Tensor,
    *,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    how: Aggregation = "token_mean",
    denominator: int | None = None,
) -> ClippedLoss:
    """PPO's clipped loss: -min(ratio * A, clip(ratio, 1 - epsilon, 1 + epsilon_high) * A), with ratio = pi / pi_old.

    Dr. Zero's Eq. 5 writes the ratio of whole answers; here, as in GRPO, each token has its own. A token is clipped,
    and has no gradient, if its ratio is already outside the band in the direction of its advantage.

        ratio 1.5, advantage 2, epsilon 0.2 -> loss -min(3.0, 2.4) = -2.4, clipped high
        ratio 1.5, advantage -2, epsilon 0.2 -> loss -min(-3.0, -2.4) = 3.0, not clipped
    """
    epsilon_high = epsilon if epsilon_high is None else epsilon_high
    if not (0 <= epsilon < 1 and epsilon_high >= 0):
        raise ValueError(
            f"clipping needs 0 <= epsilon < 1 and epsilon_high >= 0, not epsilon={epsilon} and "
            f"epsilon_high={epsilon_high}"
        )
    mask_BT = _as_mask(logprobs_BT, mask_BT)
    advantages_BT = _per_token(advantages, mask_BT)
    log_ratio_BT = _blank(logprobs_BT, mask_BT) - _blank(old_logprobs_BT.detach(), mask_BT)
    ratio_BT = log_ratio_BT.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    bounded_BT = ratio_BT.clamp(1 - epsilon, 1 + epsilon_high)
    values_BT = -torch.minimum(ratio_BT * advantages_BT, bounded_BT * advantages_BT)
    # Masked tokens are counted in neither: their advantage is 0.
    low_BT = (ratio_BT < 1 - epsilon) & (advantages_BT < 0)
    high_BT = (ratio_BT > 1 + epsilon_high) & (advantages_BT > 0)
    return ClippedLoss(
        loss=aggregate(values_BT, mask_BT, how, denominator=denominator),
        num_tokens=mask_BT.sum(),
        num_clipped_low=low_BT.sum(),
        num_clipped_high=high_BT.sum(),
    )


# ------------------------------------------------------------------------------------------------------- divergence


def estimate_kl(logprobs_BT: Tensor, ref_logprobs_BT: Tensor, kind: Divergence = "k3") -> Tensor:
    """Estimate of KL(pi || pi_ref) per token, from tokens sampled by pi (the regulariser of Dr. Zero, Eq. 2 and 5).

    With d = log pi_ref - log pi (J. Schulman, Approximating KL Divergence, 2020):

    - "k1": -d. Unbiased, high variance, may be negative. Useless as a loss: its expected gradient is 0.
    - "k2": d^2 / 2. Biased, never negative; its expected gradient is that of the KL divergence.
    - "k3": e^d - d - 1. Unbiased, low variance, never negative; the usual choice.

        log pi = -1, log pi_ref = -1.5: k1 -> 0.5, k2 -> 0.125, k3 -> 0.1065
    """
    difference_BT = ref_logprobs_BT.detach() - logprobs_BT
    if kind == "k1":
        return -difference_BT
    if kind == "k2":
        return difference_BT.square() / 2
    if kind == "k3":
        bounded_BT = difference_BT.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        # expm1, because e^d - 1 cancels to rounding error where the policies hardly differ.
        return bounded_BT.expm1() - bounded_BT
    raise ValueError(f"kind must be 'k1', 'k2' or 'k3', not {kind!r}")


def kl_loss(
    logprobs_BT: Tensor,
    ref_logprobs_BT: Tensor,
    mask_BT: Tensor,
    *,
    kind: Divergence = "k3",
    how: Aggregation = "token_mean",
    denominator: int | None = None,
) -> Tensor:
    """KL estimate of a batch, to be added to a loss with weight beta (Dr. Zero, Eq. 2 and 5).

    log pi [[-1]], log pi_ref [[-1.5]], kind "k2" -> 0.125
    """
    mask_BT = _as_mask(logprobs_BT, mask_BT)
    values_BT = estimate_kl(_blank(logprobs_BT, mask_BT), _blank(ref_logprobs_BT, mask_BT), kind)
    return aggregate(values_BT, mask_BT, how, denominator=denominator)


# ------------------------------------------------------------------------------------------------------------ shapes


def _as_mask(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    if values_BT.dim() != 2 or values_BT.shape != mask_BT.shape:
        raise ValueError(f"values and mask must both be (B, T): got {(*values_BT.shape,)} and {(*mask_BT.shape,)}")
    return mask_BT.bool()


def _blank(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    # `where` instead of a product: 0 * nan is nan, and padding may hold any value. It comes before any other function,
    # because in the backward pass an infinite derivative times 0 is nan too.
    return torch.where(mask_BT, values_BT, 0.0)


def _per_token(advantages: Tensor, mask_BT: Tensor) -> Tensor:
    advantages = advantages.detach()
    if advantages.shape == mask_BT.shape[:1]:
        advantages = advantages[:, None].expand(mask_BT.shape)
    if advantages.shape != mask_BT.shape:
        raise ValueError(
            f"advantages must be (B,) or (B, T) with (B, T) = {(*mask_BT.shape,)}, not {(*advantages.shape,)}"
        )
    return _blank(advantages, mask_BT)
