"""Linear layers with LoRA adapters: peft's, computed in fewer passes over memory."""

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor


class FusedLinear(Linear):  # type: ignore[misc]
    """A layer y = Wx + s BAx that adds its adapter inside of the product with B.

    peft casts x to the adapter's dtype, multiplies BAx by s and adds it to Wx, each in a pass of its own over a matrix
    with a row per token, and under autocast keeps a second copy of x for the backward pass. Here s is multiplied into
    B, which is small, the product with B adds to Wx in place, and x is used as it is. The sum is the same but for its
    rounding.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the layer with its active adapters to inputs of any shape (..., in): the result is (..., out)."""
        names = [name for name in self.active_adapters if name in self.lora_A]
        if self.disable_adapters or self.merged or not names or not self._fits(x, names):
            usual: Tensor = super().forward(x, *args, **kwargs)
            return usual
        # Two dimensions from the start: an in-place sum into a view would copy gradients in the backward pass.
        rows = x.reshape(-1, x.shape[-1])
        total: Tensor = self.base_layer(rows, *args, **kwargs)
        for name in names:
            scaled = (self.lora_B[name].weight * self.scaling[name]).to(total.dtype)
            total.addmm_(self.lora_A[name](rows), scaled.T)
        return total.view(*x.shape[:-1], -1)

    def _fits(self, x: Tensor, names: list[str]) -> bool:
        """True if autocast or equal dtypes let x be multiplied as it is; else peft's casts are needed."""
        adapters = (self.lora_A[name].weight for name in names)
        return torch.is_autocast_enabled(x.device.type) or all(x.dtype == weight.dtype for weight in adapters)


def fuse(model: torch.nn.Module) -> None:
    """Let all adapted linear layers of a model compute as `FusedLinear`, in place; their weights stay as they are.

    fuse(get_peft_model(model, LoraConfig(...)))
    """
    for module in model.modules():
        if type(module) is Linear and not module.lora_variant:
            module.__class__ = FusedLinear
