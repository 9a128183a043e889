"""Advantages that a server is sent: their importance-sampling gradient is that of the local loss."""

import pytest
import torch

from quaere.objectives.policy_gradient import count_terms, kl_loss, policy_gradient_loss
from quaere.training.tinker_learner import fold_kl, server_factor, token_weight

COUNTS = [3, 5, 0, 2]  # tokens that carry loss in each sample; one has none
LENGTHS = [7, 9, 4, 6]  # targets of each datum, the prompt's included
BETA = 0.3


def local_gradient(logprobs, reference, advantages, mask, *, kl, how):
    """The gradient of the local learner's loss by each token's log-prob."""
    logprobs = logprobs.clone().requires_grad_(True)
    shared = {"how": how, "denominator": count_terms(mask, how)}
    total = policy_gradient_loss(logprobs, advantages, mask, **shared)
    (total + BETA * kl_loss(logprobs, reference, mask, kind=kl, **shared)).backward()
    return logprobs.grad


def server_gradient(logprobs, sent, mask, lengths, normalisation):
    """The gradient of a server's importance-sampling loss, with its own normalisation and ratios of 1."""
    logprobs = logprobs.clone().requires_grad_(True)
    terms = -(torch.exp(logprobs - logprobs.detach()) * sent) * mask
    if normalisation == "sum":
        terms.sum().backward()
    else:  # per sequence over all its targets, then over the sequences that were sent
        (terms.sum(dim=1) / torch.tensor(lengths)).mean().backward()
    return logprobs.grad


@pytest.mark.parametrize("kl", ["k1", "k2", "k3"])
@pytest.mark.parametrize("how", ["token_mean", "sequence_mean", "token_sum"])
@pytest.mark.parametrize("normalisation", ["sum", "sequence_mean"])
def test_the_servers_gradient_is_the_local_one(kl, how, normalisation):
    draw = torch.Generator().manual_seed(0)
    shape = (len(COUNTS), max(COUNTS))
    mask = torch.tensor([[place < count for place in range(shape[1])] for count in COUNTS])
    logprobs, reference, advantages = (torch.randn(shape, generator=draw, dtype=torch.float64) for _ in range(3))
    reference[0, 0] = logprobs[0, 0] + 30  # beyond the bound of the estimate, where it has no slope
    wanted = local_gradient(logprobs, reference, advantages, mask, kl=kl, how=how)

    rows = [number for number, count in enumerate(COUNTS) if count]
    sent = torch.zeros(len(rows), shape[1], dtype=torch.float64)
    for place, number in enumerate(rows):
        own, base, values = (one[number, : COUNTS[number]].numpy() for one in (logprobs, reference, advantages))
        folded = fold_kl(values, own, base, beta=BETA, kind=kl)
        weight = token_weight(COUNTS[number], COUNTS, how) * server_factor(LENGTHS[number], len(rows), normalisation)
        sent[place, : COUNTS[number]] = torch.tensor(folded * weight)
    lengths = [LENGTHS[number] for number in rows]
    found = server_gradient(logprobs[rows], sent, mask[rows], lengths, normalisation)
    torch.testing.assert_close(found, wanted[rows], rtol=1e-12, atol=1e-12)


def test_token_weights_by_hand():
    assert token_weight(3, COUNTS, "token_mean") == 1 / 10
    assert token_weight(3, COUNTS, "sequence_mean") == pytest.approx(1 / 3 / 3)
    assert token_weight(3, COUNTS, "token_sum") == pytest.approx(1 / 3)
    for aggregation in ("token_mean", "sequence_mean", "token_sum"):  # a batch of one token
        assert token_weight(1, [1], aggregation) == 1.0
    assert server_factor(7, 3, "sequence_mean") == 21.0
    assert server_factor(7, 3, "sum") == 1.0
