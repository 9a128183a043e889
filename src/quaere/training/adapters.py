"""LoRA adapters by peft; weights saved, loaded, checked to be finite, and copied into the sampler."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quaere.errors import BadInput, ExtraMissing, TrainingStopped
from quaere.policies.model_folders import WEIGHTS
from quaere.policies.native.weights import copy_rounded
from quaere.training.settings import AdapterSettings

_EXPERT_LAYERS = ("gate_proj", "up_proj", "down_proj")


def add_adapters(model: Any, names: Sequence[str], settings: AdapterSettings) -> Any:
    """Freeze the model and add a LoRA adapter per name to its linear layers (`_adapted_layers`).

    add_adapters(model, ("proposer", "solver"), AdapterSettings(rank=16))   # one base, two policies
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise ExtraMissing("LoRA needs peft", extra="train") from None
    from quaere.training.lora_layers import fuse

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


def plain_model(model: Any) -> Any:
    """The transformers model without peft's wrapper; adapter layers stay in it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def trainable_weights(model: Any, adapter: str) -> list[torch.Tensor]:
    """The weights a learner trains: all of a plain model, or those of one adapter; the rest is frozen."""
    if not adapter:
        return list(model.requires_grad_(True).parameters())
    model.set_adapter(adapter)
    return [weight for name, weight in model.named_parameters() if f".{adapter}." in name]


def save_weights(model: Any, folder: Path, adapter: str = "", dtype: str = "float32") -> None:
    """Write a model, or one adapter of it with tensors in `dtype`, in Hugging Face layout."""
    if not adapter:
        save_model(model, folder)
        return
    from peft import get_peft_model_state_dict

    folder.mkdir(parents=True, exist_ok=True)
    # Embeddings are never adapted. Without the explicit False, peft looks for the base model, even on the hub.
    tensors = get_peft_model_state_dict(model, adapter_name=adapter, save_embedding_layers=False)
    save_tensors(tensors, folder / WEIGHTS, dtype)
    model.peft_config[adapter].save_pretrained(folder)


def save_model(model: Any, folder: Path) -> None:
    """Write a whole model in Hugging Face layout; raises TrainingStopped if a weight is not finite."""
    refuse_non_finite(model.named_parameters())
    model.save_pretrained(folder)


def save_tensors(tensors: dict[str, torch.Tensor], path: Path, dtype: str) -> None:
    """Write the tensors of an adapter in `dtype`, rounded to nearest.

    Rounding to nearest is safe here: an adapter's tensors are not sums in which a small update could be lost.
    """
    cast = {name: tensor.to(getattr(torch, dtype)).contiguous() for name, tensor in tensors.items()}
    refuse_non_finite(cast.items())  # after the cast: a float32 value may overflow in float16
    save_file(cast, path)


def load_weights(model: Any, folder: Path, adapter: str = "") -> None:
    """Load weights written by `save_weights` into the model they came from."""
    if adapter:
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(model, load_file(folder / WEIGHTS), adapter_name=adapter)
        return
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("model*.safetensors")):  # one file, or several shards
        tensors |= load_file(file)
    # A tied weight is stored once, under one of its names.
    missing = set(model.state_dict()) - set(tensors)
    stray = missing - set(getattr(model, "all_tied_weights_keys", None) or ())
    if stray:
        raise BadInput(f"{folder} has no weights for {', '.join(sorted(stray)[:3])}: it belongs to another model")
    model.load_state_dict(tensors, strict=False)


@torch.no_grad()  # type: ignore[untyped-decorator]
def copy_weights(source: Any, target: Any, adapter: str = "") -> None:
    """Copy a learner's weights into a sampling copy of the same architecture, in place and in the copy's dtype.

    An adapter is added to its base weights in float32, so the copy needs no adapter. A bfloat16 copy is rounded without
    bias (`rounding`). The copy's tensors keep their addresses, which CUDA graphs rely on.
    """
    merged = merged_weights(source, adapter)
    for name, weight in target.named_parameters():
        copy_rounded(weight, merged[name](), name)


def merged_weights(model: Any, adapter: str = "") -> dict[str, Callable[[], torch.Tensor]]:
    """For each weight, by name, a function that computes it with the adapter added.

    Functions, because all merged weights at once may not fit into memory.
    """
    weights: dict[str, Callable[[], torch.Tensor]] = {}
    for name, module in plain_model(model).named_modules():
        prefix = f"{name}." if name else ""
        for own, weight in module.named_parameters(recurse=False):
            weights[prefix + own] = partial(_same, weight)
        if hasattr(module, "get_delta_weight"):
            # A LoRA layer: its base weight is one level below, under `base_layer`.
            alone = partial(_same, module.base_layer.weight)
            weights[f"{name}.weight"] = partial(_add_adapter, module, adapter) if adapter else alone
            if getattr(module.base_layer, "bias", None) is not None:
                weights[f"{name}.bias"] = partial(_same, module.base_layer.bias)
    return weights


def _same(weight: torch.Tensor) -> torch.Tensor:
    return weight


def _add_adapter(module: Any, adapter: str) -> torch.Tensor:
    total: torch.Tensor = module.base_layer.weight.float() + module.get_delta_weight(adapter).float()
    return total


# ------------------------------------------------------------------------------------------------------- finite weights


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
