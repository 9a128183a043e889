"""Log-probs of packed tokens in chunks: the gradients of the head are exact, whatever the size of a chunk."""

import pytest
import torch

from quaere.policies.native.bridge import Head
from quaere.training import batches
from quaere.training.batches import head_logprobs


def plain_head(states, head, targets):
    logits = torch.nn.functional.linear(states, head.weight, head.bias)
    if head.softcap is not None:
        logits = torch.tanh(logits / head.softcap) * head.softcap
    logprobs = torch.log_softmax(logits, -1)
    return logprobs.gather(-1, targets[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(-1)


def head_parts(has_bias, dtype=torch.float64, count=7):
    draw = torch.Generator().manual_seed(3)
    states, weight, bias = (torch.randn(*shape, generator=draw, dtype=dtype) for shape in ((count, 4), (11, 4), (11,)))
    return states, weight, bias if has_bias else None, torch.randint(11, (count,), generator=draw)


@pytest.mark.parametrize(
    "trained", [("states",), ("states", "weight"), ("weight",), ("states", "weight", "bias"), ("bias",)]
)
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_gradients_of_the_head_are_exact(trained, softcap, monkeypatch):
    monkeypatch.setattr(batches, "CHUNK_TOKENS", 3)
    states, weight, bias, targets = head_parts(has_bias="bias" in trained)
    parts = {"states": states, "weight": weight, "bias": bias}
    inputs = [parts[name].requires_grad_() for name in trained]

    def compute(*_):
        return head_logprobs(states, Head(weight, bias, softcap), targets)[0]

    assert torch.autograd.gradcheck(compute, inputs)
    expected_logprobs, expected_entropy = plain_head(states, Head(weight, bias, softcap), targets)
    found, entropy = head_logprobs(states, Head(weight, bias, softcap), targets)
    torch.testing.assert_close(found, expected_logprobs)
    torch.testing.assert_close(entropy, expected_entropy)
    assert found.requires_grad and not entropy.requires_grad
    pull = torch.linspace(-1, 2, len(targets), dtype=torch.float64)
    for mine, theirs in zip(
        torch.autograd.grad(found, inputs, pull), torch.autograd.grad(expected_logprobs, inputs, pull), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("size", [1, 2, 1024])
def test_chunks_of_any_size_give_the_same(is_frozen, size, monkeypatch):
    monkeypatch.setattr(batches, "CHUNK_TOKENS", size)
    states, weight, _, targets = head_parts(False, dtype=torch.float32)
    inputs = [states.requires_grad_(), weight.requires_grad_(not is_frozen)][: 1 if is_frozen else 2]
    head = Head(weight, None, None)
    expected = torch.autograd.grad(plain_head(states, head, targets)[0].square().sum(), inputs)
    found = torch.autograd.grad(head_logprobs(states, head, targets)[0].square().sum(), inputs)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_all_chunks_but_the_last_are_projected_again(monkeypatch):
    monkeypatch.setattr(batches, "CHUNK_TOKENS", 3)
    sizes, project = [], batches._logits
    monkeypatch.setattr(batches, "_logits", lambda states, *rest: sizes.append(len(states)) or project(states, *rest))
    states, weight, _, targets = head_parts(False)
    head_logprobs(states.requires_grad_(), Head(weight.requires_grad_(), None, None), targets)[0].sum().backward()
    assert sizes == [3, 3, 1, 3, 3]


def test_a_head_in_bfloat16_answers_in_float32():
    states, weight, _, targets = head_parts(False, dtype=torch.bfloat16)
    found, entropy = head_logprobs(states, Head(weight, None, None), targets)
    assert found.dtype == entropy.dtype == torch.float32
    expected = torch.log_softmax((states @ weight.T).float(), -1).gather(-1, targets[:, None])[:, 0]
    torch.testing.assert_close(found, expected)


def test_scaled_logits_by_hand():
    """Logits (2, 0): p = (0.8808, 0.1192); the state's gradient is the scale times one-hot minus p."""
    states = torch.tensor([[1.0, 0.0]], requires_grad=True)
    logprobs, _ = head_logprobs(states, Head(torch.eye(2), None, None, scale=2.0), torch.tensor([0]))
    assert logprobs.item() == pytest.approx(-0.126928, abs=1e-6)
    logprobs.sum().backward()
    assert states.grad[0].tolist() == pytest.approx([2 * 0.119203, -2 * 0.119203], abs=1e-5)
