"""The only file that touches transformers' internals, except for its caches (`row_caches`).

A forward pass of the engine packs the tokens of many rows into one sequence, `(1, tokens)`, and needs only its own
attention function (`attention`). transformers allows registering one; models are used as they are, none is
re-implemented. Models whose rows cannot be packed keep their own attention and cache (`why_unpacked`, `plain`).

Tested with transformers 5.10, 5.17 and 5.22.
"""

import inspect
import math
import os
import sys
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn

from quaere.errors import BadInput, ModelMissing
from quaere.policies.catalogue import ModelPath
from quaere.policies.model_folders import check_config, check_weights, first_line
from quaere.policies.native.attention import VARLEN, Kind, Packing, PackingLost, Pass, bound, expected, varlen_attention
from quaere.policies.native.llama_step import Layer, LlamaParts, Norm, Product
from quaere.policies.native.weights import merge, merge_adapters, round_weights, use_int8

ATTENTION = "quaere_packed"
# Linear layers that have the same input.
SIDE_BY_SIDE = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
# Models whose layers are those of Llama, with biases, norms of heads or sliding windows added.
LLAMA_LIKE = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_pass: ContextVar[Pass] = ContextVar("quaere_packed_pass")


def _packed_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, None]:
    """Attention function registered with transformers: it delegates to the current `Pass`."""
    return _pass.get().attend(module.layer_idx, query, key, value, Kind.read(query.shape[-1], options)), None


def load_model(model: str | ModelPath, device: str, dtype: str, *, packed: bool = True, as_base: bool = False) -> Any:
    """A causal LM of transformers, ready to sample; with `packed=False` one to train.

    With dtype "int8" the weights are float32, and a CPU decodes with an int8 copy of them. Adapters are merged in
    float32; with `as_base` the result is one to train an adapter on. For bfloat16, weights are rounded as on their way
    from a learner to its sampler (`weights`).
    """
    found = ModelPath(name=model, path=model) if isinstance(model, str) else model
    path = found.path
    if dtype == "int8" and device != "cpu":
        raise BadInput("int8 works only on a CPU; on a GPU use bfloat16", hint="--dtype bfloat16")
    # By default OpenMP threads spin while they wait, which slows sampling tenfold if another process needs the core.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(ATTENTION, _packed_attention)
    check_config(path)
    kept: Any = {"int8": torch.float32, "bfloat16": "auto"}.get(dtype) or getattr(torch, dtype)  # auto: as stored
    try:
        sketch = check_weights(AutoConfig.from_pretrained(path, trust_remote_code=False), path)
        is_plain = sketch is not None and why_unpacked(sketch)
        loaded = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=torch.float32 if found.adapters else kept,
            attn_implementation=None if is_plain else ATTENTION if packed else "sdpa",
            low_cpu_mem_usage=True,
            use_safetensors=True,  # loading a pickle runs code
            trust_remote_code=False,  # must be explicit: without it transformers asks at a terminal
        )
    except BadInput:
        raise
    except Exception as error:  # invalid files raise many exception types
        raise ModelMissing(f"cannot load a causal language model from {path}: {first_line(error)}") from error
    refuse_unsupported(loaded)
    if found.adapters:
        loaded = merge_adapters(loaded, found.adapters, stored_dtype(path), as_base=as_base)
    if dtype == "int8":
        use_int8(loaded)
    else:
        round_weights(loaded, getattr(torch, dtype), device)
    return loaded.to(device).eval()


def stored_dtype(path: str) -> torch.dtype:
    """The dtype of a model's weights by its config; float32 if the config has none."""
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(path, trust_remote_code=False).dtype or torch.float32


def use_packed_attention(model: Any) -> Any:
    """Switch a loaded model, in place, to attention through a `Pass`; returns the model in evaluation mode.

    A model whose rows cannot be packed keeps its own attention.
    """
    from transformers.modeling_utils import AttentionInterface

    refuse_unsupported(model)
    AttentionInterface.register(ATTENTION, _packed_attention)
    if not why_unpacked(model):
        model.set_attn_implementation(ATTENTION)
    return model.eval()


def fuse(model: Any) -> int:
    """Replace groups of operations by single kernels in a model that samples; returns the number of replacements.

    Linear layers with the same input become one product. Each norm, gate and rotary embedding becomes one kernel: a
    replacement is compared with the model's own code on random numbers, and used only if the results agree.
    """
    num_fused = merge_products(model)
    for module in model.modules():
        if hasattr(module, "variance_epsilon") and hasattr(module, "weight"):
            num_fused += _replace(module, partial(_fused_norm, module), module.weight.shape[0])
        elif all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj")):
            num_fused += _replace(module, partial(_fused_gate, module), module.gate_proj.weight.shape[1])
    return num_fused + _fuse_rotation(model)


