"""Estimate of a training run before it starts: parameters, memory, episodes.

No weights are loaded. The model is built from its config on torch's meta device, where tensors have shapes but no data.
Parameters, adapters, gradients, optimizer moments and the key-value cache are counted exactly; the activations of a
micro-batch are a rough estimate, by the formula in `_activation_bytes`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from msgspec import Struct, structs

from quaere.errors import ModelMissing
from quaere.policies.model_folders import check_config
from quaere.policies.native.bridge import refuse_unsupported
from quaere.policies.native.kv_cache import STRIDE
from quaere.training.batches import CHUNK_TOKENS
from quaere.training.settings import AdapterSettings, EngineSettings, LearnerSettings

Device = Literal["cpu", "cuda"]

_FLOAT32 = 4
_NUM_BYTES = {"float32": 4, "bfloat16": 2, "int8": 5}  # int8: one byte in addition to the float32 weight
_NUM_LOGITS = 3  # logits, their log-softmax and a gradient exist at once
_MARGIN = 1.25  # safety factor for the rough parts of the estimate and for memory fragmentation


class MemoryParts(Struct, frozen=True):
    """Bytes by purpose at the peak: in the backward pass, with the sampler's key-value cache kept.

    `weights` are those each role trains (float32), or one frozen base under the adapters. `reference` is the frozen
    copy for a KL term if there is no adapter to disable; `cast_weights` the bfloat16 copy that autocast keeps.

        MemoryParts(weights=1_076_120_064, adapters=0, reference=0, gradients=538_060_032, moments=1_076_120_064,
                    cast_weights=269_030_016, sampling_copy=269_030_016, kv_cache=6_134_169_600,
                    logits=603_979_776, activations=8_493_465_600)
    """

    weights: int
    adapters: int
    reference: int
    gradients: int
    moments: int
    cast_weights: int
    sampling_copy: int
    kv_cache: int
    logits: int
    activations: int

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return sum(structs.astuple(self))


class RunEstimate(Struct, frozen=True):
    """Memory of one step. `num_trainable` counts the weights of one role.

    RunEstimate(device="cuda", num_parameters=134_515_008, num_trainable=134_515_008, memory=MemoryParts(...))
    """

    device: Device
    num_parameters: int
    num_trainable: int
    memory: MemoryParts


def estimate_run(
    model: str | Path | Any,
    *,
    adapter: AdapterSettings,
    engine: EngineSettings,
    learner: LearnerSettings,
    sequence_tokens: int,
    device: Device,
    num_roles: int = 2,
    sampled_tokens: int = 0,
    num_moments: int = 1,
    num_samples: int | None = None,
) -> RunEstimate:
    """Memory needed to train `num_roles` roles of a model, one at a time.

    `model` is a folder with a Hugging Face `config.json`, or such a config. `sequence_tokens` is the longest episode
    that is trained on, `sampled_tokens` the longest one that is only sampled, if longer. `num_moments` is the number of
    sets of Adam moments. An update uses at most `num_samples` episodes; without it, enough to fill a micro-batch.

        estimate_run("models/smollm2-135m", adapter=AdapterSettings(rank=16), engine=EngineSettings(max_rows=64),
                     learner=LearnerSettings(), sequence_tokens=4096, device="cuda").memory.total
    """
    config = _read_config(model) if isinstance(model, str | Path) else model
    num_parameters, num_trainable = _count_parameters(config, adapter)
    usual = _NUM_BYTES["bfloat16" if device == "cuda" else "float32"]
    num_bytes = {**_NUM_BYTES, "auto": usual}
    has_adapters = adapter.rank > 0
    base_bytes = num_bytes[engine.base_dtype] if has_adapters else _FLOAT32
    is_offloaded = learner.offload_optimizer and device == "cuda"
    sampling_bytes = 0 if engine.url else num_bytes[engine.dtype]
    shape = _Shape.read(config)
    num_tokens = _micro_tokens(learner, sequence_tokens, num_samples)
    memory = MemoryParts(
        weights=num_parameters * base_bytes * (1 if has_adapters else num_roles),
        adapters=num_trainable * _FLOAT32 * num_roles if has_adapters else 0,
        reference=num_parameters * _FLOAT32 if learner.needs_reference and not has_adapters else 0,
        gradients=num_trainable * _FLOAT32,
        moments=0 if is_offloaded else num_trainable * _FLOAT32 * 2 * num_moments,
        cast_weights=num_parameters * 2 if device == "cuda" and base_bytes == _FLOAT32 else 0,
        sampling_copy=num_parameters * sampling_bytes,
        kv_cache=_kv_numbers(shape, engine.max_rows, max(sequence_tokens, sampled_tokens)) * sampling_bytes,
        logits=_logits_bytes(shape),
        activations=_activation_bytes(shape, learner, num_tokens, base_bytes, usual),
    )
    if learner.gradient_checkpointing == "auto" and device == "cuda" and memory.total * _MARGIN > _free_bytes():
        checked = structs.replace(learner, gradient_checkpointing=True)
        fewer = _activation_bytes(shape, checked, num_tokens, base_bytes, usual)
        memory = structs.replace(memory, activations=fewer)
    return RunEstimate(device, num_parameters, num_trainable, memory)


def needs_checkpointing(
    model: Any, parameters: Sequence[Any], learner: LearnerSettings, *, sequence_tokens: int
) -> bool:
    """True if a step needs more memory, beyond the loaded weights, than the model's GPU has free.

    needs_checkpointing(model, list(model.parameters()), LearnerSettings(), sequence_tokens=4096)
    """
    base_bytes = next(model.parameters()).element_size()
    shape = _Shape.read(model.config)
    num_trained = sum(parameter.numel() for parameter in parameters)
    num_all = sum(parameter.numel() for parameter in model.parameters())
    needed = (
        num_trained * _FLOAT32 * (1 + (0 if learner.offload_optimizer else 2))
        + (num_all * 2 if base_bytes == _FLOAT32 else 0)
        + _logits_bytes(shape)
        + _activation_bytes(shape, learner, _micro_tokens(learner, sequence_tokens), base_bytes, 2)
    )
    return bool(needed * _MARGIN > _free_bytes())


def machine_bytes(device: Device) -> float:
    """Memory of the GPU, or of the machine; infinite if the system does not say."""
    if device == "cuda":
        return float(torch.cuda.mem_get_info()[1])
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):  # not every system has them
        return math.inf


def _free_bytes() -> float:
    """Free memory of the GPU including torch's unused reserve; infinite without a GPU."""
    if not torch.cuda.is_available():
        return math.inf
    return float(torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())


