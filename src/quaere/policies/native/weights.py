"""Weights on their way into a model: unbiased rounding from float32 to bfloat16, and merging of LoRA adapters.

    copy_rounded(sampler_weight, learner_weight, "model.layers.0.mlp.up_proj.weight")

bfloat16 has 8 significant bits, so round-to-nearest drops every change of a weight below 0.2 to 0.4 % of it, which is
most of a small update. Here a weight is rounded up with the probability that makes the expectation exact, so that an
update reaches the copy, spread over many elements. The random bits are a hash of name and index: the same weights give
the same bits at any step, on any device and after any restart, and a weight that does not change keeps its rounding.

An ordinary adapter (matrices A and B of linear layers) is merged here, in float32, so that a model with one runs
without peft, which is used for other forms (DoRA, trained biases, ranks by layer ...).
"""

import warnings
from collections.abc import Sequence
from hashlib import blake2s
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec import Struct
from torch import Tensor

from quaere.errors import BadInput, ExtraMissing
from quaere.policies.model_folders import CONFIG, MAX_LAYERS, WEIGHTS

# Odd constants with well-mixed bits: the golden ratio, and those of MurmurHash3's finaliser.
_STEP, _FIRST, _SECOND = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35
_NAN = 0x7FC00000
# Elements rounded at a time: on a CPU as many as fit the cache; on a GPU more, which needs fewer launches.
_CPU_CHUNK, _GPU_CHUNK = 1 << 17, 1 << 23


@torch.no_grad()  # type: ignore[untyped-decorator]
def copy_rounded(target: Tensor, source: Tensor, name: str, *, chunk: int = 0) -> None:
    """Copy `source` into `target` in place: with hashed rounding from float32 to bfloat16, else a plain copy.

    An element's index is its number in row-major order, whatever the strides. `chunk` elements are computed at a time,
    which affects memory and time but no bit of the result.
    """
    if target.dtype != torch.bfloat16 or source.dtype != torch.float32:
        target.copy_(source)
        return
    flat = source.reshape(-1)
    whole = target.view(-1) if target.is_contiguous() else torch.empty_like(flat, dtype=target.dtype)
    chunk = chunk or (_CPU_CHUNK if whole.device.type == "cpu" else _GPU_CHUNK)
    steps = torch.arange(min(chunk, len(flat)), dtype=torch.int32, device=whole.device) * signed(_STEP, 32)
    # A NaN element makes the sum NaN: without one, the check of every element is skipped.
    holds_nan = bool(flat.sum().isnan())
    # The name's hash is the start of its elements in the sequence of hashes.
    key = int.from_bytes(blake2s(name.encode(), digest_size=4).digest(), "little")
    for start in range(0, len(flat), chunk):
        part = flat[start : start + chunk].to(whole.device)
        words = _hash(steps[: len(part)] + signed(key + start * _STEP, 32))
        words += part.view(torch.int32)  # carries into the upper half, which rounds up, if low half + hash overflow
        if holds_nan:
            words.masked_fill_(part.isnan(), _NAN)
        words >>= 16
        whole[start : start + chunk].view(torch.int16).copy_(words)
    if not target.is_contiguous():
        target.copy_(whole.view(target.shape))


def round_weights(model: Any, dtype: torch.dtype, device: str | torch.device = "") -> Any:
    """Convert the model's weights to another dtype in place, one at a time, and move them to `device` if given.

    Buffers keep their dtype: rotary frequencies stay in float32.
    """
    for name, weight in model.named_parameters():
        if weight.dtype == dtype:
            continue
        rounded = torch.empty(weight.shape, dtype=dtype, device=device or weight.device)
        copy_rounded(rounded, weight, name)
        weight.data = rounded
    return model.to(device) if device else model


def _hash(words: Tensor) -> Tensor:
    """16 well-mixed bits of every 32-bit word, in place; signed shifts lose one bit of 32 but save an operation."""
    for factor in (_FIRST, _SECOND):
        words ^= words >> 15
        words *= signed(factor, 32)
    words >>= 16
    words &= 0xFFFF
    return words


def signed(number: int, bits: int = 64) -> int:
    """The signed integer of this many bits that has the low bits of a number.

    signed(0xFFFFFFFFFFFFFFFF) == signed(0xFFFFFFFF, 32) == -1
    """
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


# ------------------------------------------------------------------------------------------------------------- adapters

