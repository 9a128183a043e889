import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quaere.objectives.advantages import grpo, hrpo, reinforce_global

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
        lambda: grpo([1.0, 2.0], [0, 0], delta=-1),
        lambda: hrpo([1.0, 2.0], [0, 0], lone_group="mean"),
    ],
)
def test_what_cannot_be_compared_is_refused(call):
    with pytest.raises(ValueError, match=r"per episode|finite|delta|lone_group"):
        call()
