"""Settings of models in GGUF files, by family: the config fields of transformers from the fields of the file.

read_qwen35(Fields(reader, "qwen35"))["linear_num_key_heads"]  # the file's qwen35.ssm.group_count
"""

from typing import Any

import numpy
from numpy.typing import NDArray

from quaere.errors import ModelMissing
from quaere.policies.gguf_file import Fields

HEADS, KV_HEADS, _EPSILON = "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon"
_GEMMA_27B_LAYERS = 62


def read_attention(fields: Fields) -> dict[str, Any]:
    """The settings of attention and of the feed-forward layers."""
    num_heads = fields.count(HEADS)
    return {
        "intermediate_size": fields.number("feed_forward_length"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": read_kv_heads(fields),
        "rms_norm_eps": float(fields(_EPSILON)),
        "rope_parameters": read_rope(fields),
    }


def read_head_dim(fields: Fields) -> dict[str, Any]:
    """The settings of attention with a size of its heads."""
    usual = fields.count("embedding_length") // fields.count(HEADS)
    size = fields.number("attention.key_length", fields.number("rope.dimension_count", usual))
    return {**read_attention(fields), "head_dim": size}


def read_kv_heads(fields: Fields) -> int:
    """Number of key and value heads of the layers that have any."""
    found = fields(KV_HEADS, fields.count(HEADS))
    most = max(fields.per_layer(KV_HEADS)) if isinstance(found, list) else int(found)
    if most < 1:
        raise ModelMissing(f"the GGUF file's numbers of key and value heads do not fit {fields.architecture}")
    return most


def read_gemma(fields: Fields) -> dict[str, Any]:
    """Gemma 3: five of six layers have a sliding window and their own rotary base."""
    settings, num_layers = read_head_dim(fields), fields.num_layers
    # llama.cpp recognises the largest model by its number of layers: only its scale is not the head's size.
    largest = fields.count("embedding_length") // settings["num_attention_heads"]
    return settings | {
        "sliding_window": fields.number("attention.sliding_window", 1024),
        "query_pre_attn_scalar": largest if num_layers == _GEMMA_27B_LAYERS else settings["head_dim"],
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": ["full_attention" if layer % 6 == 5 else "sliding_attention" for layer in range(num_layers)],
        "rope_parameters": {
            "full_attention": settings["rope_parameters"],
            "sliding_attention": {"rope_type": "default", "rope_theta": float(fields("rope.freq_base_swa", 10_000.0))},
        },
    }


def read_lfm2(fields: Fields) -> dict[str, Any]:
    """LFM2: layers without heads are convolutions over the last tokens."""
    kv_heads = fields.per_layer(KV_HEADS)
    return {
        "intermediate_size": fields.number("feed_forward_length"),
        "num_attention_heads": fields.count(HEADS),
        "num_key_value_heads": read_kv_heads(fields),
        "norm_eps": float(fields(_EPSILON)),
        "rope_parameters": read_rope(fields),
        "layer_types": ["full_attention" if heads else "conv" for heads in kv_heads],
        "conv_L_cache": fields.number("shortconv.l_cache"),
        "block_auto_adjust_ff_dim": False,  # the file has the adjusted size
    }


def read_qwen35(fields: Fields) -> dict[str, Any]:
    """Qwen3.5: linear attention in most layers; older files only say after how many there is full attention."""
    settings, num_values = read_head_dim(fields), fields.count("ssm.time_step_rank")
    every = fields.count("full_attention_interval", 4)
    is_linear = fields("attention.recurrent_layers", [(layer + 1) % every for layer in range(fields.num_layers)])
    rope = settings["rope_parameters"] | {
        "partial_rotary_factor": fields.number("rope.dimension_count") / settings["head_dim"],
        "mrope_section": [int(size) for size in fields("rope.dimension_sections")][:3],
    }
    return settings | {
        "rope_parameters": rope,
        "layer_types": ["linear_attention" if one else "full_attention" for one in is_linear[: fields.num_layers]],
        "linear_conv_kernel_dim": fields.number("ssm.conv_kernel"),
        "linear_key_head_dim": fields.number("ssm.state_size"),
        "linear_num_key_heads": fields.count("ssm.group_count"),
        "linear_num_value_heads": num_values,
        "linear_value_head_dim": fields.number("ssm.inner_size") // num_values,
    }


def read_granite(fields: Fields) -> dict[str, Any]:
    """Granite 4 hybrid: state spaces, some layers of attention; experts with a shared one, or the shared one alone."""
    kv_heads, num_heads = fields.per_layer(KV_HEADS), fields.count("ssm.time_step_rank")
    inner = fields.number("ssm.inner_size")
    experts = {"num_local_experts": fields.number("expert_count", 0)}
    if experts["num_local_experts"]:
        experts["num_experts_per_tok"] = fields.number("expert_used_count")
    scales = {
        "attention_multiplier": "attention.scale",
        "embedding_multiplier": "embedding_scale",
        "residual_multiplier": "residual_scale",
        "logits_scaling": "logit_scale",
    }
    return {
        **experts,
        **{ours: float(fields(theirs, 1.0)) for ours, theirs in scales.items()},
        "intermediate_size": fields.number("feed_forward_length"),
        "shared_intermediate_size": fields.number("expert_shared_feed_forward_length"),
        "num_attention_heads": fields.count(HEADS),
        "num_key_value_heads": read_kv_heads(fields),
        "rms_norm_eps": float(fields(_EPSILON)),
        "position_embedding_type": "rope" if fields("rope.scaling.finetuned", False) else None,
        "rope_parameters": read_rope(fields),
        "layer_types": ["attention" if heads else "mamba" for heads in kv_heads],
        "mamba_n_heads": num_heads,
        "mamba_d_head": inner // num_heads,
        "mamba_expand": inner // fields.count("embedding_length"),
        "mamba_n_groups": fields.count("ssm.group_count"),
        "mamba_d_state": fields.number("ssm.state_size"),
        "mamba_d_conv": fields.number("ssm.conv_kernel"),
    }


def read_nemotron(fields: Fields) -> dict[str, Any]:
    """Nemotron-H: each layer is a state space, attention without positions, or a feed-forward layer."""
    kv_heads, widths = fields.per_layer(KV_HEADS), fields.per_layer("feed_forward_length")
    num_heads = fields.count("ssm.time_step_rank")
    kinds = [
        "attention" if heads else "mlp" if width else "mamba" for heads, width in zip(kv_heads, widths, strict=True)
    ]
    return {
        "layers_block_type": kinds,
        "intermediate_size": max(widths),
        "num_attention_heads": fields.count(HEADS),
        "num_key_value_heads": read_kv_heads(fields),
        "head_dim": fields.number("attention.key_length"),
        "layer_norm_epsilon": float(fields(_EPSILON)),
        "mamba_num_heads": num_heads,
        "mamba_head_dim": fields.number("ssm.inner_size") // num_heads,
        "n_groups": fields.count("ssm.group_count"),
        "ssm_state_size": fields.number("ssm.state_size"),
        "conv_kernel": fields.number("ssm.conv_kernel"),
    }


def read_falcon(fields: Fields) -> dict[str, Any]:
    """Falcon-H1: attention and a state space side by side; its multipliers are part of the weights in the file."""
    num_heads, inner = fields.count("ssm.time_step_rank"), fields.number("ssm.inner_size")
    return read_head_dim(fields) | {
        "mamba_d_ssm": inner,
        "mamba_n_heads": num_heads,
        "mamba_d_head": inner // num_heads,
        "mamba_n_groups": fields.count("ssm.group_count"),
        "mamba_d_state": fields.number("ssm.state_size"),
        "mamba_d_conv": fields.number("ssm.conv_kernel"),
        "mamba_rms_norm": fields.has("ssm_norm.weight"),
        "mamba_norm_before_gate": False,  # llama.cpp's order
    }


def read_mamba2(fields: Fields) -> dict[str, Any]:
    """Mamba 2: state spaces alone."""
    num_heads, inner = fields.count("ssm.time_step_rank"), fields.number("ssm.inner_size")
    return {
        "num_heads": num_heads,
        "head_dim": inner // num_heads,
        "expand": inner // fields.count("embedding_length"),
        "n_groups": fields.count("ssm.group_count"),
        "state_size": fields.number("ssm.state_size"),
        "conv_kernel": fields.number("ssm.conv_kernel"),
        "layer_norm_epsilon": float(fields(_EPSILON)),
    }


ROPE_FACTORS = "rope_freqs.weight"


def read_rope(fields: Fields) -> dict[str, Any]:
    """Parameters of the rotary embedding: plain, or Llama 3.1's, of which the file has only the resulting factors."""
    kind = str(fields("rope.scaling.type", "none"))
    if kind not in ("none", "linear"):
        raise ModelMissing(f"the GGUF file's rotary embedding is scaled by {kind}; only none and linear can be read")
    theta, factor = float(fields("rope.freq_base", 10_000.0)), float(fields("rope.scaling.factor", 1.0))
    factors = next((tensor.data for tensor in fields.reader.tensors if tensor.name == ROPE_FACTORS), None)
    if factors is not None:
        return _find_llama3(factors, theta)
    if kind == "linear" and factor != 1:
        return {"rope_type": "linear", "rope_theta": theta, "factor": factor}
    return {"rope_type": "default", "rope_theta": theta}


def _find_llama3(factors: NDArray[numpy.float32], theta: float) -> dict[str, Any]:
    """The RoPE parameters, as Llama 3.1 scales them, that give these factors; `ModelMissing` if none do."""
    low, high, trained, largest = 1.0, 4.0, 8192, float(numpy.max(factors))
    if numpy.all(factors == 1):
        return {"rope_type": "default", "rope_theta": theta}
    waves = 2 * numpy.pi * theta ** (numpy.arange(len(factors)) / len(factors))
    smooth = numpy.clip((trained / waves - low) / (high - low), 0, 1)
    expected = 1 / ((1 - smooth) / largest + smooth)
    if not numpy.allclose(expected, factors, rtol=1e-3):
        raise ModelMissing("the GGUF file scales its rotary embedding in a way that is not Llama 3's")
    return {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": largest,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": trained,
    }
