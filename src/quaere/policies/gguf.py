"""Converter from a quantised Llama in a GGUF file to a directory that transformers loads.

llama.cpp packs weights, settings and tokenizer into one file. Here the weights are dequantised to bf16 and renamed for
`LlamaForCausalLM`; the tokenizer is rebuilt from the vocabulary and merges in the file.

    convert_gguf(Path("SmolLM2-135M-Instruct.Q4_1.gguf"), Path("smollm2-135m"))
    # smollm2-135m/: config.json, generation_config.json, model.safetensors, tokenizer.json, chat_template.jinja, ...

Dequantising does not restore precision: the result has the quality of the 4-bit file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from quaere.errors import ModelMissing

if TYPE_CHECKING:
    import numpy
    import torch
    from gguf import GGUFReader
    from numpy.typing import NDArray
    from transformers import GenerationConfig, LlamaConfig, PreTrainedTokenizerFast

_MODEL_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_TENSORS = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_CONTROL_TOKEN = 3  # llama.cpp's type number for tokens such as <|im_start|>


def convert_gguf(source: Path, out: Path) -> None:
    """Write the model in `source` to the directory `out`, as bf16 safetensors with its tokenizer."""
    from gguf import GGUFReader
    from safetensors.torch import save_file

    try:
        reader = GGUFReader(source)
    except (ValueError, OSError, IndexError) as error:
        raise ModelMissing(f"{source.name} is not a readable GGUF file: {error}") from error
    architecture = _field(reader, "general.architecture")
    if architecture != "llama":
        raise ModelMissing(f"the GGUF file contains a {architecture!r} model; only 'llama' can be converted")
    weights = read_weights(reader)
    config = read_config(reader, tied="lm_head.weight" not in weights)
    check_fit(weights, config)
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(out)
    read_generation_config(reader).save_pretrained(out)
    read_tokenizer(reader).save_pretrained(out)


def check_fit(weights: dict[str, torch.Tensor], config: LlamaConfig) -> None:
    """Raise `ModelMissing` unless names and shapes of the weights are those of a model with this config."""
    import torch
    from transformers import LlamaForCausalLM

    with torch.device("meta"):  # shapes only, without memory or initialisation
        expected = {name: tensor.shape for name, tensor in LlamaForCausalLM(config).state_dict().items()}
    if config.tie_word_embeddings:  # the head is the embedding itself
        expected.pop("lm_head.weight", None)
    found = {name: tensor.shape for name, tensor in weights.items()}
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        raise ModelMissing(f"the GGUF file's tensors do not fit its own architecture: {', '.join(wrong[:3])}")


def read_weights(reader: GGUFReader) -> dict[str, torch.Tensor]:
    """All tensors, dequantised to bf16, by their names in transformers."""
    import numpy
    import torch
    from gguf import dequantize

    num_heads = int(_field(reader, "llama.attention.head_count"))
    num_kv_heads = int(_field(reader, "llama.attention.head_count_kv", num_heads))
    weights = {}
    for tensor in reader.tensors:
        array = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        if tensor.name.endswith("attn_q.weight"):
            array = split_halves(array, num_heads)
        elif tensor.name.endswith("attn_k.weight"):
            array = split_halves(array, num_kv_heads)
        weights[rename(tensor.name)] = torch.from_numpy(numpy.ascontiguousarray(array)).to(torch.bfloat16)
    return weights


def rename(name: str) -> str:
    """transformers' name of a llama.cpp tensor.

    rename("blk.3.attn_q.weight") == "model.layers.3.self_attn.q_proj.weight"
    """
    if name in _MODEL_TENSORS:
        return _MODEL_TENSORS[name]
    block, _, rest = name.partition(".")
    layer, _, part = rest.partition(".")
    if block != "blk" or not layer.isdigit() or part not in _LAYER_TENSORS:
        raise ModelMissing(f"the GGUF file contains a tensor that is not part of a Llama model: {name}")
    return f"model.layers.{layer}.{_LAYER_TENSORS[part]}"


def interleave_halves(weight: NDArray[numpy.float32], num_heads: int) -> NDArray[numpy.float32]:
    """The weight with the rows of each head in llama.cpp's order: 0, h, 1, h+1, ... for a head of 2h rows.

    Rotary embedding rotates pairs of rows: transformers pairs row i with row h+i, llama.cpp pairs adjacent rows.
    """
    rows = weight.shape[0]
    per_head = weight.reshape(num_heads, 2, rows // num_heads // 2, *weight.shape[1:])
    return per_head.swapaxes(1, 2).reshape(weight.shape)


def split_halves(weight: NDArray[numpy.float32], num_heads: int) -> NDArray[numpy.float32]:
    """The inverse of `interleave_halves`: rows 0, 2, 4, ... of each head first, then 1, 3, 5, ..."""
    rows = weight.shape[0]
    per_head = weight.reshape(num_heads, rows // num_heads // 2, 2, *weight.shape[1:])
    return per_head.swapaxes(1, 2).reshape(weight.shape)


def read_config(reader: GGUFReader, *, tied: bool) -> LlamaConfig:
    """The model's config; `tied` says that the output head shares the embedding's weights."""
    from transformers import LlamaConfig

    num_heads = int(_field(reader, "llama.attention.head_count"))
    hidden_size = int(_field(reader, "llama.embedding_length"))
    rope_theta = float(_field(reader, "llama.rope.freq_base", 10_000.0))
    return LlamaConfig(
        vocab_size=len(_field(reader, "tokenizer.ggml.tokens")),
        hidden_size=hidden_size,
        intermediate_size=int(_field(reader, "llama.feed_forward_length")),
        num_hidden_layers=int(_field(reader, "llama.block_count")),
        num_attention_heads=num_heads,
        num_key_value_heads=int(_field(reader, "llama.attention.head_count_kv", num_heads)),
        head_dim=int(_field(reader, "llama.rope.dimension_count", hidden_size // num_heads)),
        max_position_embeddings=int(_field(reader, "llama.context_length")),
        rms_norm_eps=float(_field(reader, "llama.attention.layer_norm_rms_epsilon")),
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta},
        tie_word_embeddings=tied,
        architectures=["LlamaForCausalLM"],
        bos_token_id=_token_id(reader, "bos"),
        eos_token_id=_token_id(reader, "eos"),
        pad_token_id=_token_id(reader, "padding"),
        dtype="bfloat16",
    )


def read_generation_config(reader: GGUFReader) -> GenerationConfig:
    """The tokens that end generation: end of turn and end of text, because the model may sample either."""
    from transformers import GenerationConfig

    tokens, types = _field(reader, "tokenizer.ggml.tokens"), _field(reader, "tokenizer.ggml.token_type")
    ends = [_token_id(reader, "eos")]
    ends += [i for i, token in enumerate(tokens) if types[i] == _CONTROL_TOKEN and token == "<|endoftext|>"]
    return GenerationConfig(
        bos_token_id=_token_id(reader, "bos"),
        eos_token_id=list(dict.fromkeys(end for end in ends if end is not None)),
        pad_token_id=_token_id(reader, "padding"),
    )


def read_tokenizer(reader: GGUFReader) -> PreTrainedTokenizerFast:
    """The byte-level BPE tokenizer, with its control tokens and its chat template.

    It is built here because transformers' GGUF loader ignores `tokenizer.ggml.pre`, the pre-tokenization rule: SmolLM
    splits off every digit first, which makes `"  7"` two tokens, `"ĠĠ"` and `"7"`, where GPT-2's rule gives three.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    kind, cut = _field(reader, "tokenizer.ggml.model"), _field(reader, "tokenizer.ggml.pre", "default")
    if kind != "gpt2" or cut not in ("smollm", "gpt-2", "default"):
        raise ModelMissing(f"the GGUF file's tokenizer is {kind}/{cut}; only gpt2/smollm and gpt2/gpt-2 can be read")
    tokens, types = _field(reader, "tokenizer.ggml.tokens"), _field(reader, "tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ", 1)) for merge in _field(reader, "tokenizer.ggml.merges")]
    backend = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level]) if cut == "smollm" else byte_level
    backend.decoder = decoders.ByteLevel()
    control = [token for token, type_ in zip(tokens, types, strict=True) if type_ == _CONTROL_TOKEN]
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    named = {f"{name}_token": _token_id(reader, key) for name, key in _NAMED_TOKENS.items()}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=_field(reader, "tokenizer.chat_template", None),
        model_max_length=int(_field(reader, "llama.context_length")),
        clean_up_tokenization_spaces=False,
        **{name: tokens[token_id] for name, token_id in named.items() if token_id is not None},
    )


_NAMED_TOKENS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
_REQUIRED = object()


def _field(reader: GGUFReader, key: str, default: Any = _REQUIRED) -> Any:
    field = reader.fields.get(key)
    if field is not None:
        return field.contents()
    if default is _REQUIRED:
        raise ModelMissing(f"the GGUF file lacks the field {key}")
    return default


def _token_id(reader: GGUFReader, key: str) -> int | None:
    token_id = _field(reader, f"tokenizer.ggml.{key}_token_id", None)
    return None if token_id is None else int(token_id)
