import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quaere.objectives.policy_gradient import (
    dpo_advantages,
    ema_centered,
    grpo,
    hrpo,
    pair_centered,
    policy_gradient_loss,
    reinforce_global,
)

HALF_ROOT = 0.5**0.5

# Rewards as they come: sums of a few parts with a few digits.
reward = st.integers(-300, 300).map(lambda hundredths: hundredths / 100)
batches = st.lists(st.tuples(reward, st.integers(1, 4)), min_size=1, max_size=24)


def tensors(batch):
    rewards, groups = zip(*batch, strict=True)
    return torch.tensor(rewards, dtype=torch.float64), torch.tensor(groups)


def test_grpo_by_hand():
    # Group 7 has rewards 1 and 0, group 2 has 3 and 5: mean 4, unbiased deviation sqrt(2). Order does not matter.
    advantages = grpo([1.0, 3.0, 0.0, 5.0], [7, 2, 7, 2], delta=0)
    assert advantages.values.tolist() == pytest.approx([HALF_ROOT, -HALF_ROOT, -HALF_ROOT, HALF_ROOT])
    assert (advantages.num_groups, advantages.num_lone, advantages.num_zero_variance) == (2, 0, 0)


def test_the_deviation_may_be_that_of_the_group_itself():
    assert grpo([3.0, 5.0], [0, 0], delta=0, unbiased=False).values.tolist() == [-1, 1]


def test_delta_stands_outside_the_root():
    # Deviation 1: under the root, delta = 3 would divide by 2.
    assert grpo([3.0, 5.0], [0, 0], delta=3, unbiased=False).values.tolist() == [-0.25, 0.25]


def test_a_least_deviation_keeps_small_differences_small():
    # One of eight earned a bonus of 0.1: mean 0.0125, deviation 0.1 / sqrt(8) = 0.0354.
    rewards = [0.1] + [0.0] * 7
    assert grpo(rewards, [0] * 8, delta=0).values[0].item() == pytest.approx(0.0875 / (0.1 * 0.125**0.5))
    floored = grpo(rewards, [0] * 8, delta=0, min_std=0.1).values.tolist()
    assert floored == pytest.approx([0.875] + [-0.125] * 7)
    # A right answer is above the floor and keeps its advantage.
    right = [10 * reward for reward in rewards]
    assert grpo(right, [0] * 8, min_std=0.1).values.tolist() == grpo(right, [0] * 8).values.tolist()


@given(batches, st.floats(0, 2))
def test_a_least_deviation_is_the_larger_of_two(batch, least):
    rewards, groups = tensors(batch)
    found = grpo(rewards, groups, delta=0.01, min_std=least).values
    for group in groups.unique():
        own = rewards[groups == group]
        std = own.std().item() if len(own) > 1 and own.max() > own.min() else 0.0
        naive = [(value - own.mean().item()) / (max(std, least) + 0.01) if std else 0.0 for value in own.tolist()]
        assert found[groups == group].tolist() == pytest.approx(naive, abs=1e-9)


def test_hrpo_by_hand():
    advantages = hrpo([1.0, 0.0, 0.5, 0.25, 0.25], hops=[1, 1, 4, 2, 2], delta=0)
    assert advantages.values.tolist() == pytest.approx([HALF_ROOT, -HALF_ROOT, 0, 0, 0])
    assert (advantages.num_groups, advantages.num_lone, advantages.num_zero_variance) == (3, 1, 1)


def test_a_lone_hop_count_may_keep_its_reward():
    advantages = hrpo([1.0, 0.0, 0.5], hops=[1, 1, 4], lone_group="raw", delta=0)
    assert advantages.values.tolist() == pytest.approx([HALF_ROOT, -HALF_ROOT, 0.5])
    assert advantages.num_lone == 1
    assert hrpo([0.5], hops=[4], lone_group="raw", delta=1).values.tolist() == [0.25]


def test_the_global_baseline_by_hand():
    advantages = reinforce_global([1.0, 2.0, 3.0], delta=0)
    assert advantages.values.tolist() == pytest.approx([-1, 0, 1])
    assert advantages.num_groups == 1
    assert reinforce_global([0.7]).num_lone == 1


def test_equal_rewards_give_exactly_nothing():
    # The mean of three times 0.1 is not 0.1 in binary.
    for delta in (0, 1e-6):
        advantages = grpo([0.1] * 3 + [0.3] * 7, [0] * 3 + [1] * 7, delta=delta)
        assert advantages.values.tolist() == [0] * 10
        assert advantages.num_zero_variance == 2


def test_rewards_that_differ_by_a_rounding_stay_small():
    assert grpo([0.1 + 0.2, 0.3, 0.3], [0, 0, 0]).values.abs().max() < 1e-9


def test_an_empty_batch_is_no_group():
    advantages = grpo([], [])
    assert (len(advantages.values), advantages.num_groups) == (0, 0)


