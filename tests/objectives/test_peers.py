"""Do verl and TRL compute the same? Replays what benchmarks/record_peers.py recorded of their own functions."""

import json
from pathlib import Path

import pytest
import torch

from quaere.objectives.policy_gradient import (
    dpo_advantages,
    estimate_kl,
    grpo,
    hrpo,
    policy_gradient_loss,
    reinforce_global,
)
from quaere.policies.native.bridge import Head
from quaere.training.batches import head_logprobs

TOLERANCE = dict(atol=1e-6, rtol=1e-6)
HOWS = ["token_mean", "sequence_mean", "token_sum"]


def read(path):
    fixture = json.loads(path.read_text(encoding="utf-8"))
    fixture["inputs"] = {
        name: torch.tensor(values, dtype=torch.int64 if name in ("groups", "token_ids") else torch.float64)
        for name, values in fixture["inputs"].items()
    }
    return fixture


PEERS = [read(path) for path in sorted((Path(__file__).parent / "fixtures").glob("*.json"))]


def recorded(name):
    """Run a test with every peer that has a function for this."""
    having = [peer for peer in PEERS if name in peer["outputs"]]
    assert having, f"no peer was recorded for {name}"
    cases = [pytest.param(peer, peer["outputs"][name], id=f"{peer['package']}-{peer['version']}") for peer in having]
    return pytest.mark.parametrize(("peer", "theirs"), cases)


def same(ours, theirs):
    return torch.allclose(ours, torch.tensor(theirs, dtype=torch.float64), **TOLERANCE)


def check_loss(loss_of, peer, theirs):
    logprobs = peer["inputs"]["logprobs"].clone().requires_grad_()
    loss = loss_of(logprobs)
    (gradient,) = torch.autograd.grad(loss, logprobs)
    assert same(loss, theirs["loss"])
    assert same(gradient, theirs["gradient"])


@recorded("grpo")
@pytest.mark.parametrize("estimate", [grpo, hrpo])
def test_group_advantages(peer, theirs, estimate):
    # One group in the record has a single member, and the peer keeps its reward.
    advantages = estimate(peer["inputs"]["rewards"], peer["inputs"]["groups"], lone_group="raw")
    assert advantages.num_lone == 1
    assert same(advantages.values, theirs)


@recorded("reinforce_global")
def test_global_advantages(peer, theirs):
    # The peer's guard against a zero deviation is 1e-8, under the root.
    assert same(reinforce_global(peer["inputs"]["rewards"], delta=1e-8).values, theirs)


@recorded("policy_gradient_loss")
@pytest.mark.parametrize("how", HOWS)
def test_policy_gradient_loss(peer, theirs, how):
    given = peer["inputs"]
    check_loss(
        lambda logprobs: policy_gradient_loss(logprobs, given["advantages"], given["mask"], how=how), peer, theirs[how]
    )


@recorded("kl")
@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_divergence(peer, theirs, kind):
    given = peer["inputs"]
    assert same(estimate_kl(given["logprobs"], given["ref_logprobs"], kind), theirs[kind])


def score(logits, token_ids):
    """Log-probs and entropies as the learner makes them, with a head that leaves the logits as they are."""
    width = logits.shape[-1]
    head = Head(torch.eye(width, dtype=logits.dtype), None, None)
    found = head_logprobs(logits.reshape(-1, width), head, token_ids.reshape(-1))
    return [values.reshape(logits.shape[:-1]) for values in found]


@recorded("token_logprobs")
def test_logprobs(peer, theirs):
    assert same(score(peer["inputs"]["logits"], peer["inputs"]["token_ids"])[0], theirs)


@recorded("token_entropy")
def test_entropy(peer, theirs):
    logits = peer["inputs"]["logits"]
    assert same(score(logits, torch.zeros(logits.shape[:-1], dtype=torch.long))[1], theirs)


@recorded("dpo")
def test_a_policy_gradient_with_what_pairs_are_worth_is_the_gradient_of_dpo(peer, theirs):
    given, beta = peer["inputs"], peer["settings"]["dpo_beta"]
    ratios = ((given["logprobs"] - given["ref_logprobs"]) * given["mask"]).sum(dim=1)
    chosen, rejected = ratios.chunk(2)
    worth = dpo_advantages(chosen, rejected, beta=beta).values.double()
    logprobs = given["logprobs"].clone().requires_grad_()
    loss = policy_gradient_loss(logprobs, worth, given["mask"], how="token_sum")
    (gradient,) = torch.autograd.grad(loss, logprobs)
    assert same(gradient, theirs["gradient"])
    assert same(-torch.nn.functional.logsigmoid(beta * (chosen - rejected)).mean(), theirs["loss"])