def merge_products(model: Any) -> int:
    """Merge the products of query, key and value, and those of gate and up; returns the number of merged groups."""
    groups = [
        [getattr(module, name) for name in names]
        for module in model.modules()
        for names in SIDE_BY_SIDE
        if all(hasattr(module, name) for name in names)
    ]
    num_merged = sum(merge(layers) for layers in groups)
    if num_merged and torch.cuda.is_available():
        torch.cuda.empty_cache()  # frees the single weights, whose blocks are too small to be reused for merged ones
    return num_merged


def _fused_norm(module: Any, states: Tensor) -> Tensor:
    from quaere.policies.native import fused

    return fused.rms_norm(states, module.weight, module.variance_epsilon)


def _fused_gate(module: Any, states: Tensor) -> Tensor:
    from quaere.policies.native import fused

    return module.down_proj(fused.gated_silu(module.gate_proj(states), module.up_proj(states)))


def _replace(module: Any, replacement: Any, width: int) -> bool:
    """Replace a module's forward function if both agree on random states; returns True if replaced."""
    weight = next(module.parameters())
    states = torch.randn(1, 5, width, generator=torch.Generator().manual_seed(0)).to(weight.device, weight.dtype)
    with torch.no_grad():
        agrees = _same(module(states), replacement(states))
    if agrees:
        module.forward = replacement
    return agrees


def _fuse_rotation(model: Any) -> bool:
    """Replace the rotary embedding function in the model's module by a kernel, for passes of the engine only."""
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
    """True if two tensors agree up to a few units of rounding."""
    gap = (theirs.float() - ours.float()).norm() / theirs.float().norm().clamp(min=1e-6)
    return bool(gap < 4 * torch.finfo(theirs.dtype).eps)


def max_positions(model: Any) -> int:
    """The model's maximum context length in tokens."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", 1 << 20))


def forward(model: Any, where: Pass, token_ids: Tensor, positions: Tensor, wanted: Tensor | None = None) -> Tensor:
    """Logits `(wanted, vocabulary)` of the wanted (or all) packed tokens."""
    with bound(_pass, where):
        keep = 0 if wanted is None else wanted
        output = model(input_ids=token_ids[None], position_ids=positions[None], use_cache=False, logits_to_keep=keep)
    return output.logits[0]


def read_llama(model: Any) -> LlamaParts | None:
    """The parts of a Llama in float32 on a CPU, as `llama_step` needs them; None for any other model.

    The weights of joined products become views of one matrix.
    """
    config, weight = model.config, next(model.parameters())
    is_llama = type(model).__name__ in LLAMA_LIKE and config.hidden_act == "silu"
    if not is_llama or weight.device.type != "cpu" or weight.dtype != torch.float32:
        return None
    body = model.model
    head_dim = body.layers[0].self_attn.head_dim
    if 2 * body.rotary_emb.inv_freq.numel() != head_dim:  # only a part of each head is rotated
        return None
    return LlamaParts(
        body.embed_tokens.weight.detach(),
        [_read_layer(layer, config) for layer in body.layers],
        _read_norm(body.norm),
        Product([model.lm_head]),
        body.rotary_emb,
        config.num_attention_heads,
        config.num_key_value_heads,
        head_dim,
    )


def _read_layer(layer: Any, config: Any) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    # Mistral has one window for all layers, in its config; Llama's config has none.
    window = getattr(attention, "sliding_window", getattr(config, "sliding_window", None))
    return Layer(
        _read_norm(layer.input_layernorm),
        Product([attention.q_proj, attention.k_proj, attention.v_proj]),
        (_read_norm(attention.q_norm), _read_norm(attention.k_norm)) if hasattr(attention, "q_norm") else None,
        Product([attention.o_proj]),
        _read_norm(layer.post_attention_layernorm),
        Product([mlp.gate_proj, mlp.up_proj]),
        Product([mlp.down_proj]),
        Kind(attention.scaling, window),
    )


def _read_norm(module: Any) -> Norm:
    return Norm(module.weight.detach(), module.variance_epsilon)


# --------------------------------------------------------------------------------------------------------- training


class Head(NamedTuple):
    """The output layer: `logits = scale * states @ weight.T + bias`, soft-capped if `softcap` is set.

    Head(weight=tensor of (49152, 576), bias=None, softcap=None)
    """

    weight: Tensor
    bias: Tensor | None
    softcap: float | None
    scale: float = 1.0


def use_varlen_attention(model: Any) -> Any:
    """Switch a model, in place, to attention within the sequences of a packing; other calls work as before.

    A model whose rows cannot be packed keeps its own attention; so does one that does not pass the packing on to it.
    """
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    from transformers.modeling_utils import AttentionInterface

    refuse_unsupported(model)
    AttentionInterface.register(VARLEN, varlen_attention)
    AttentionMaskInterface.register(VARLEN, sdpa_mask)
    # cuDNN's attention with a mask gives NaN gradients for some lengths (torch 2.11 to 2.13, Hopper); other kernels
    # do not.
    torch.backends.cuda.enable_cudnn_sdp(False)
    if not why_unpacked(model):
        own = model.config.get_text_config()._attn_implementation
        model.set_attn_implementation(VARLEN)
        if own != VARLEN and not _passes_packing(model):
            model.set_attn_implementation(own)
    return model


def _passes_packing(model: Any) -> bool:
    """True if the model's layers pass a packing on to their attention; Nemotron's do not."""
    device, was_training = next(model.parameters()).device, model.training
    model.eval()  # dropout would draw random numbers
    try:
        with torch.no_grad():
            packed_states(model, torch.zeros(2, dtype=torch.long, device=device), Packing((1, 1), device))
    except PackingLost:
        return False
    finally:
        model.train(was_training)
    return True


def is_varlen(model: Any) -> bool:
    """True if the model's attention keeps packed sequences apart."""
    return bool(model.config.get_text_config()._attn_implementation == VARLEN)