def test_kinds_of_numbers():
    assert grpo(torch.tensor([0, 1]), torch.tensor([0, 0])).values.dtype == torch.float32
    assert grpo(torch.tensor([0.0, 1.0]).double(), [0, 0]).values.dtype == torch.float64
    assert not grpo(torch.tensor([0.0, 1.0], requires_grad=True), [0, 0]).values.requires_grad


@given(batches, st.booleans())
def test_advantages_of_a_group_add_up_to_zero(batch, unbiased):
    rewards, groups = tensors(batch)
    values = grpo(rewards, groups, unbiased=unbiased).values
    for group in groups.unique():
        assert abs(values[groups == group].sum()) < 1e-9


@given(batches)
def test_a_better_reward_is_a_better_advantage(batch):
    rewards, groups = tensors(batch)
    values = grpo(rewards, groups).values
    for group in groups.unique():
        order = rewards[groups == group].argsort()
        assert (values[groups == group][order].diff() >= -1e-12).all()


@given(batches, st.floats(-5, 5), st.floats(0.1, 10))
def test_shifting_and_scaling_rewards_changes_nothing(batch, shift, scale):
    rewards, groups = tensors(batch)
    before = grpo(rewards, groups, delta=1e-12)
    after = grpo(rewards * scale + shift, groups, delta=1e-12)
    # Where rewards were equal they stay equal, since the same reward is scaled to the same number.
    assert torch.allclose(before.values, after.values, atol=1e-6)
    assert before.num_zero_variance == after.num_zero_variance


@given(batches)
def test_the_order_of_the_batch_changes_nothing(batch):
    rewards, groups = tensors(batch)
    order = torch.randperm(len(rewards), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(grpo(rewards, groups).values[order], grpo(rewards[order], groups[order]).values, atol=1e-9)


@given(batches, st.sampled_from(["zero", "raw"]))
def test_hrpo_is_grpo_when_every_hop_count_is_one_prompt(batch, lone_group):
    rewards, hops = tensors(batch)
    prompts = hops * 100 + 7
    assert torch.equal(
        hrpo(rewards, hops, lone_group=lone_group).values, grpo(rewards, prompts, lone_group=lone_group).values
    )


@given(batches)
def test_the_global_baseline_is_one_big_group(batch):
    rewards, groups = tensors(batch)
    assert torch.equal(reinforce_global(rewards).values, grpo(rewards, torch.zeros_like(groups)).values)


@pytest.mark.parametrize(
    "call",
    [
        lambda: grpo([1.0, 2.0], [0]),
        lambda: grpo(torch.zeros(2, 2), torch.zeros(2, 2)),
        lambda: grpo([1.0, float("nan")], [0, 0]),
        lambda: hrpo([1.0, float("inf")], [0, 0]),
    ],
)
def test_what_cannot_be_compared_is_refused(call):
    with pytest.raises(ValueError, match=r"per episode|finite"):
        call()


# -------------------------------------------------------------------------------------------------- a moving baseline


def test_a_moving_baseline_by_hand():
    # b0 = 0; C = 0.5, 0.9, 0.1 with beta 0.7: b = 0.15, 0.375, 0.2925. Each step is held to the baseline before it.
    baseline, signals = 0.0, []
    for reward in (0.5, 0.9, 0.1):
        centered = ema_centered([reward], baseline, beta=0.7)
        baseline = centered.baseline
        signals.append((*centered.values, baseline))
    assert signals[0] == pytest.approx((0.5, 0.15))
    assert signals[1] == pytest.approx((0.75, 0.375))
    assert signals[2] == pytest.approx((-0.275, 0.2925))


def test_several_rewards_share_one_baseline_and_move_it_by_their_mean():
    centered = ema_centered([0.2, 0.8], 0.4, beta=0.5)
    assert centered.values == pytest.approx((-0.2, 0.4))
    assert centered.baseline == pytest.approx(0.45)


def test_a_baseline_may_stand_still_or_forget_everything():
    assert ema_centered([0.8], 0.4, beta=1).baseline == 0.4
    assert ema_centered([0.8], 0.4, beta=0).baseline == 0.8


def test_nothing_earned_leaves_the_baseline_alone():
    assert ema_centered([], 0.4) == ema_centered([], 0.4, beta=0.0)
    assert ema_centered([], 0.4).baseline == 0.4


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.floats(0, 1))
def test_a_baseline_stays_among_what_was_earned_and_the_sign_says_better_or_worse(rewards, beta):
    baseline = 0.0
    for reward in rewards:
        before, centered = baseline, ema_centered([reward], baseline, beta=beta)
        assert (centered.values[0] > 0) == (reward > before)
        assert (centered.values[0] < 0) == (reward < before)
        baseline = centered.baseline
        assert min(0, *rewards) - 1e-9 <= baseline <= max(rewards) + 1e-9


@pytest.mark.parametrize(("rewards", "baseline"), [([float("nan")], 0), ([1, float("nan")], 0), ([1], float("inf"))])
def test_what_is_no_number_is_refused(rewards, baseline):
    with pytest.raises(ValueError, match="finite"):
        ema_centered(rewards, baseline)


