"""How llama.cpp's converter stores models of each family: names of tensors, their layout, and settings.

    family = FAMILIES["granitehybrid"]
    family.rename("blk.3.ssm_a")                            # "model.layers.3.mamba.A_log"
    family.read_settings(fields)                            # the config fields of transformers

A name that ends in `/0` or `/1` is a part of a tensor that transformers has in one piece.
"""

from collections.abc import Callable
from typing import Any

import numpy
from msgspec import Struct
from numpy.typing import NDArray

from quaere.errors import ModelMissing
from quaere.policies import gguf_settings as settings
from quaere.policies.gguf_file import Fields

Array = NDArray[numpy.float32]


class Family(Struct, frozen=True):
    """How llama.cpp stores the models of an architecture, and transformers' classes for them.

    `inside` maps the names of a layer's tensors to those of transformers, `outside` those of no layer; `layers` is
    transformers' name of the list of layers. `interleaves` says that the rows of the query and key weights are in
    llama.cpp's order, `adds_one` that norms are stored with 1 added, `tiles` that the value heads of linear attention
    are ordered by their number within a key head.
    """

    title: str
    config: str
    model: str
    inside: dict[str, str]
    outside: dict[str, str]
    read_settings: Callable[[Fields], dict[str, Any]]
    layers: str = "model.layers"
    interleaves: bool = False
    adds_one: bool = False
    tiles: bool = False

    def rename(self, name: str) -> str:
        """transformers' name of a llama.cpp tensor.

        FAMILIES["llama"].rename("blk.3.attn_q.weight") == "model.layers.3.self_attn.q_proj.weight"
        """
        if name in self.outside:
            return self.outside[name]
        layer, part = split_name(name)
        if layer < 0 or part not in self.inside:
            raise ModelMissing(f"the GGUF file contains a tensor that is not part of a {self.title} model: {name}")
        return f"{self.layers}.{layer}.{self.inside[part]}"

    def restore(self, array: Array, part: str, fields: Fields) -> Array:
        """A tensor as transformers stores it; `part` is its name without the layer."""
        if self.tiles and part in _TILED:
            array = _untile(array, part, fields)
        if self.interleaves and part in ("attn_q.weight", "attn_k.weight"):
            num_heads = fields.count(settings.HEADS)
            array = split_halves(array, num_heads if part == "attn_q.weight" else settings.read_kv_heads(fields))
        if self.adds_one and part.endswith("norm.weight") and part != "ssm_norm.weight":
            array = array - 1
        if part in ("ssm_a", "ssm_d", "ssm_norm.weight"):
            array = array.reshape(-1)
        if part == "ssm_a":
            array = numpy.log(-array)
        return array[:, None] if part in ("shortconv.conv.weight", "ssm_conv1d.weight") else array


def split_name(name: str) -> tuple[int, str]:
    """The layer's number and the rest of the name; -1 and the name for a tensor of no layer.

    split_name("blk.3.attn_q.weight") == (3, "attn_q.weight")
    """
    block, _, rest = name.partition(".")
    layer, _, part = rest.partition(".")
    return (int(layer), part) if block == "blk" and layer.isdecimal() else (-1, name)