_PREFIX, _A, _B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"


class _Form(Struct):
    """The fields of peft's config that decide how an adapter is added."""

    r: int
    lora_alpha: float
    use_dora: bool = False
    use_rslora: bool = False
    fan_in_fan_out: bool = False
    lora_bias: bool = False
    bias: str = "none"
    rank_pattern: dict[str, int] | None = None
    alpha_pattern: dict[str, float] | None = None
    modules_to_save: list[str] | None = None
    layer_replication: list[list[int]] | None = None
    layers_to_transform: int | list[int] | None = None
    exclude_modules: str | list[str] | None = None
    target_modules: str | list[str] | None = None

    @property
    def ordinary(self) -> bool:
        """True if each weight changes by alpha / r * B A and nothing else does."""
        switches = (self.use_dora, self.use_rslora, self.fan_in_fan_out, self.lora_bias, self.bias != "none")
        parts = (self.rank_pattern, self.alpha_pattern, self.modules_to_save, self.layer_replication)
        some = self.layers_to_transform is not None or self.exclude_modules
        return self.r > 0 and isinstance(self.target_modules, list) and not any((*switches, *parts, some))


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
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    misfit = f"the adapter in {folder} does not fit its base model {model.name_or_path}"
    try:
        form = msgspec.json.decode((Path(folder) / CONFIG).read_bytes(), type=_Form)
        _check_sizes(model, form)
        given = load_file(Path(folder) / WEIGHTS)
        if not form.ordinary or not all(name.endswith((_A, _B)) for name in given):
            return _merge_by_peft(model, folder, set(given), misfit)
        _add(model, given, form)
    except (RuntimeError, ValueError, KeyError, TypeError, OSError, AttributeError, SafetensorError) as error:
        raise BadInput(misfit) from error
    return model


def _check_sizes(model: Any, form: _Form) -> None:
    """Raise `BadInput` for excessive ranks or numbers of layers, which peft would allocate before any check."""
    # A product B A of a higher rank than the weight's smaller side has no more degrees of freedom than the weight.
    linear = (module for module in model.modules() if isinstance(module, torch.nn.Linear))
    most = max((min(module.weight.shape) for module in linear), default=0)
    rank = max(form.r, *(form.rank_pattern or {}).values(), 0)
    if rank > most:
        raise BadInput(f"the adapter's config has rank {rank:,}, and no layer of the base model is wider than {most:,}")
    num_layers = sum(end - start for start, end in form.layer_replication or ())
    if num_layers > MAX_LAYERS:
        raise BadInput(f"the adapter's config repeats {num_layers:,} layers; {MAX_LAYERS:,} are the most")


def _add(model: Any, given: dict[str, torch.Tensor], form: _Form) -> None:
    """Add alpha / r * B A to each weight that the adapter names; raises, with nothing added, if one does not fit."""
    names = {name.removesuffix(_A).removesuffix(_B) for name in given}
    updates = []
    for name in sorted(names):
        weight = model.get_submodule(name.removeprefix(_PREFIX)).weight
        up, down = given[name + _B], given[name + _A]
        if (*up.shape[:-1], *down.shape[1:]) != tuple(weight.shape):  # before a product that may be far larger
            raise ValueError(f"{name} has another shape")
        updates.append((weight, up.float() @ down.float() * (form.lora_alpha / form.r)))
    # An adapter of a model with fewer layers fits in part.
    ends = tuple(f".{target}" for target in form.target_modules or ())  # whole names, or their last parts
    linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    if {name for name in linear if f".{name}".endswith(ends)} != {name.removeprefix(_PREFIX) for name in names}:
        raise ValueError("the adapter changes other layers")
    with torch.no_grad():
        for weight, update in updates:
            weight += update


def _merge_by_peft(model: Any, folder: str, given: set[str], misfit: str) -> Any:
    try:
        from peft import PeftModel, get_peft_model_state_dict
    except ImportError:
        raise ExtraMissing("loading a LoRA adapter of this form needs peft", extra="train") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about keys that do not fit, which are checked below
        adapted = PeftModel.from_pretrained(model, folder, torch_device="cpu")
    # peft ignores keys that only one side has: an adapter of a model with other layers would be merged in part.
    if given != set(get_peft_model_state_dict(adapted, save_embedding_layers=False)):
        raise BadInput(misfit)
    return adapted.merge_and_unload()