# --------------------------------------------------------------------------------------------------------------- pairs


def test_pairs_by_hand():
    # No preference yet: sigmoid(0) = 1/2. With beta 0.5 and a lead of 4, sigmoid(-2) = 0.1192.
    assert dpo_advantages([0.0], [0.0], beta=0.5).values.tolist() == pytest.approx([0.5, -0.5])
    assert dpo_advantages([1.0], [-3.0], beta=0.5).values.tolist() == pytest.approx([0.119203, -0.119203], abs=1e-6)
    two = dpo_advantages([0.0, 1.0], [0.0, -3.0], beta=0.5)
    assert two.values.tolist() == pytest.approx([0.5, 0.119203, -0.5, -0.119203], abs=1e-6)
    assert (two.num_groups, two.num_lone, two.num_zero_variance) == (2, 0, 0)
    assert dpo_advantages([0.0], [0.0]).values.tolist() == pytest.approx([0.1, -0.1])  # the usual beta


def test_pairs_are_worth_numbers_and_nothing_that_learns():
    ratios = torch.tensor([1e-9, 2.0], dtype=torch.float32, requires_grad=True)
    worth = dpo_advantages(ratios, ratios.detach() + 1).values
    assert not worth.requires_grad
    # In single precision a lead of 1e-9 beside 2**24 would be lost.
    long = dpo_advantages([2.0**24 + 1], [2.0**24], beta=1.0).values[0]
    assert long == pytest.approx(2 / (1 + math.e), abs=1e-6)


@given(st.integers(0, 10_000), st.integers(1, 4), st.floats(0.01, 2))
def test_what_pairs_are_worth_makes_a_policy_gradient_that_of_the_loss(seed, num_pairs, beta):
    draw = torch.Generator().manual_seed(seed)
    shape = (2 * num_pairs, 5)
    logprobs = (-torch.rand(shape, generator=draw, dtype=torch.float64)).requires_grad_()
    reference = -torch.rand(shape, generator=draw, dtype=torch.float64)
    mask = torch.arange(5) < torch.randint(1, 6, (shape[0], 1), generator=draw)
    chosen, rejected = ((logprobs - reference) * mask).sum(dim=1).chunk(2)
    loss = -torch.nn.functional.logsigmoid(beta * (chosen - rejected)).mean()
    (theirs,) = torch.autograd.grad(loss, logprobs, retain_graph=True)
    worth = dpo_advantages(chosen, rejected, beta=beta).values.double()
    (ours,) = torch.autograd.grad(policy_gradient_loss(logprobs, worth, mask, how="token_sum"), logprobs)
    assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize(
    ("chosen", "rejected"),
    [
        ([1.0], [1.0, 2.0]),
        ([float("inf")], [0.0]),
        ([0.0, float("nan")], [0.0, 0.0]),
        ([0.0, 0.0], [0.0, float("nan")]),
    ],
)
def test_bad_pairs_are_refused(chosen, rejected):
    with pytest.raises(ValueError, match=r"per pair|finite"):
        dpo_advantages(chosen, rejected)


# ------------------------------------------------------------------------------------------- another choice as baseline

AGREEMENTS = st.lists(st.tuples(*[st.none() | st.floats(0, 1)] * 2), max_size=8)


def test_a_pair_by_hand():
    # Two questions have both: 0.1 and 0.3 apart.
    assert pair_centered([0.6, 0.4, None, 0.2], [0.5, 0.1, 0.9, None]) == pytest.approx(0.2)
    assert pair_centered([0.6, None], [None, 0.1]) is None and pair_centered([], []) is None
    with pytest.raises(ValueError, match="finite"):
        pair_centered([math.inf], [0.0])
    with pytest.raises(ValueError, match="shorter"):
        pair_centered([0.1], [])


@given(AGREEMENTS)
def test_a_pair_is_a_mean_of_differences(pairs):
    """As a loop would compute it; and each is as far above the other as that is below it."""
    one, other = [first for first, _ in pairs], [second for _, second in pairs]
    total, num = 0.0, 0
    for first, second in pairs:
        if first is not None and second is not None:
            total, num = total + first - second, num + 1
    found = pair_centered(one, other)
    assert found == (pytest.approx(total / num, abs=1e-12) if num else None)
    assert pair_centered(other, one) == (None if found is None else pytest.approx(-found, abs=1e-12))


@given(AGREEMENTS, st.floats(-1, 1))
def test_what_makes_a_question_easy_does_not_count(pairs, ease):
    def moved(values):
        return [None if value is None else value + ease * place for place, value in enumerate(values)]

    one, other = [first for first, _ in pairs], [second for _, second in pairs]
    found = pair_centered(one, other)
    assert pair_centered(moved(one), moved(other)) == (None if found is None else pytest.approx(found, abs=1e-9))
