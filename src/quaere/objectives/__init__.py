"""Advantages and losses: functions on tensors, without models or files."""

from typing import Literal

# Defined here and not in `policy_gradient.py`, because settings use these types and must not load torch.
Aggregation = Literal["token_mean", "sequence_mean", "token_sum"]
Divergence = Literal["k1", "k2", "k3"]
LoneGroup = Literal["zero", "raw"]
DELTA = 1e-6
