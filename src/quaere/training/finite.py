"""Are all weights numbers? Asked before an update and before a save.

A sample shows only the weights it goes through: a NaN in the embedding of a token that no sample holds changes no loss
and no gradient, would be saved with the rest, and spoil a later step or a user's model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from quaere.errors import TrainingStopped


@torch.no_grad()  # type: ignore[untyped-decorator]
def largest_weight(weights: Iterable[Tensor]) -> Tensor:
    """The largest magnitude among the weights, on their device: NaN if one of them is, infinite if one of them is.

    One pass that makes no copy, and nothing waits for the device.
    """
    # vector_norm rather than abs().max(), which would need the memory of the largest weight once more.
    return torch.stack([torch.linalg.vector_norm(weight, math.inf).float() for weight in weights]).max()


def refuse_non_finite(weights: Iterable[tuple[str, Tensor]]) -> None:
    """Stop before weights are written of which one is not a number, and name its tensor.

    refuse_non_finite(model.named_parameters())
    """
    for name, weight in weights:
        is_checked = weight.is_floating_point() and weight.numel() > 0
        if is_checked and not math.isfinite(largest_weight([weight]).item()):
            raise TrainingStopped(
                f"{name} holds a value that is not finite: it is not saved",
                hint="go on from the last checkpoint with --resume, with a lower learning rate",
            )
