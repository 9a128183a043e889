import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from properties import examples
from quaere.objectives.policy_gradient import aggregate, count_terms, estimate_kl, kl_loss, policy_gradient_loss

HOWS = ["token_mean", "sequence_mean", "token_sum"]
KINDS = ["k1", "k2", "k3"]
EPSILON = 0.2

seeds = st.integers(0, 2**32 - 1)


def batch(seed, num_sequences=4, num_tokens=5):
    """Log-probs of two policies, advantages and a mask; the last sequence has no token that counts."""
    generator = torch.Generator().manual_seed(seed)
    shape = (num_sequences, num_tokens)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    logprobs = -normal(*shape).abs()
    mask = torch.rand(shape, generator=generator) < 0.6
    mask[0, 0] = True
    mask[-1] = False
    return dict(
        logprobs_BT=logprobs.requires_grad_(),
        ref_logprobs_BT=logprobs.detach() + 0.5 * normal(*shape),
        advantages=normal(num_sequences),
        mask_BT=mask,
    )


def pick(values, *names):
    return {name: values[name] for name in names}


def policy_gradient(values, **options):
    return policy_gradient_loss(**pick(values, "logprobs_BT", "advantages", "mask_BT"), **options)


def clipped(values, **options):
    """PPO's and GRPO's loss at the weights that sampled: every ratio is 1."""
    logprobs, advantages = values["logprobs_BT"], values["advantages"][:, None]
    ratio = (logprobs - logprobs.detach()).exp()
    terms = -torch.minimum(ratio * advantages, ratio.clamp(1 - EPSILON, 1 + EPSILON) * advantages)
    return aggregate(terms, values["mask_BT"], **options)


def divergence(kind):
    def loss(values, **options):
        return kl_loss(**pick(values, "logprobs_BT", "ref_logprobs_BT", "mask_BT"), kind=kind, **options)

    return loss


LOSSES = {"policy_gradient": policy_gradient} | {kind: divergence(kind) for kind in KINDS}


def gradient(loss, values, **options):
    (result,) = torch.autograd.grad(loss(values, **options), values["logprobs_BT"])
    return result


# ------------------------------------------------------------------------------------------------------- by hand


@pytest.mark.parametrize(
    ("how", "expected", "count"), [("token_mean", 3.0, 3), ("sequence_mean", 3.5, 2), ("token_sum", 4.5, 2)]
)
def test_aggregation_by_hand(how, expected, count):
    values = torch.tensor([[1.0, 3.0], [5.0, math.nan], [math.inf, math.nan]])
    mask = torch.tensor([[1, 1], [1, 0], [0, 0]])
    assert aggregate(values, mask, how) == expected
    assert count_terms(mask, how) == count
    # A tenth of a batch that has ten times as much in it.
    assert aggregate(values, mask, how, denominator=10 * count) == pytest.approx(expected / 10)


def test_policy_gradient_by_hand():
    logprobs, mask = torch.tensor([[-1.0, -2.0], [-4.0, -8.0]]), torch.tensor([[1, 1], [1, 0]])
    # -A log pi: 3, 6 and -8.
    assert policy_gradient_loss(logprobs, torch.tensor([3.0, -2.0]), mask) == pytest.approx(1 / 3)
    assert policy_gradient_loss(logprobs, torch.tensor([3.0, -2.0]), mask, how="token_sum") == 0.5
    per_token = torch.tensor([[3.0, 1.0], [-2.0, 100.0]])
    assert policy_gradient_loss(logprobs, per_token, mask) == pytest.approx((3 + 2 - 8) / 3)


def test_divergence_by_hand():
    logprobs, ref = torch.tensor([[-1.0]], dtype=torch.float64), torch.tensor([[-1.5]], dtype=torch.float64)
    assert estimate_kl(logprobs, ref, "k1").item() == 0.5
    assert estimate_kl(logprobs, ref, "k2").item() == 0.125
    assert estimate_kl(logprobs, ref, "k3").item() == pytest.approx(math.exp(-0.5) + 0.5 - 1)
    assert kl_loss(logprobs, ref, torch.ones(1, 1), kind="k2").item() == 0.125


def test_k3_keeps_its_digits_where_policies_hardly_differ():
    ref = torch.zeros(1, 1)
    assert estimate_kl(ref - 1e-4, ref, "k3").item() == pytest.approx(0.5e-8, rel=0.01)


# ---------------------------------------------------------------------------------------------------- properties


@given(seeds)
def test_divergences_are_not_negative_and_vanish_for_equal_policies(seed):
    values = batch(seed)
    logprobs, ref = values["logprobs_BT"], values["ref_logprobs_BT"]
    assert (estimate_kl(logprobs, ref, "k2") >= 0).all()
    assert (estimate_kl(logprobs, ref, "k3") >= 0).all()
    for kind in KINDS:
        assert (estimate_kl(logprobs, logprobs, kind) == 0).all()