def packed_states(model: Any, token_ids: Tensor, packing: Packing) -> Tensor:
    """Last hidden states `(tokens, width)` of packed tokens, with gradients; no logits are computed."""
    if not is_varlen(model):
        raise ValueError("call use_varlen_attention(model) first: other attention would mix the packed sequences")
    # transformers takes a mask of four dimensions as complete and builds no tokens x tokens mask; this one is not read.
    finished = torch.ones((1, 1, 1, 1), dtype=torch.bool, device=token_ids.device)
    with bound(expected, True):
        output = find_decoder(model)(
            input_ids=token_ids[None],
            position_ids=packing.positions_T[None],
            attention_mask=finished,
            use_cache=False,
            packing=packing,
        )
    return output.last_hidden_state[0]


def find_decoder(model: Any) -> Any:
    """The model without its output layer; some families of transformers name the whole model as their decoder."""
    found = (model.get_decoder(), model.base_model, getattr(model, "model", model))
    return next((part for part in found if part is not model), model)


def output_head(model: Any) -> Head:
    """The output layer of a causal language model; `ModelMissing` if its form is not supported."""
    config = model.config.get_text_config()
    layer = model.get_output_embeddings()
    if type(layer) is not torch.nn.Linear:
        raise ModelMissing(f"models whose output layer is a {type(layer).__name__} cannot be trained yet")
    # Cohere, Falcon-H1 and Granite.
    factors = [getattr(config, name, None) for name in ("logit_scale", "lm_head_multiplier")]
    scale = math.prod(factor for factor in factors if factor) / (getattr(config, "logits_scaling", None) or 1)
    if scale != 1 and layer.bias is not None:
        raise ModelMissing("models with scaled logits and a bias in their output layer cannot be trained yet")
    return Head(layer.weight, layer.bias, getattr(config, "final_logit_softcapping", None), scale)


def decoder_layers(model: Any) -> list[Any]:
    """The decoder layers of a model."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


# ----------------------------------------------------------------------------------------------- models of other layers

_ATTENTION = {"full_attention", "sliding_attention"}
_CACHES = ("past_key_values", "cache_params")  # names of a forward pass's cache


def why_unpacked(model: Any) -> str:
    """Why rows of this model cannot be packed, such as "layers of conv"; "" if they can.

    Anything but full and sliding attention would compute something else. The model may be without weights, on torch's
    meta device.
    """
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    if others := sorted(kinds - _ATTENTION):
        return f"layers of {' and '.join(others)}"
    if any(isinstance(module, nn.Conv1d) for module in model.modules()):
        return "layers that convolve neighbouring tokens"
    return "" if getattr(model, "_supports_attention_backend", False) else "attention that cannot be replaced"


def refuse_unsupported(model: Any) -> None:
    """Raise `ModelMissing` for a model that can neither be packed nor takes a cache; it may be on the meta device."""
    if (found := why_unpacked(model)) and not cache_name(model):
        refuse_plain(model, f"has {found}, and its forward pass takes no cache")


def refuse_plain(model: Any, reason: str) -> NoReturn:
    """Raise `ModelMissing` for a model that the plain path would compute wrongly."""
    raise ModelMissing(
        f"{model.config.get_text_config().model_type} {reason}",
        hint="choose another model (docs/models.md has a table), or serve it elsewhere: openai:MODEL@BASE_URL",
    )


def cache_name(model: Any) -> str:
    """The name under which the model's forward pass takes its cache; "" if it takes none."""
    parameters = inspect.signature(type(model).forward).parameters
    return next((name for name in _CACHES if name in parameters), "")
