"""Log-probs of given tokens under a model, without the logits of the whole batch in memory at once.

Logits of a vocabulary are the largest thing a training step makes. They are needed only at the tokens that carry loss,
and only to pick one number from each row; so those tokens are taken out first, and projected a chunk at a time. In the
backward pass each chunk is computed again.

Shapes: B rows, T tokens, N tokens that carry loss, D width, V words in the vocabulary.
"""

# ruff: noqa: N803, N806 (capitals are shapes)
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from quaere.objectives.logprobs import token_entropy, token_logprobs
from quaere.policies.native.bridge import hidden_states, project
from quaere.training.adapters import plain_model

CHUNK_TOKENS = 1024


def model_logprobs(model: Any, token_ids_BT: Tensor, attention_BT: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Log-prob and entropy `(B, T)` of every masked token given those before it; 0 elsewhere.

    The first token of a row has nothing before it and must not be masked. Entropy carries no gradient.
    """
    if bool(mask_BT[:, 0].any()):
        raise ValueError("the first token of a sequence cannot carry loss")
    model = plain_model(model)
    states_BTD = hidden_states(model, token_ids_BT, attention_BT)
    wanted = mask_BT[:, 1:]
    states_ND = states_BTD[:, :-1][wanted]
    targets_N = token_ids_BT[:, 1:][wanted]
    found: list[Tensor] = []
    entropies: list[Tensor] = []
    for start in range(0, len(targets_N), CHUNK_TOKENS):
        chunk = slice(start, start + CHUNK_TOKENS)
        logprobs, entropy = checkpoint(_pick, model, states_ND[chunk], targets_N[chunk], use_reentrant=False)
        found.append(logprobs)
        entropies.append(entropy)
    return _scatter(found, mask_BT), _scatter(entropies, mask_BT)


def _pick(model: Any, states_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    logits_NV = project(model, states_ND)
    with torch.no_grad():
        entropy_N = token_entropy(logits_NV)
    return token_logprobs(logits_NV, targets_N), entropy_N


def _scatter(pieces: list[Tensor], mask_BT: Tensor) -> Tensor:
    result = torch.zeros(mask_BT.shape, dtype=torch.float32, device=mask_BT.device)
    return result.masked_scatter(mask_BT, torch.cat(pieces)) if pieces else result