def test_k1_and_k3_agree_with_the_divergence_of_two_known_policies():
    policy = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    reference = torch.tensor([0.4, 0.2, 0.4], dtype=torch.float64)
    exact = (policy * (policy / reference).log()).sum()
    for kind in ("k1", "k3"):
        # The mean over what the policy would sample.
        assert (policy * estimate_kl(policy.log(), reference.log(), kind)).sum() == pytest.approx(exact.item())


@pytest.mark.parametrize("how", HOWS)
@given(seed=seeds)
def test_on_policy_the_clipped_gradient_is_the_plain_one_to_the_bit(how, seed):
    values = batch(seed)
    assert torch.equal(gradient(clipped, values, how=how), gradient(policy_gradient, values, how=how))


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=examples(30))
@given(seed=seeds)
def test_masked_tokens_have_exactly_no_gradient_whatever_stands_there(name, seed):
    values = batch(seed)
    clean = gradient(LOSSES[name], values)
    assert (clean[~values["mask_BT"]] == 0).all()
    for rubbish in (math.nan, math.inf, -math.inf, 1e30):
        spoilt = {
            key: tensor.detach().masked_fill(~values["mask_BT"], rubbish) if key.endswith("logprobs_BT") else tensor
            for key, tensor in values.items()
        }
        spoilt["logprobs_BT"].requires_grad_()
        assert torch.equal(gradient(LOSSES[name], spoilt), clean)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", LOSSES)
def test_a_batch_without_tokens_costs_nothing(name, how):
    values = batch(0)
    values["mask_BT"] = torch.zeros_like(values["mask_BT"])
    assert LOSSES[name](values, how=how) == 0
    assert (gradient(LOSSES[name], values, how=how) == 0).all()
    assert LOSSES[name](values, how=how, denominator=0) == 0


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=examples(20))
@given(seed=seeds, cut=st.integers(0, 4))
def test_micro_batches_add_up_to_the_batch(name, how, seed, cut):
    values = batch(seed)
    whole = LOSSES[name](values, how=how)
    denominator = count_terms(values["mask_BT"], how)
    parts = [{key: tensor[rows] for key, tensor in values.items()} for rows in (slice(cut), slice(cut, None))]
    total = sum(LOSSES[name](part, how=how, denominator=denominator) for part in parts)
    assert total.item() == pytest.approx(whole.item(), abs=1e-14, rel=1e-12)
    (added,) = torch.autograd.grad(total, values["logprobs_BT"])
    # A token's gradient does not depend on which micro-batch it was in, to the last bit.
    assert torch.equal(added, gradient(LOSSES[name], values, how=how))
    assert sum(count_terms(part["mask_BT"], how) for part in parts) == denominator


def test_fully_masked_sequences_change_nothing():
    values = batch(3)
    fewer = {key: tensor[:-1] for key, tensor in values.items()}
    for loss in LOSSES.values():
        for how in HOWS:
            assert loss(values, how=how).item() == pytest.approx(loss(fewer, how=how).item(), rel=1e-12)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_agree_with_finite_differences(name, how):
    values = batch(11)

    def loss_of(logprobs):
        return LOSSES[name](values | {"logprobs_BT": logprobs}, how=how)

    assert torch.autograd.gradcheck(loss_of, (values["logprobs_BT"],))


def test_only_the_policy_gets_a_gradient():
    values = batch(5)
    for name in ("ref_logprobs_BT", "advantages"):
        values[name].requires_grad_()
    sum(loss(values) for loss in LOSSES.values()).backward()
    assert values["logprobs_BT"].grad is not None
    assert all(values[name].grad is None for name in ("ref_logprobs_BT", "advantages"))


def test_a_runaway_ratio_stays_finite():
    old = torch.full((1, 2), -200.0)
    for advantage in (-1.0, 0.0, 1.0):
        logprobs = torch.zeros(1, 2, requires_grad=True)
        loss = policy_gradient_loss(logprobs, torch.tensor([advantage]), torch.ones(1, 2))
        loss = loss + kl_loss(old + logprobs, torch.zeros(1, 2), torch.ones(1, 2))
        loss.backward()
        assert torch.isfinite(loss)
        assert torch.isfinite(logprobs.grad).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda v: policy_gradient(v | {"mask_BT": v["mask_BT"][:, 1:]}),
        lambda v: policy_gradient(v | {"advantages": v["advantages"][1:]}),
        lambda v: policy_gradient(v | {"logprobs_BT": v["logprobs_BT"][0], "mask_BT": v["mask_BT"][0]}),
    ],
)
def test_misfits_are_refused(call):
    with pytest.raises(ValueError, match=r"\(B, T\)"):
        call(batch(0))
