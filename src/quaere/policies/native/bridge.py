"""The one file that touches transformers' internals.

A forward pass of the engine packs the tokens of many rows into one sequence, `(1, tokens)`, and needs only an attention
function of its own (`attention`). transformers lets us register one; models are used as they are, none is
re-implemented.

Tested with transformers 5.10, 5.17 and 5.22.
"""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quaere.errors import BadInput, ModelMissing
from quaere.policies.catalogue import ModelPath
from quaere.policies.loading import first_line
from quaere.policies.native.attention import Pass
from quaere.policies.native.attention_spec import Kind
from quaere.policies.native.cpu_matmul import use_int8
from quaere.policies.native.lora import merge_adapters
from quaere.policies.native.merge import merge
from quaere.policies.native.rounding import round_weights
from quaere.policies.native.varlen import VARLEN, Packing, varlen_attention

ATTENTION = "quaere_packed"
# Layers that a model calls with the same states.
SIDE_BY_SIDE = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
_pass: ContextVar[Pass] = ContextVar("quaere_packed_pass")


def _packed_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, None]:
    """What transformers calls in place of its own attention."""
    output = _pass.get().attend(module.layer_idx, query, key, value, Kind.read(query.shape[-1], options))
    return output, None


def load_model(model: str | ModelPath, device: str, dtype: str, *, packed: bool = True, as_base: bool = False) -> Any:
    """A causal LM of transformers that attends through a `Pass`, ready for inference; or a plain one to train.

    With dtype "int8" its weights are float32, and a CPU decodes with them as bytes (`products`). Adapters are added in
    float32; with `as_base` it is one to train an adapter on (`lora`). To bfloat16, weights are rounded as they are on
    their way from a learner to its sampler (`rounding`).
    """
    found = ModelPath(name=model, path=model) if isinstance(model, str) else model
    path = found.path
    if dtype == "int8" and device != "cpu":
        raise BadInput("int8 is for sampling on a CPU; a GPU samples in bfloat16", hint="--dtype bfloat16")
    # OpenMP threads that spin while they wait slow down tenfold when something else needs the core.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from transformers import AutoModelForCausalLM
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(ATTENTION, _packed_attention)
    kept: Any = {"int8": torch.float32, "bfloat16": "auto"}.get(dtype) or getattr(torch, dtype)  # auto: as stored
    try:
        loaded = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=torch.float32 if found.adapters else kept,
            attn_implementation=ATTENTION if packed else "sdpa",
            low_cpu_mem_usage=True,
            use_safetensors=True,  # a pickle runs code when it is loaded
            trust_remote_code=False,  # said outright: without it transformers asks at a terminal
        )
    except Exception as error:  # files can be wrong in many ways, and each raises a type of its own
        raise ModelMissing(f"cannot load a causal language model from {path}: {first_line(error)}") from error
    if found.adapters:
        loaded = merge_adapters(loaded, found.adapters, stored_dtype(path), as_base=as_base)
    if dtype == "int8":
        use_int8(loaded)
    else:
        round_weights(loaded, getattr(torch, dtype), device)
    return loaded.to(device).eval()


def stored_dtype(path: str) -> torch.dtype:
    """The dtype a model's config says its weights have; float32 where it says nothing."""
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(path, trust_remote_code=False).dtype or torch.float32


def use_packed_attention(model: Any) -> Any:
    """Switch a model that is already in memory to our attention."""
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(ATTENTION, _packed_attention)
    model.set_attn_implementation(ATTENTION)
    return model.eval()


def fuse(model: Any) -> int:
    """Put one kernel in the place of several, everywhere in a model that samples; returns in how many places.

    Products of the same states become one. So does each norm, gate and rotation: a replacement is tried on random
    numbers first, and stays only where it says what the model's own code says.
    """
    num_fused = merge_products(model)
    for module in model.modules():
        if hasattr(module, "variance_epsilon") and hasattr(module, "weight"):
            num_fused += _replace(module, partial(_fused_norm, module), module.weight.shape[0])
        elif all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj")):
            num_fused += _replace(module, partial(_fused_gate, module), module.gate_proj.weight.shape[1])
    return num_fused + _fuse_rotation(model)


def merge_products(model: Any) -> int:
    """Let query, key and value be one product, and gate and up; returns how many there are of these."""
    groups = [
        [getattr(module, name) for name in names]
        for module in model.modules()
        for names in SIDE_BY_SIDE
        if all(hasattr(module, name) for name in names)
    ]
    num_merged = sum(merge(layers) for layers in groups)
    if num_merged and torch.cuda.is_available():
        torch.cuda.empty_cache()  # the memory of the single weights, in pieces too small for the next matrix
    return num_merged


def _fused_norm(module: Any, states: Tensor) -> Tensor:
    from quaere.policies.native import fused

    return fused.rms_norm(states, module.weight, module.variance_epsilon)


def _fused_gate(module: Any, states: Tensor) -> Tensor:
    from quaere.policies.native import fused

    output: Tensor = module.down_proj(fused.gated_silu(module.gate_proj(states), module.up_proj(states)))
    return output


