"""One advantage per token whose importance-sampling gradient is that of the local loss; plain arithmetic.

    weight = token_weight(2, counts=[2, 3, 4], aggregation="token_mean")             # 1/9 for each of the 2 tokens
    folded = fold_kl(advantages, logprobs, reference, beta=0.001, kind="k3")
    sent = folded * weight * server_factor(len(targets), num_data, "sequence_mean")

A server's loss is -ratio * A per token, with ratio = pi / pi_old, and the log-probs that are sent are the policy's own:
every ratio is 1, and the gradient of a token's log-prob is -A. The gradient of a KL estimate at a token is a number, so
beta times that number can be taken from A, and the step is the same as with the term in the loss. Clipping never acts
at ratio 1, so both losses of `LearnerSettings` come to this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quaere.objectives.losses import MAX_LOG_RATIO, Aggregation, Divergence

Normalisation = Literal["sum", "sequence_mean"]
Floats = NDArray[np.float64]


def token_weight(num_tokens: int, counts: Sequence[int], aggregation: Aggregation) -> float:
    """Weight of one token's term in the loss, for a sample of `num_tokens` tokens in a batch with these `counts`.

    token_weight(2, [2, 3, 0], "token_mean") == 1 / 5
    token_weight(2, [2, 3, 0], "sequence_mean") == 1 / 2 / 2
    token_weight(2, [2, 3, 0], "token_sum") == 1 / 2
    """
    num_sequences = sum(count > 0 for count in counts)
    if aggregation == "token_mean":
        return 1.0 / max(1, sum(counts))
    if aggregation == "sequence_mean":
        return 1.0 / max(1, num_tokens) / max(1, num_sequences)
    return 1.0 / max(1, num_sequences)


def fold_kl(advantages: Floats, logprobs: Floats, reference: Floats, *, beta: float, kind: Divergence) -> Floats:
    """The advantages less beta times the derivative of the KL estimate by the log-prob (`objectives.estimate_kl`).

    With d = log pi_ref - log pi, the derivatives are: k1 -> 1, k2 -> -d, k3 -> 1 - e^d.
    """
    difference = reference - logprobs
    if kind == "k1":
        slope = np.ones_like(difference)
    elif kind == "k2":
        slope = -difference
    else:
        inside = np.abs(difference) <= MAX_LOG_RATIO  # beyond, the estimate is bounded and has no slope
        slope = np.where(inside, -np.expm1(np.where(inside, difference, 0.0)), 0.0)
    return advantages - beta * slope


def kl_estimates(logprobs: Floats, reference: Floats, kind: Divergence) -> Floats:
    """The KL estimate per token, as `objectives.estimate_kl`."""
    difference = reference - logprobs
    if kind == "k1":
        return -difference
    if kind == "k2":
        return np.square(difference) / 2
    bounded = np.clip(difference, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    return np.expm1(bounded) - bounded


def server_factor(num_targets: int, num_data: int, normalisation: Normalisation) -> float:
    """What cancels the server's own division: nothing if it sums, else its two means.

    The means are over all targets of a datum, the prompt's included (they carry advantage 0), and over the data of an
    optimizer step.
    """
    return 1.0 if normalisation == "sum" else float(num_targets * num_data)
