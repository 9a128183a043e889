"""Advantages, the policy-gradient loss and KL estimates: functions on tensors.

An advantage says how much better an episode's reward is than its baseline. The first three estimators standardise the
rewards of a group and differ in the group; the others do not standardise.

    grpo               the answers to one question                        Dr. Zero, Eq. 5
    hrpo               the questions with one requested number of hops    Dr. Zero, Eq. 3
    reinforce_global   the whole batch                                    the global baseline of REINFORCE++
    ema_centered       a moving average of earlier steps' rewards         SCORE, Algorithm 2
    pair_centered      another choice's rewards on the same questions
    dpo_advantages     the chosen and the rejected of a pair              Rafailov et al. 2023, Eq. 7

Losses take log-probs, advantages per sequence (B) or per token (BT), and `mask_BT`, which is true where the policy
sampled the token. Values at all other tokens (prompts, tool responses, padding) never affect a loss or its gradient.
There is no clipped loss: with one update per batch every ratio pi / pi_old is 1, where clipping never acts and the
gradient is that of `policy_gradient_loss`. If a batch gives several updates (SCORE), the ratio is taken as 1 in all.

A batch may be split into micro-batches. Each divides by the count of the *whole* batch, so their losses add up to the
loss of the batch:

    denominator = count_terms(mask_BT, "token_mean")
    for rows in micro_batches:
        policy_gradient_loss(logprobs_BT[rows], ..., mask_BT[rows], denominator=denominator).backward()

Shapes: B episodes or sequences, T tokens, G groups, P pairs.
"""

# ruff: noqa: N803, N806 (capitals are shapes)
import math
from collections.abc import Sequence
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor

from quaere.objectives import DELTA, Aggregation, Divergence, LoneGroup

# Bound on log-ratios before exp. e^20 is half a billion: beyond any meaningful ratio, and below float32's overflow.
MAX_LOG_RATIO = 20.0

# --------------------------------------------------------------------------------------------------------- advantages


class Advantages(Struct, frozen=True, eq=False):
    """One advantage per episode, and counts of groups without a learning signal.

    `num_lone` is the number of groups with one episode, `num_zero_variance` that of larger groups whose rewards are all
    equal. Both have zero advantages (except groups of one under `lone_group="raw"`), so a batch full of them trains
    nothing and should raise an alarm.

        Advantages(values=tensor([0.707, -0.707, 0.0]), num_groups=2, num_lone=1, num_zero_variance=0)
    """

    values: Tensor
    num_groups: int
    num_lone: int
    num_zero_variance: int


def grpo(
    rewards: Tensor | Sequence[float],
    groups: Tensor | Sequence[int],
    *,
    delta: float = DELTA,
    unbiased: bool = True,
    lone_group: LoneGroup = "zero",
    min_std: float = 0.0,
) -> Advantages:
    """Group relative policy optimization: (r - mean) / (std + delta) over answers to one question (Dr. Zero, Eq. 5).

    `groups[i]` is the group of episode i, in any order. `unbiased` divides the sum of squares by n - 1 rather than n.
    The advantage of a group of one is 0, or with `lone_group="raw"` the reward itself (mean 0, deviation 1). A smaller
    deviation than `min_std` counts as `min_std`: otherwise a group in which one episode earned 0.1 and all others 0
    would have the same advantages as one in which it earned 1.

        grpo([1.0, 0.0, 3.0, 5.0], [7, 7, 2, 2]).values -> [0.707, -0.707, -0.707, 0.707]
    """
    dtype = rewards.dtype if isinstance(rewards, Tensor) and rewards.is_floating_point() else torch.get_default_dtype()
    # In float64: rewards that differ only by rounding would otherwise be scaled up to full advantages.
    rewards_B = torch.as_tensor(rewards, dtype=torch.float64).detach()
    ids_B = torch.as_tensor(groups, device=rewards_B.device)
    _check_rewards(rewards_B, ids_B)
    _, group_B, size_G = torch.unique(ids_B, return_inverse=True, return_counts=True)

    zero_G = rewards_B.new_zeros(len(size_G))
    mean_G = zero_G.index_add(0, group_B, rewards_B) / size_G
    square_G = zero_G.index_add(0, group_B, (rewards_B - mean_G[group_B]) ** 2)
    std_G = (square_G / (size_G - int(unbiased)).clamp(min=1)).sqrt().clamp(min=min_std)

    lone_G = size_G == 1
    highest_G = zero_G.scatter_reduce(0, group_B, rewards_B, "amax", include_self=False)
    lowest_G = zero_G.scatter_reduce(0, group_B, rewards_B, "amin", include_self=False)
    # Compares the rewards instead of testing std == 0: the mean of equal numbers may be off by a rounding.
    silent_G = highest_G == lowest_G
    num_zero_variance = int((silent_G & ~lone_G).sum())
    if lone_group == "raw":
        mean_G, std_G = mean_G.masked_fill(lone_G, 0.0), std_G.masked_fill(lone_G, 1.0)
        silent_G = silent_G & ~lone_G
    values_B = (rewards_B - mean_G[group_B]) / (std_G[group_B] + delta)
    values_B = values_B.masked_fill(silent_G[group_B], 0.0).to(dtype)
    return Advantages(values_B, len(size_G), int(lone_G.sum()), num_zero_variance)


