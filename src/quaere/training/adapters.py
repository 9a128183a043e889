"""LoRA adapters through peft, and weights on their way to the sampler."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch

from quaere.errors import BadInput, ExtraMissing


def add_adapter(model: Any, rank: int, alpha: int) -> Any:
    """Freeze the model and put a LoRA adapter on all its linear layers but the output."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise ExtraMissing("LoRA needs peft", hint="pip install 'quaere[train]'") from None
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, config)


def plain_model(model: Any) -> Any:
    """The transformers model inside, with or without an adapter on it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def without_adapter(model: Any) -> contextlib.AbstractContextManager[Any]:
    """Within it the model is its base, as if no adapter were there."""
    disable = getattr(model, "disable_adapter", None)
    return disable() if disable else contextlib.nullcontext()


def load_weights(model: Any, folder: Path) -> None:
    """Put weights that `save_pretrained` wrote back into the model they came from."""
    from safetensors.torch import load_file

    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*model*.safetensors")):  # one, or several of a model saved in shards
        tensors |= load_file(file)
    if hasattr(model, "get_base_model"):
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(model, tensors)
        return
    # A tied weight is stored once, under one of its names.
    missing = set(model.state_dict()) - set(tensors)
    stray = missing - set(getattr(model, "all_tied_weights_keys", None) or ())
    if stray:
        raise BadInput(f"{folder} lacks weights of this model: {', '.join(sorted(stray)[:3])}")
    model.load_state_dict(tensors, strict=False)


@torch.no_grad()  # type: ignore[untyped-decorator]
def copy_weights(source: Any, target: Any) -> None:
    """Put a learner's weights into a sampling copy of the same architecture, in place and in the copy's own dtype.

    Adapters are added to the weights they sit on, so the copy needs none. Nothing goes through a file, and the target's
    tensors keep their addresses.
    """
    merged = _merged_weights(plain_model(source))
    for name, weight in target.named_parameters():
        weight.copy_(merged[name])


def _merged_weights(model: Any) -> dict[str, torch.Tensor]:
    weights = {}
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        for own, weight in module.named_parameters(recurse=False):
            weights[prefix + own] = weight
        if hasattr(module, "get_delta_weight") and module.active_adapters:
            # A LoRA layer: its own base weight lives one level below, under `base_layer`.
            delta = sum(module.get_delta_weight(adapter) for adapter in module.active_adapters)
            weights[f"{name}.weight"] = module.base_layer.weight + delta
            if getattr(module.base_layer, "bias", None) is not None:
                weights[f"{name}.bias"] = module.base_layer.bias
    return weights