def _replace(module: Any, replacement: Any, width: int) -> bool:
    """Let a module compute this instead, if on some random states it comes to the same."""
    weight = next(module.parameters())
    states = torch.randn(1, 5, width, generator=torch.Generator().manual_seed(0)).to(weight.device, weight.dtype)
    with torch.no_grad():
        if not _same(module(states), replacement(states)):
            return False
    module.forward = replacement
    return True


def _fuse_rotation(model: Any) -> bool:
    """Rotary positions are a function of the model's file; passes of the engine get ours from now on."""
    from quaere.policies.native import fused

    where = sys.modules[type(model).__module__]
    own = getattr(where, "apply_rotary_pos_emb", None)
    if own is None or hasattr(own, "fused"):
        return own is not None
    weight = next(model.parameters())
    shapes = ((1, 6, 5, 16), (1, 2, 5, 16), (1, 5, 16), (1, 5, 16))
    seed = torch.Generator().manual_seed(0)
    query, key, cosines, sines = (torch.randn(s, generator=seed).to(weight.device, weight.dtype) for s in shapes)
    try:
        ours, theirs = fused.rotate(query, key, cosines, sines), own(query, key, cosines, sines)
    except (TypeError, ValueError, RuntimeError):
        return False
    if not (_same(theirs[0], ours[0]) and _same(theirs[1], ours[1])):
        return False

    def rotate(query: Tensor, key: Tensor, cosines: Tensor, sines: Tensor, *rest: Any, **options: Any) -> Any:
        whole = cosines.dim() == 3 and cosines.shape[-1] == query.shape[-1] == key.shape[-1]
        if _pass.get(None) is None or rest or options or not whole or not query.is_cuda:
            return own(query, key, cosines, sines, *rest, **options)
        return fused.rotate(query, key, cosines, sines)

    rotate.fused = True  # type: ignore[attr-defined]
    where.apply_rotary_pos_emb = rotate  # type: ignore[attr-defined]
    return True


def _same(theirs: Tensor, ours: Tensor) -> bool:
    """Alike but for the last bit or two of the less precise."""
    gap = (theirs.float() - ours.float()).norm() / theirs.float().norm().clamp(min=1e-6)
    return bool(gap < 4 * torch.finfo(theirs.dtype).eps)


def max_positions(model: Any) -> int:
    """How many tokens the model can attend to."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", 1 << 20))


def forward(model: Any, where: Pass, token_ids: Tensor, positions: Tensor, wanted: Tensor | None = None) -> Tensor:
    """Run the packed tokens through the model; its logits `(wanted, vocabulary)` of the wanted (or all) tokens."""
    token = _pass.set(where)
    try:
        output = model(
            input_ids=token_ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=0 if wanted is None else wanted,
        )
    finally:
        _pass.reset(token)
    logits: Tensor = output.logits[0]
    return logits


# --------------------------------------------------------------------------------------------------------- training


class Head(NamedTuple):
    """The last layer: `logits = states @ weight.T + bias`, squashed to within `softcap` where there is one.

    Head(weight=tensor of (49152, 576), bias=None, softcap=None)
    """

    weight: Tensor
    bias: Tensor | None
    softcap: float | None


def use_varlen_attention(model: Any) -> Any:
    """Let a model attend within the sequences of a packing, where it is called with one; else it does as before."""
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(VARLEN, varlen_attention)
    AttentionMaskInterface.register(VARLEN, sdpa_mask)
    # cuDNN's attention with a mask gives NaN gradients for some lengths (torch 2.11 to 2.13, Hopper); other kernels
    # do not.
    torch.backends.cuda.enable_cudnn_sdp(False)
    model.set_attn_implementation(VARLEN)
    return model


def packed_states(model: Any, token_ids: Tensor, packing: Packing) -> Tensor:
    """The last hidden states `(tokens, width)` of packed tokens, with gradients; no logits are made."""
    if model.config.get_text_config()._attn_implementation != VARLEN:
        raise ValueError("call use_varlen_attention(model) first: other attention sees across sequences")
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model.base_model
    # A mask of four dimensions counts as finished, so none of tokens by tokens is built; ours is never looked at.
    finished = torch.ones((1, 1, 1, 1), dtype=torch.bool, device=token_ids.device)
    output = decoder(
        input_ids=token_ids[None],
        position_ids=packing.positions_T[None],
        attention_mask=finished,
        use_cache=False,
        packing=packing,
    )
    states: Tensor = output.last_hidden_state[0]
    return states


def output_head(model: Any) -> Head:
    """The head of a causal language model, if it is one we can do ourselves."""
    config = model.config.get_text_config()
    for name in ("logit_scale", "logits_scaling"):
        if getattr(config, name, None) not in (None, 1, 1.0):
            raise ModelMissing(f"models with {name} cannot be trained yet")
    layer = model.get_output_embeddings()
    if type(layer) is not torch.nn.Linear:
        raise ModelMissing(f"models whose output layer is a {type(layer).__name__} cannot be trained yet")
    return Head(layer.weight, layer.bias, getattr(config, "final_logit_softcapping", None))


def decoder_layers(model: Any) -> list[Any]:
    """The layers a model repeats."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
