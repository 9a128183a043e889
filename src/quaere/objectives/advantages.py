"""Advantage estimators: how much better an episode's reward is than its baseline.

The first three standardise the rewards of a group and differ in the group; the others do not standardise.

    grpo               the answers to one question                        Dr. Zero, Eq. 5
    hrpo               the questions with one requested number of hops    Dr. Zero, Eq. 3
    reinforce_global   the whole batch                                    the global baseline of REINFORCE++
    ema_centered       a moving average of earlier steps' rewards         SCORE, Algorithm 2
    dpo_advantages     the chosen and the rejected of a pair              Rafailov et al. 2023, Eq. 7

Shapes: B episodes, G groups, P pairs.
"""

# ruff: noqa: N803, N806 (capitals are shapes)
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from msgspec import Struct
from torch import Tensor

LoneGroup = Literal["zero", "raw"]

DELTA = 1e-6


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
) -> Advantages:
    """GRPO: (r - mean) / (std + delta) over the answers to one question (Dr. Zero, Eq. 5).

    `groups[i]` is the group of episode i, in any order. `unbiased` divides the sum of squares by n - 1 rather than n.

        grpo([1.0, 0.0, 3.0, 5.0], [7, 7, 2, 2]).values -> [0.707, -0.707, -0.707, 0.707]
    """
    return _standardise(rewards, groups, delta, unbiased, lone_group)


def hrpo(
    rewards: Tensor | Sequence[float],
    hops: Tensor | Sequence[int],
    *,
    delta: float = DELTA,
    unbiased: bool = True,
    lone_group: LoneGroup = "zero",
) -> Advantages:
    """HRPO: (r - mean) / (std + delta) over the questions with the same *requested* number of hops (Dr. Zero, Eq. 3).

    Eq. 3 as printed leaves open whether delta is inside the square root; EVE writes it outside, as here. A number of
    hops that was drawn only once has no group to compare with: its advantage is 0, or with `lone_group="raw"` the
    reward itself (mean 0, deviation 1).

        hrpo([1.0, 0.0, 0.5], hops=[1, 1, 4]).values -> [0.707, -0.707, 0.0]
    """
    return _standardise(rewards, hops, delta, unbiased, lone_group)


def reinforce_global(rewards: Tensor | Sequence[float], *, delta: float = DELTA, unbiased: bool = True) -> Advantages:
    """(r - mean) / (std + delta) over the whole batch: the global baseline that Dr. Zero compares HRPO with.

    reinforce_global([1.0, 0.0]).values -> [0.707, -0.707]
    """
    return _standardise(rewards, [0] * len(rewards), delta, unbiased, "zero")


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
    if not 0 <= beta <= 1:
        raise ValueError(f"beta must be from 0 to 1, not {beta}")
    if not all(map(math.isfinite, (*rewards, baseline))):
        raise ValueError("every reward and the baseline must be finite numbers")
    if not rewards:
        return Centered((), baseline)
    mean = sum(rewards) / len(rewards)
    return Centered(tuple(reward - baseline for reward in rewards), beta * baseline + (1 - beta) * mean)


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
    if beta <= 0:
        raise ValueError(f"beta must be above 0, not {beta}")
    weights_P = 2 * beta * torch.sigmoid(-beta * (chosen_P - rejected_P))
    values_B = torch.cat([weights_P, -weights_P]).to(torch.get_default_dtype())
    return Advantages(values=values_B, num_groups=len(weights_P), num_lone=0, num_zero_variance=0)


def _standardise(
    rewards: Tensor | Sequence[float],
    groups: Tensor | Sequence[int],
    delta: float,
    unbiased: bool,
    lone_group: LoneGroup,
) -> Advantages:
    dtype = rewards.dtype if isinstance(rewards, Tensor) and rewards.is_floating_point() else torch.get_default_dtype()
    # In float64: rewards that differ only by rounding would otherwise be scaled up to full advantages.
    rewards_B = torch.as_tensor(rewards, dtype=torch.float64).detach()
    ids_B = torch.as_tensor(groups, device=rewards_B.device)
    _check(rewards_B, ids_B, delta, lone_group)
    _, group_B, size_G = torch.unique(ids_B, return_inverse=True, return_counts=True)

    zero_G = rewards_B.new_zeros(len(size_G))
    mean_G = zero_G.index_add(0, group_B, rewards_B) / size_G
    square_G = zero_G.index_add(0, group_B, (rewards_B - mean_G[group_B]) ** 2)
    std_G = (square_G / (size_G - int(unbiased)).clamp(min=1)).sqrt()

    lone_G = size_G == 1
    highest_G = zero_G.scatter_reduce(0, group_B, rewards_B, "amax", include_self=False)
    lowest_G = zero_G.scatter_reduce(0, group_B, rewards_B, "amin", include_self=False)
    # Compares the rewards instead of testing std == 0: the mean of equal numbers may be off by a rounding.
    flat_G = highest_G == lowest_G
    if lone_group == "raw":
        mean_G, std_G = mean_G.masked_fill(lone_G, 0.0), std_G.masked_fill(lone_G, 1.0)
    silent_G = flat_G & ~lone_G if lone_group == "raw" else flat_G
    values_B = (rewards_B - mean_G[group_B]) / (std_G[group_B] + delta)
    values_B = values_B.masked_fill(silent_G[group_B], 0.0)
    return Advantages(
        values=values_B.to(dtype),
        num_groups=len(size_G),
        num_lone=int(lone_G.sum()),
        num_zero_variance=int((flat_G & ~lone_G).sum()),
    )


def _check(rewards_B: Tensor, ids_B: Tensor, delta: float, lone_group: str) -> None:
    if rewards_B.dim() != 1 or rewards_B.shape != ids_B.shape:
        raise ValueError(
            f"rewards and groups must have one value per episode: got shapes {(*rewards_B.shape,)} and "
            f"{(*ids_B.shape,)}"
        )
    if not torch.isfinite(rewards_B).all():
        raise ValueError("every reward must be a finite number")
    if delta < 0:
        raise ValueError(f"delta must be 0 or more, not {delta}")
    if lone_group not in ("zero", "raw"):
        raise ValueError(f"lone_group must be 'zero' or 'raw', not {lone_group!r}")
