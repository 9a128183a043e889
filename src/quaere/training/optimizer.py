"""AdamW, whose moments may rest in the computer's memory rather than the GPU's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def make_optimizer(parameters: Iterable[Tensor], *, offload: bool = False, **options: Any) -> torch.optim.AdamW:
    """AdamW for these weights, in one pass over each where there is a kernel for it.

    make_optimizer(model.parameters(), lr=1e-6, betas=(0.9, 0.999), weight_decay=0.01)
    """
    weights = list(parameters)
    kind = OffloadedAdamW if offload else torch.optim.AdamW
    return kind(weights, fused=weights[0].device.type in ("cpu", "cuda"), **options)


class OffloadedAdamW(torch.optim.AdamW):  # type: ignore[misc]
    """AdamW that keeps its two moments a weight in host memory, and fetches them for the update, weight by weight.

    The numbers are those of plain AdamW, bit for bit, and so is the state it saves.
    """

    param_groups: list[dict[str, Any]]

    def __init__(self, parameters: Iterable[Tensor], **options: Any) -> None:
        # A group each, so that they can be updated one after another.
        super().__init__([{"params": [weight]} for weight in parameters], **options)

    def step(self, closure: None = None) -> None:
        """Update every weight. Only one weight's moments are on its device at a time."""
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
        """As usual, save that moments stay in host memory."""
        super().load_state_dict(state_dict)
        for weight in list(self.state):
            self._put_away(weight, {})
        _finish_copies()

    def _put_away(self, weight: Tensor, resting: dict[str, Tensor]) -> None:
        """Move the state of a weight to the host, into the memory it had there before."""
        moved = {}
        for name, value in self.state[weight].items():
            if not value.is_cuda:
                moved[name] = value
                continue
            # Pinned, for copies that are several times as fast.
            place = resting[name] if name in resting else torch.empty_like(value, device="cpu", pin_memory=True)
            moved[name] = place.copy_(value, non_blocking=True)
        self.state[weight] = moved


def _finish_copies() -> None:
    """What was put away may be read from now on."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