def hrpo(rewards: Tensor | Sequence[float], hops: Tensor | Sequence[int], **options: Any) -> Advantages:
    """Hop-grouped relative policy optimization: `grpo` over questions of equal *requested* hops (Dr. Zero, Eq. 3).

    Eq. 3 as printed leaves open whether delta is inside the square root; EVE writes it outside, as here.

        hrpo([1.0, 0.0, 0.5], hops=[1, 1, 4]).values -> [0.707, -0.707, 0.0]
    """
    return grpo(rewards, hops, **options)


def reinforce_global(rewards: Tensor | Sequence[float], *, delta: float = DELTA, unbiased: bool = True) -> Advantages:
    """(r - mean) / (std + delta) over the whole batch: the global baseline that Dr. Zero compares HRPO with.

    reinforce_global([1.0, 0.0]).values -> [0.707, -0.707]
    """
    return grpo(rewards, [0] * len(rewards), delta=delta, unbiased=unbiased)


def _check_rewards(rewards_B: Tensor, ids_B: Tensor) -> None:
    if rewards_B.dim() != 1 or rewards_B.shape != ids_B.shape:
        raise ValueError(
            f"rewards and groups must have one value per episode: got shapes {(*rewards_B.shape,)} and "
            f"{(*ids_B.shape,)}"
        )
    if not torch.isfinite(rewards_B).all():
        raise ValueError("every reward must be a finite number")


class Centered(Struct, frozen=True):
    """Advantages of one step, and the baseline for the next step.

    Centered(values=(0.2,), baseline=0.18)
    """

    values: tuple[float, ...]
    baseline: float


def ema_centered(rewards: Sequence[float], baseline: float, *, beta: float = 0.7) -> Centered:
    """Rewards minus an exponential moving average: r - b, then b <- beta * b + (1 - beta) * mean(r).

    The baseline is the one from *before* this step (SCORE, Algorithm 2). It starts at 0, so positive rewards in the
    first steps have large advantages. A step without rewards leaves it unchanged.

        ema_centered([0.6], 0.4) -> Centered(values=(0.2,), baseline=0.7 * 0.4 + 0.3 * 0.6 = 0.46)
    """
    if not all(map(math.isfinite, (*rewards, baseline))):
        raise ValueError("every reward and the baseline must be finite numbers")
    if not rewards:
        return Centered((), baseline)
    mean = sum(rewards) / len(rewards)
    return Centered(tuple(reward - baseline for reward in rewards), beta * baseline + (1 - beta) * mean)


def pair_centered(rewards: Sequence[float | None], others: Sequence[float | None]) -> float | None:
    """The mean difference between two choices' rewards on the same questions; None if no question has both.

    Each choice is the other's baseline, so what is easy or hard about the questions cancels out, from the first step
    on. A question on which a reward is unknown (None) is left out.

        pair_centered([0.6, 0.4, None], [0.5, 0.1, 0.9]) -> (0.1 + 0.3) / 2 = 0.2
    """
    pairs = zip(rewards, others, strict=True)
    gaps = [one - other for one, other in pairs if one is not None and other is not None]
    if not all(map(math.isfinite, gaps)):
        raise ValueError("every reward must be a finite number or None")
    return math.fsum(gaps) / len(gaps) if gaps else None


