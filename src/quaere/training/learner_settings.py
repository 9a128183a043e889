"""Settings of a gradient step; the learner itself is in `learner.py`."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from quaere.objectives.losses import Aggregation, Divergence
from quaere.setting_types import (
    Fraction,
    FractionBelowOne,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)


class LearnerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a gradient step. Defaults are those of Dr. Zero's solver.

    A batch is used for one update with the learner's own log-probs as the old ones, so every ratio is 1: clipping never
    acts, and the gradient does not depend on `epsilon`.

        LearnerSettings(learning_rate=1e-6, loss="clipped", epsilon=0.2)

    Attributes:
        learning_rate: Learning rate of AdamW, constant after the warm-up. [Dr. Zero, Tables 5 and 6]
        betas: Decay of AdamW's two moments. [AdamW; Dr. Zero, Tables 5 and 6]
        weight_decay: Weight decay of AdamW. [AdamW; Dr. Zero, Tables 5 and 6]
        warmup_ratio: Share of a phase's steps over which the learning rate rises. [Dr. Zero, Tables 5 and 6]
        min_warmup_steps: Least number of steps over which it rises. [Quaere]
        max_grad_norm: Gradients are scaled down to this norm; 0: they are not. [Dr. Zero, Tables 5 and 6]
        loss: clipped: PPO's clipped ratio, as in GRPO; policy_gradient: the plain one, as in HRPO. [PPO; Dr.
            Zero, Eq. 2 and 5]
        epsilon: Half width of the clip band. [PPO]
        kl_beta: Weight of the KL divergence from the model the run began with; 0: no KL term. [GRPO]
        kl: Estimator of the KL divergence: k1 the log-ratio, k2 half its square, k3 the unbiased one that is
            never negative. [GRPO]
        kl_flat: Include samples of zero advantage in the KL term. Without it they take part in no forward pass.
            The term is divided by the count of all samples either way. [Quaere]
        aggregation: token_mean: mean over the tokens of the batch; sequence_mean: over each episode's tokens,
            then over episodes; token_sum: sum over each episode's tokens, mean over episodes. [GRPO; EvalAct]
        micro_tokens: Tokens that are computed at a time; does not change the gradient. [Quaere]
        gradient_checkpointing: Compute activations twice rather than keep them; auto: on a GPU whose memory
            would not hold them. [Quaere]
        offload_optimizer: Keep the optimizer's moments in host memory. [Quaere]
        compiled: Fuse the small kernels of each layer with torch.compile; the first step waits for the
            compiler. [Quaere]
        keep_reference: Keep the model the run began with even where no KL term needs it (see
            `score_reference`). [DPO]
    """

    learning_rate: PositiveFloat = 1e-6
    betas: tuple[FractionBelowOne, FractionBelowOne] = (0.9, 0.999)
    weight_decay: NonNegativeFloat = 0.01
    warmup_ratio: Fraction = 0.03
    min_warmup_steps: NonNegativeInt = 0
    max_grad_norm: NonNegativeFloat = 1.0
    loss: Literal["clipped", "policy_gradient"] = "clipped"
    epsilon: FractionBelowOne = 0.2
    kl_beta: NonNegativeFloat = 0.0
    kl: Divergence = "k3"
    kl_flat: bool = False
    aggregation: Aggregation = "token_mean"
    micro_tokens: PositiveInt = 8192
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    offload_optimizer: bool = False
    compiled: bool = False
    keep_reference: bool = False

    @property
    def needs_reference(self) -> bool:
        """True if the reference model (the model the run started from) is needed."""
        return self.kl_beta > 0 or self.keep_reference

    def warmup_steps(self, num_steps: int) -> int:
        """Number of a phase's steps over which the learning rate rises, at most `num_steps`.

        LearnerSettings(warmup_ratio=0.03).warmup_steps(50) == 2
        LearnerSettings(warmup_ratio=0.1, min_warmup_steps=5).warmup_steps(20) == 5
        """
        return min(num_steps, max(math.ceil(self.warmup_ratio * num_steps), self.min_warmup_steps))