def split_halves(weight: Array, num_heads: int) -> Array:
    """The weight with the rows of each head in transformers' order: 0, 2, 4, ... first, then 1, 3, 5, ...

    Rotary embedding rotates pairs of rows: transformers pairs row i of a head of 2h rows with row h+i, llama.cpp pairs
    adjacent rows.
    """
    per_head = weight.reshape(num_heads, len(weight) // num_heads // 2, 2, *weight.shape[1:])
    return per_head.swapaxes(1, 2).reshape(weight.shape)


_QKV = ("attn_qkv.weight", "ssm_conv1d.weight")  # tensors that begin with queries and keys
_TILED = (*_QKV, "attn_gate.weight", "ssm_out.weight", "ssm_alpha.weight", "ssm_beta.weight", "ssm_a", "ssm_dt.bias")


def _untile(array: Array, part: str, fields: Fields) -> Array:
    """The tensor with the value heads of each key head side by side; llama.cpp has the first of each key head first."""
    if part == "ssm_out.weight":  # its columns, and not its rows, belong to heads
        return _untile(array.T, "", fields).T
    num_keys, num_values = fields.count("ssm.group_count"), fields.count("ssm.time_step_rank")
    start = 2 * num_keys * fields.number("ssm.state_size") if part in _QKV else 0
    heads = array[start:].reshape(num_values // num_keys, num_keys, -1, *array.shape[1:])
    return numpy.concatenate([array[:start], heads.swapaxes(0, 1).reshape(-1, *array.shape[1:])])


# ---------------------------------------------------------------------------------------------------------------- names


def _weights(**names: str) -> dict[str, str]:
    """Names of transformers by names of the file; both are given without ".weight", and returned with it."""
    return {f"{theirs}.weight": f"{ours}.weight" for theirs, ours in names.items()}


def _attention_names(at: str = "self_attn", output: str = "o_proj") -> dict[str, str]:
    return _weights(**{f"attn_{name}": f"{at}.{name}_proj" for name in "qkv"}, attn_output=f"{at}.{output}")


def _gated(at: str, names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")) -> dict[str, str]:
    return _weights(
        **{f"ffn_{theirs}": f"{at}.{ours}" for theirs, ours in zip(("gate", "up", "down"), names, strict=True)}
    )


def _state_space(at: str) -> dict[str, str]:
    names = {f"ssm_{theirs}": f"{at}.{ours}" for theirs, ours in (("a", "A_log"), ("d", "D"), ("dt.bias", "dt_bias"))}
    names["ssm_conv1d.bias"] = f"{at}.conv1d.bias"
    inside = {"in": "in_proj", "out": "out_proj", "norm": "norm", "conv1d": "conv1d"}
    return names | _weights(**{f"ssm_{theirs}": f"{at}.{ours}" for theirs, ours in inside.items()})


_OUTSIDE = _weights(token_embd="model.embed_tokens", output_norm="model.norm", output="lm_head")
_LLAMA = {
    **_attention_names(),
    **_gated("mlp"),
    **_weights(attn_norm="input_layernorm", ffn_norm="post_attention_layernorm"),
}
_BIASES = {f"attn_{name}.bias": f"self_attn.{name}_proj.bias" for name in "qkv"}
_HEAD_NORMS = _weights(attn_q_norm="self_attn.q_norm", attn_k_norm="self_attn.k_norm")
_GEMMA = _weights(
    post_attention_norm="post_attention_layernorm",
    ffn_norm="pre_feedforward_layernorm",
    post_ffw_norm="post_feedforward_layernorm",
)
_LFM2 = {
    **_attention_names(output="out_proj"),
    **_gated("feed_forward", ("w1", "w3", "w2")),
    **_weights(attn_norm="operator_norm", ffn_norm="ffn_norm"),
    **_weights(attn_q_norm="self_attn.q_layernorm", attn_k_norm="self_attn.k_layernorm"),
    **{f"shortconv.{name}.weight": f"conv.{name}.weight" for name in ("conv", "in_proj", "out_proj")},
}
_LINEAR = {
    **_state_space("linear_attn"),
    **_weights(attn_qkv="linear_attn.in_proj_qkv", attn_gate="linear_attn.in_proj_z"),
    **_weights(ssm_alpha="linear_attn.in_proj_a", ssm_beta="linear_attn.in_proj_b"),
    **_weights(post_attention_norm="post_attention_layernorm"),
}
_SHARED, _EXPERTS = "shared_mlp", "block_sparse_moe"
_GRANITE = {
    **_LLAMA,
    **_state_space("mamba"),
    "ffn_gate_inp.weight": f"{_EXPERTS}.router.weight",
    "ffn_gate_exps.weight": f"{_EXPERTS}.experts.gate_up_proj/0",
    "ffn_up_exps.weight": f"{_EXPERTS}.experts.gate_up_proj/1",
    "ffn_down_exps.weight": f"{_EXPERTS}.experts.down_proj",
}
for _kind in ("", "_shexp"):  # without experts the shared one has the names of a feed-forward layer
    _GRANITE |= {
        f"ffn_{name}{_kind}.weight": f"{_SHARED}.input_linear.weight/{number}"
        for number, name in enumerate(("gate", "up"))
    }
    _GRANITE |= {f"ffn_down{_kind}.weight": f"{_SHARED}.output_linear.weight"}
_NEMOTRON = {
    **_attention_names("mixer"),
    **_state_space("mixer"),
    **_weights(attn_norm="norm", ffn_up="mixer.up_proj", ffn_down="mixer.down_proj"),
}
_FALCON = {
    **_attention_names(),
    **_state_space("mamba"),
    **_gated("feed_forward"),
    **_weights(attn_norm="input_layernorm"),
    "ffn_norm": "pre_ff_layernorm.weight",  # llama.cpp's name has no ending
}
_MAMBA2 = {**_state_space("mixer"), **_weights(attn_norm="norm")}


def _outside(**names: str) -> dict[str, str]:
    return _OUTSIDE | _weights(**names)


FAMILIES = {
    "llama": Family(
        "Llama", "LlamaConfig", "LlamaForCausalLM", _LLAMA, _OUTSIDE, settings.read_head_dim, interleaves=True
    ),
    "qwen2": Family("Qwen2", "Qwen2Config", "Qwen2ForCausalLM", _LLAMA | _BIASES, _OUTSIDE, settings.read_attention),
    "qwen3": Family("Qwen3", "Qwen3Config", "Qwen3ForCausalLM", _LLAMA | _HEAD_NORMS, _OUTSIDE, settings.read_head_dim),
    "gemma3": Family(
        "Gemma 3",
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        _LLAMA | _HEAD_NORMS | _GEMMA,
        _OUTSIDE,
        settings.read_gemma,
        adds_one=True,
    ),
    "lfm2": Family(
        "LFM2",
        "Lfm2Config",
        "Lfm2ForCausalLM",
        _LFM2,
        _outside(token_embd_norm="model.embedding_norm"),  # the last one, in spite of its name
        settings.read_lfm2,
    ),
    "qwen35": Family(
        "Qwen3.5",
        "Qwen3_5TextConfig",
        "Qwen3_5ForCausalLM",
        _LLAMA | _HEAD_NORMS | _LINEAR,
        _OUTSIDE,
        settings.read_qwen35,
        adds_one=True,
        tiles=True,
    ),
    "granitehybrid": Family(
        "Granite 4",
        "GraniteMoeHybridConfig",
        "GraniteMoeHybridForCausalLM",
        _GRANITE,
        _OUTSIDE,
        settings.read_granite,
        interleaves=True,
    ),
    "nemotron_h": Family(
        "Nemotron-H",
        "NemotronHConfig",
        "NemotronHForCausalLM",
        _NEMOTRON,
        _outside(token_embd="model.embeddings", output_norm="model.norm_f"),
        settings.read_nemotron,
        interleaves=True,
    ),
    "falcon-h1": Family(
        "Falcon-H1",
        "FalconH1Config",
        "FalconH1ForCausalLM",
        _FALCON,
        _outside(output_norm="model.final_layernorm"),
        settings.read_falcon,
    ),
    "mamba2": Family(
        "Mamba 2",
        "Mamba2Config",
        "Mamba2ForCausalLM",
        _MAMBA2,
        _outside(token_embd="backbone.embeddings", output_norm="backbone.norm_f"),
        settings.read_mamba2,
        layers="backbone.layers",
    ),
}