def dpo_advantages(
    chosen: Tensor | Sequence[float], rejected: Tensor | Sequence[float], *, beta: float = 0.1
) -> Advantages:
    """Advantages for which the plain policy gradient equals that of DPO: all chosen sequences first, then all rejected.

    `chosen` and `rejected` are log-ratios of whole sequences, log pi - log pi_ref. With P pairs, DPO's loss is the mean
    of -log sigmoid(beta * (chosen - rejected)), and its gradient

        -1/P * sum of beta * sigmoid(-beta * (chosen - rejected)) * (grad log pi(chosen) - grad log pi(rejected))

    This equals the gradient of `policy_gradient_loss` with `how="token_sum"` if the advantage is twice that factor,
    because that loss divides by the 2P sequences instead of the P pairs. Pairs in which the policy already prefers the
    chosen sequence have small advantages.

        dpo_advantages([0.0], [0.0], beta=0.1).values -> [0.1, -0.1]
    """
    chosen_P = torch.as_tensor(chosen, dtype=torch.float64).detach()
    rejected_P = torch.as_tensor(rejected, dtype=torch.float64).detach()
    if chosen_P.dim() != 1 or chosen_P.shape != rejected_P.shape:
        raise ValueError(
            f"chosen and rejected must have one value per pair: got shapes {(*chosen_P.shape,)} and "
            f"{(*rejected_P.shape,)}"
        )
    if not (torch.isfinite(chosen_P).all() and torch.isfinite(rejected_P).all()):
        raise ValueError("every log-ratio must be a finite number")
    weights_P = 2 * beta * torch.sigmoid(-beta * (chosen_P - rejected_P))
    values_B = torch.cat([weights_P, -weights_P]).to(torch.get_default_dtype())
    return Advantages(values_B, num_groups=len(weights_P), num_lone=0, num_zero_variance=0)


# ------------------------------------------------------------------------------------------------------------- losses


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
    mask_BT = mask_BT.bool()
    return int((mask_BT if how == "token_mean" else mask_BT.any(dim=-1)).sum())


def policy_gradient_loss(
    logprobs_BT: Tensor,
    advantages: Tensor,
    mask_BT: Tensor,
    *,
    how: Aggregation = "token_mean",
    denominator: int | None = None,
) -> Tensor:
    """-log pi * A: the strictly on-policy objective of HRPO (Dr. Zero, Eq. 2), with the gradient of GRPO's (Eq. 5).

    The paper's log pi of a whole sequence is `how="token_sum"`. The default is the mean over tokens, which keeps long
    episodes from dominating the gradient.

        logprobs [[-1, -2]], advantage 3, both tokens sampled -> (3 + 6) / 2 = 4.5
    """
    mask_BT = _as_mask(logprobs_BT, mask_BT)
    advantages = advantages.detach()
    if advantages.shape == mask_BT.shape[:1]:
        advantages = advantages[:, None].expand(mask_BT.shape)
    if advantages.shape != mask_BT.shape:
        raise ValueError(
            f"advantages must be (B,) or (B, T) with (B, T) = {(*mask_BT.shape,)}, not {(*advantages.shape,)}"
        )
    values_BT = -_blank(logprobs_BT, mask_BT) * _blank(advantages, mask_BT)
    return aggregate(values_BT, mask_BT, how, denominator=denominator)


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
    bounded_BT = difference_BT.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    # expm1, because e^d - 1 cancels to rounding error where the policies hardly differ.
    return bounded_BT.expm1() - bounded_BT


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


def _as_mask(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    if values_BT.dim() != 2 or values_BT.shape != mask_BT.shape:
        raise ValueError(f"values and mask must both be (B, T): got {(*values_BT.shape,)} and {(*mask_BT.shape,)}")
    return mask_BT.bool()


def _blank(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    # `where` instead of a product: 0 * nan is nan, and padding may hold any value. It comes before any other function,
    # because in the backward pass an infinite derivative times 0 is nan too.
    return torch.where(mask_BT, values_BT, 0.0)
