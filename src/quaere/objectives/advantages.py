"""From rewards to advantages: how much better an episode did than those it is compared with.

The first three standardise, and differ in who is compared with whom; the others do not.

    grpo               the answers to one question                        Dr. Zero, Eq. 5
    hrpo               the questions with one requested number of hops    Dr. Zero, Eq. 3
    reinforce_global   the whole batch                                    the global baseline of REINFORCE++
    ema_centered       what was earned in the steps before                SCORE, Algorithm 2
    dpo_advantages     the better with the worse of a pair                Rafailov et al. 2023, Eq. 7

Shapes: B episodes, G groups.
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
    """One advantage per episode, and how much of the batch had nothing to be compared with.

    `num_lone` counts groups of one episode, `num_zero_variance` larger groups whose rewards are all equal. Neither
    teaches anything (save lone ones under "raw"), so a batch full of them is worth an alarm.

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
    """(r - mean) / (std + delta) among the answers to one question (Dr. Zero, Eq. 5).

    `groups[i]` names the group of episode i, in any order. `unbiased` divides the squares by n - 1 rather than n.

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
    """(r - mean) / (std + delta) among the questions of the same *requested* number of hops (Dr. Zero, Eq. 3).

    The print of Eq. 3 leaves open whether delta stands under the root; EVE writes it outside, and so it is here. A hop
    count that was drawn once has no one to be compared with. Its advantage is 0; with `lone_group="raw"` it is taken
    as if its group had mean 0 and deviation 1, which is the reward itself.

        hrpo([1.0, 0.0, 0.5], hops=[1, 1, 4]).values -> [0.707, -0.707, 0.0]
    """
    return _standardise(rewards, hops, delta, unbiased, lone_group)


def reinforce_global(rewards: Tensor | Sequence[float], *, delta: float = DELTA, unbiased: bool = True) -> Advantages:
    """(r - mean) / (std + delta) over the whole batch: the global baseline Dr. Zero compares HRPO with.

    reinforce_global([1.0, 0.0]).values -> [0.707, -0.707]
    """
    return _standardise(rewards, [0] * len(rewards), delta, unbiased, "zero")


class Centered(Struct, frozen=True):
    """Advantages of one step, and the baseline of the next.

    Centered(values=(0.2,), baseline=0.18)
    """

    values: tuple[float, ...]
    baseline: float


def ema_centered(rewards: Sequence[float], baseline: float, *, beta: float = 0.7) -> Centered:
    """r - b, then b <- beta * b + (1 - beta) * mean r: the baseline is that of *before* this step (SCORE, Algorithm 2).

    It begins at 0, so the first steps count as better than usual. A step that earned nothing to compare (no rewards)
    leaves the baseline as it is.

        ema_centered([0.6], 0.4) -> Centered(values=(0.2,), baseline=0.7 * 0.4 + 0.3 * 0.6 = 0.46)
    """
    if not 0 <= beta <= 1:
        raise ValueError(f"beta lies between 0 and 1, not at {beta}")
    if not all(map(math.isfinite, (*rewards, baseline))):
        raise ValueError("every reward must be a finite number")
    if not rewards:
        return Centered((), baseline)
    mean = sum(rewards) / len(rewards)
    return Centered(tuple(reward - baseline for reward in rewards), beta * baseline + (1 - beta) * mean)


def dpo_advantages(
    chosen: Tensor | Sequence[float], rejected: Tensor | Sequence[float], *, beta: float = 0.1
) -> Advantages:
    """What makes a plain policy gradient that of DPO: the chosen of each pair first, then the rejected ones.

    `chosen` and `rejected` are log-ratios of whole sequences, log pi - log pi_ref. With P pairs, DPO's loss is the mean
    of -log sigmoid(beta * (chosen - rejected)), and its gradient

        -1/P * sum of beta * sigmoid(-beta * (chosen - rejected)) * (grad log pi(chosen) - grad log pi(rejected))

    which is that of `policy_gradient_loss` with `how="token_sum"`, if a sequence is worth twice that factor: the loss
    divides by the 2P sequences, not by the P pairs. A pair in which the policy already prefers the chosen pulls little.

        dpo_advantages([0.0], [0.0], beta=0.1).values -> [0.1, -0.1]
    """
    chosen_P = torch.as_tensor(chosen, dtype=torch.float64).detach()
    rejected_P = torch.as_tensor(rejected, dtype=torch.float64).detach()
    if chosen_P.dim() != 1 or chosen_P.shape != rejected_P.shape:
        raise ValueError(f"pairs have two sides: got {(*chosen_P.shape,)} chosen and {(*rejected_P.shape,)} rejected")
    if not (torch.isfinite(chosen_P).all() and torch.isfinite(rejected_P).all()):
        raise ValueError("every log-ratio must be a finite number")
    if beta <= 0:
        raise ValueError(f"beta is above 0, not {beta}")
    worth_P = 2 * beta * torch.sigmoid(-beta * (chosen_P - rejected_P))
    values_B = torch.cat([worth_P, -worth_P]).to(torch.get_default_dtype())
    return Advantages(values=values_B, num_groups=len(worth_P), num_lone=0, num_zero_variance=0)


def _standardise(
    rewards: Tensor | Sequence[float],
    groups: Tensor | Sequence[int],
    delta: float,
    unbiased: bool,
    lone_group: LoneGroup,
) -> Advantages:
    dtype = rewards.dtype if isinstance(rewards, Tensor) and rewards.is_floating_point() else torch.get_default_dtype()
    # In float64: rewards that differ by a rounding only must not be blown up to advantages.
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
    # Decided by comparing, not by the deviation: the mean of equal numbers may be off by a rounding.
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
        raise ValueError(f"one reward and one group per episode: got {(*rewards_B.shape,)} and {(*ids_B.shape,)}")
    if not torch.isfinite(rewards_B).all():
        raise ValueError("every reward must be a finite number")
    if delta < 0:
        raise ValueError(f"delta is not negative: {delta}")
    if lone_group not in ("zero", "raw"):
        raise ValueError(f"lone_group is 'zero' or 'raw', not {lone_group!r}")
