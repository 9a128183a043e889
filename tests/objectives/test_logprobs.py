import math

import pytest
import torch

from quaere.objectives.logprobs import token_entropy, token_logprobs


def test_by_hand():
    logits = torch.tensor([[[0.0, 0.0], [math.log(3), 0.0]]])
    assert token_logprobs(logits, torch.tensor([[1, 0]])).tolist()[0] == pytest.approx(
        [math.log(1 / 2), math.log(3 / 4)]
    )
    certain = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    assert token_entropy(logits).tolist()[0] == pytest.approx([math.log(2), certain])


def test_probabilities_add_up_to_one_and_entropy_is_their_mean_surprise():
    logits = torch.randn(3, 4, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 5
    every = torch.stack([token_logprobs(logits, torch.full((3, 4), word)) for word in range(9)], dim=-1)
    assert torch.allclose(every.exp().sum(-1), torch.ones(3, 4, dtype=torch.float64))
    assert torch.allclose(-(every.exp() * every).sum(-1), token_entropy(logits))


def test_words_that_are_ruled_out():
    logits = torch.tensor([0.0, -math.inf, 0.0], requires_grad=True)
    entropy = token_entropy(logits)
    assert entropy.item() == pytest.approx(math.log(2))
    assert token_logprobs(logits, torch.tensor(1)).item() == -math.inf


def test_coarse_logits_are_scored_finely():
    logits = torch.tensor([[10.0, 0.5, -3.0]], dtype=torch.bfloat16)
    result = token_logprobs(logits, torch.tensor([0]))
    assert result.dtype == torch.float32
    # In bfloat16 itself this would be 0.
    assert result.item() == pytest.approx(-(math.exp(-9.5) + math.exp(-13)), rel=0.01)


def test_gradients_agree_with_finite_differences():
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    token_ids = torch.tensor([[0, 4, 2], [1, 1, 3]])
    assert torch.autograd.gradcheck(lambda values: token_logprobs(values, token_ids), (logits,))
    assert torch.autograd.gradcheck(token_entropy, (logits,))
