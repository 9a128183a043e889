"""Merging of LoRA adapters into their base model, in float32."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from quaere.errors import BadInput, ExtraMissing
from quaere.policies.adapter_folders import WEIGHTS
from quaere.policies.native.rounding import round_weights


def merge_adapters(model: Any, folders: Sequence[str], stored: torch.dtype, *, as_base: bool = False) -> Any:
    """The float32 model with the adapters merged into its weights, in order; the peft wrappers are removed.

    An adapter was trained on weights in the dtype that its base is stored in, so the weights below another adapter are
    rounded to that dtype first: the sum then equals that in training and in a merged folder. `as_base` says that
    another adapter will be trained on top of the last.
    """
    for number, folder in enumerate(folders, start=1):
        model = _merge(model, folder)
        if as_base or number < len(folders):
            model = round_weights(round_weights(model, stored), torch.float32)
    return model.requires_grad_(True).eval()  # the state of a freshly loaded model


def _merge(model: Any, folder: str) -> Any:
    try:
        from peft import PeftModel, get_peft_model_state_dict
    except ImportError:
        raise ExtraMissing("loading a LoRA adapter needs peft", extra="train") from None
    from safetensors import SafetensorError, safe_open

    misfit = f"the adapter in {folder} does not fit its base model {model.name_or_path}"
    try:
        with safe_open(Path(folder) / WEIGHTS, framework="pt") as file:
            given = set(file.keys())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about keys that do not fit, which are checked below
            adapted = PeftModel.from_pretrained(model, folder, torch_device="cpu")
    except (RuntimeError, ValueError, KeyError, TypeError, OSError, SafetensorError) as error:
        raise BadInput(misfit) from error
    # peft ignores keys that only one side has: an adapter of a model with other layers would be merged in part.
    if given != set(get_peft_model_state_dict(adapted, save_embedding_layers=False)):
        raise BadInput(misfit)
    return adapted.merge_and_unload()
