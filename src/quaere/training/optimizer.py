"""AdamW with optional offloading of its moments to host memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def make_optimizer(parameters: Iterable[Tensor], *, offload: bool = False, **options: Any) -> torch.optim.AdamW:
    """AdamW for these weights, fused where torch has a kernel.

    make_optimizer(model.parameters(), lr=1e-6, betas=(0.9, 0.999), weight_decay=0.01)
    """
    weights = list(parameters)
    kind = OffloadedAdamW if offload else torch.optim.AdamW
    return kind(weights, fused=weights[0].device.type in ("cpu", "cuda"), **options)


class OffloadedAdamW(torch.optim.AdamW):  # type: ignore[misc]
    """AdamW with its moments in host memory; they are copied to the device for the update, weight by weight.

    Updates and saved state are bit-identical to plain AdamW.
    """

    param_groups: list[dict[str, Any]]

    def __init__(self, parameters: Iterable[Tensor], **options: Any) -> None:
        # One parameter group per weight, so that weights can be updated one after another.
        super().__init__([{"params": [weight]} for weight in parameters], **options)

    def step(self, closure: None = None) -> None:
        """Update every weight; only one weight's moments are on the device at a time."""
        groups = self.param_groups
        try:
            for group in groups:
                (weight,) = group["params"]
                if weight.grad is None:
                    continue
                resting = self.state[weight]
                self.state[weight] = {n: value.to(weight.device, non_blocking=True) for n, value in resting.items()}
                self.param_groups = [group]
                super().step()
                self._put_away(weight, resting)
        finally:
            self.param_groups = groups
        _finish_copies()

    def load_state_dict(self, state_dict: Any) -> None:
        """Load a saved state; the moments stay in host memory."""
        super().load_state_dict(state_dict)
        for weight in list(self.state):
            self._put_away(weight, {})
        _finish_copies()

    def _put_away(self, weight: Tensor, resting: dict[str, Tensor]) -> None:
        """Move a weight's state to the host, into the memory it had there before."""
        moved = {}
        for name, value in self.state[weight].items():
            if not value.is_cuda:
                moved[name] = value
                continue
            # Pinned memory makes the copies several times faster.
            place = resting[name] if name in resting else torch.empty_like(value, device="cpu", pin_memory=True)
            moved[name] = place.copy_(value, non_blocking=True)
        self.state[weight] = moved


def _finish_copies() -> None:
    """Wait for the asynchronous copies; only then may the host memory be read."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
