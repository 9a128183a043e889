"""From logits to the log-probs of the tokens that were sampled, and to entropy.

Shapes: any number of leading dimensions (written as B, T), V words in the vocabulary.
"""

# ruff: noqa: N803, N806 (capitals are shapes)
from __future__ import annotations

import torch
from torch import Tensor


def token_logprobs(logits_BTV: Tensor, token_ids_BT: Tensor) -> Tensor:
    """Log-prob of each token under the logits at its own place: the caller shifts, logits at t predict token t + 1.

    In float32 or better, whatever the logits are: bfloat16 has three digits, too few for a ratio of probabilities.

        token_logprobs(tensor([[[0.0, 0.0]]]), tensor([[1]])) -> [[-0.693]]
    """
    logits_BTV = _precise(logits_BTV)
    chosen_BT: Tensor = logits_BTV.gather(-1, token_ids_BT[..., None])[..., 0]
    return chosen_BT - logits_BTV.logsumexp(dim=-1)


def token_entropy(logits_BTV: Tensor) -> Tensor:
    """Entropy of the next token in nats: 0 when it is certain, log V when all are alike.

    token_entropy(tensor([[[0.0, 0.0]]])) -> [[0.693]]
    """
    logprobs_BTV: Tensor = _precise(logits_BTV).log_softmax(dim=-1)
    # A word that is ruled out (-inf) adds nothing; without the bound its 0 * -inf would be nan.
    return -(logprobs_BTV.exp() * logprobs_BTV.clamp(min=torch.finfo(logprobs_BTV.dtype).min)).sum(dim=-1)


def _precise(logits_BTV: Tensor) -> Tensor:
    return logits_BTV if logits_BTV.dtype == torch.float64 else logits_BTV.float()
