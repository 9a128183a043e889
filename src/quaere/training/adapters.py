"""LoRA adapters by peft, and their layers computed in fewer passes over memory than peft's.

add_adapters(model, ("proposer", "solver"), AdapterSettings(rank=16))   # one base, two policies
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from quaere.errors import ExtraMissing
from quaere.training.settings import AdapterSettings

try:
    from peft import LoraConfig, get_peft_model
    from peft.tuners.lora import Linear
except ImportError:
    raise ExtraMissing("LoRA needs peft", extra="train") from None

_EXPERT_LAYERS = ("gate_proj", "up_proj", "down_proj")


def add_adapters(model: Any, names: Sequence[str], settings: AdapterSettings) -> Any:
    """Freeze the model and add a LoRA adapter per name to its linear layers (`_adapted_layers`).

    add_adapters(model, ("proposer", "solver"), AdapterSettings(rank=16))   # one base, two policies
    """
    layers = _adapted_layers(model)
    config = LoraConfig(r=settings.rank, lora_alpha=settings.alpha, target_modules=layers, task_type="CAUSAL_LM")
    first, *others = names
    adapted = get_peft_model(model, config, adapter_name=first)
    for name in others:
        adapted.add_adapter(name, config)
    fuse(adapted)
    return adapted


def _adapted_layers(model: Any) -> str | list[str]:
    """All linear layers except the output head and those in which an adapter would not work.

    The kernels of state spaces read the weight of their last layer by themselves. In models with experts, peft takes
    the names of a shared expert's layers for those of all experts, which are no linear layers and are not adapted.
    Convolutions and vectors are never adapted.
    """
    left_out = {f"{name}.out_proj" for name, module in model.named_modules() if hasattr(module, "ssm_state_size")}
    linear = [name for name, module in model.named_modules() if type(module) is torch.nn.Linear]
    if any(".experts." in name and weight.dim() == 3 for name, weight in model.named_parameters()):
        left_out |= {name for name in linear if name.endswith(_EXPERT_LAYERS)}
    if left_out.isdisjoint(linear):
        return "all-linear"
    head = model.get_output_embeddings()
    return [name for name in linear if name not in left_out and model.get_submodule(name) is not head]


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
