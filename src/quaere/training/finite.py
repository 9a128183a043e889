"""Checks that all weights are finite, before an update and before a save.

A sample involves only the weights it uses: a NaN in the embedding of a token that no sample contains changes no loss
and no gradient, would be saved with the rest, and break a later step or a user's model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from quaere.errors import TrainingStopped


@torch.no_grad()  # type: ignore[untyped-decorator]
def largest_weight(weights: Iterable[Tensor]) -> Tensor:
    """The largest magnitude among the weights, as a tensor on their device; NaN or infinite if any weight is.

    One pass without copies, and without waiting for the device.
    """
    # vector_norm, not abs().max(): the latter would allocate a copy of the largest weight.
    return torch.stack([torch.linalg.vector_norm(weight, math.inf).float() for weight in weights]).max()


def refuse_non_finite(weights: Iterable[tuple[str, Tensor]]) -> None:
    """Raise TrainingStopped if a weight is not finite, naming its tensor.

    refuse_non_finite(model.named_parameters())
    """
    for name, weight in weights:
        is_checked = weight.is_floating_point() and weight.numel() > 0
        if is_checked and not math.isfinite(largest_weight([weight]).item()):
            raise TrainingStopped(
                f"{name} contains a value that is not finite: it is not saved",
                hint="resume from the last checkpoint with --resume and a lower learning rate",
            )