# ------------------------------------------------------------------------------------------------------- the model


class _Shape(Struct, frozen=True):
    """The sizes of a transformer that determine its memory."""

    num_layers: int
    hidden: int
    intermediate: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocabulary: int

    @classmethod
    def read(cls, config: Any) -> _Shape:
        """The sizes in a Hugging Face config of any model family."""
        text = config.get_text_config()
        hidden, num_heads = int(text.hidden_size), int(getattr(text, "num_attention_heads", 0))
        return cls(
            num_layers=int(text.num_hidden_layers),
            hidden=hidden,
            intermediate=int(getattr(text, "intermediate_size", None) or getattr(text, "n_inner", None) or 4 * hidden),
            num_heads=num_heads,
            num_kv_heads=int(getattr(text, "num_key_value_heads", None) or num_heads),  # 0: no attention at all
            head_dim=int(getattr(text, "head_dim", None) or hidden // max(1, num_heads)),
            vocabulary=int(text.vocab_size),
        )


def _read_config(model: str | Path) -> Any:
    from transformers import AutoConfig

    check_config(model)
    try:
        return AutoConfig.from_pretrained(str(model), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many types of exceptions for invalid configs
        raise ModelMissing(
            f"cannot read the config of {model}: {_one_line(error)}", hint="quaere models list"
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _count_parameters(config: Any, adapter: AdapterSettings) -> tuple[int, int]:
    """Number of all parameters and of those one role trains; tied weights count once."""
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    # transformers would refuse it too, but loads the configs of all its models to list them.
    if config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ModelMissing(f"not a causal language model: {config.model_type}", hint="quaere models list")
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except Exception as error:  # as above
        raise ModelMissing(f"not a causal language model: {_one_line(error)}", hint="quaere models list") from error
    refuse_unsupported(model)
    num_parameters = sum(weight.numel() for weight in model.parameters())
    if not adapter.rank:
        return num_parameters, num_parameters
    from quaere.training.adapters import add_adapters

    with torch.device("meta"):
        model = add_adapters(model, ("role",), adapter)
    return num_parameters, sum(weight.numel() for name, weight in model.named_parameters() if ".role." in name)


# ------------------------------------------------------------------------------------------------------ the memory


def _kv_numbers(shape: _Shape, num_rows: int, sequence_tokens: int) -> int:
    """Number of values in the key-value cache of all slots, rounded up like the sampler's storage."""
    num_slots = num_rows + 1  # one slot is for padding: see `Decoder`
    capacity = -(-sequence_tokens // STRIDE) * STRIDE
    return num_slots * capacity * shape.num_layers * 2 * shape.num_kv_heads * shape.head_dim


def _logits_bytes(shape: _Shape) -> int:
    return CHUNK_TOKENS * shape.vocabulary * _FLOAT32 * _NUM_LOGITS


def _micro_tokens(learner: LearnerSettings, sequence_tokens: int, num_samples: int | None = None) -> int:
    """Tokens of the largest micro-batch; a single episode may exceed the limit.

    _micro_tokens(LearnerSettings(micro_tokens=8192), sequence_tokens=640, num_samples=6) == 3840
    """
    batch = learner.micro_tokens if num_samples is None else num_samples * sequence_tokens
    return max(min(learner.micro_tokens, batch), sequence_tokens)


def _activation_bytes(
    shape: _Shape, learner: LearnerSettings, num_tokens: int, weight_bytes: int, compute_bytes: int
) -> int:
    """Rough estimate of the activations that a backward pass keeps for `num_tokens` tokens.

    Within 25 % of what autograd keeps for Llama, Qwen, Mistral and Gemma 3 on a CPU; Gemma 2 and GPT-2 keep about twice
    as much.

    A layer keeps about 8 vectors of the hidden size per token (residuals and norms, in the weights' precision), 4 of
    the intermediate size, and queries, keys and values twice (in the compute precision). Attention is assumed to be
    fused, without a matrix of tokens by tokens. With gradient checkpointing only each layer's input is kept, and one
    layer at a time is recomputed.
    """
    attention = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    layer = 8 * shape.hidden * weight_bytes + (4 * shape.intermediate + 2 * attention) * compute_bytes
    if learner.gradient_checkpointing is True:
        return num_tokens * (shape.num_layers * shape.hidden * weight_bytes + layer)
    return num_tokens * shape.num_layers * layer
