"""Converter from a quantised model in a GGUF file to a directory that transformers loads.

llama.cpp packs weights, settings and tokenizer into one file. Here the weights are dequantised to bf16 and renamed for
transformers (`_FAMILIES`: Llama, Qwen2, Qwen3, Gemma 3, LFM2); the tokenizer is rebuilt from its vocabulary, its merges
or scores, and the name of its rule. transformers' own GGUF loader ignores that rule, `tokenizer.ggml.pre`: SmolLM
splits off every digit first, which makes `"  7"` two tokens, `"ĠĠ"` and `"7"`, where GPT-2's rule gives three.

    convert_gguf(Path("SmolLM2-135M-Instruct.Q4_1.gguf"), Path("smollm2-135m"))
    # smollm2-135m/: config.json, generation_config.json, model.safetensors, tokenizer.json, chat_template.jinja, ...

Dequantising does not restore precision: the result has the quality of the 4-bit file.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
import transformers
from gguf import GGUFReader, dequantize
from msgspec import Struct
from numpy.typing import NDArray
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import GenerationConfig, PretrainedConfig, PreTrainedTokenizerFast

from quaere.errors import ModelMissing
from quaere.policies.gguf_file import check_layout, read_field, read_token_id

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
_BIASES = {f"attn_{name}.bias": f"self_attn.{name}_proj.bias" for name in "qkv"}
_HEAD_NORMS = {f"attn_{name}_norm.weight": f"self_attn.{name}_norm.weight" for name in "qk"}
_GEMMA_NORMS = {
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
}
_LFM2_TENSORS = {
    "attn_norm.weight": "operator_norm.weight",
    "ffn_norm.weight": "ffn_norm.weight",
    "attn_output.weight": "self_attn.out_proj.weight",
    "ffn_gate.weight": "feed_forward.w1.weight",
    "ffn_up.weight": "feed_forward.w3.weight",
    "ffn_down.weight": "feed_forward.w2.weight",
    **{f"attn_{name}_norm.weight": f"self_attn.{name}_layernorm.weight" for name in "qk"},
    **{f"shortconv.{name}.weight": f"conv.{name}.weight" for name in ("conv", "in_proj", "out_proj")},
}
_LFM2_NORM = {"token_embd_norm.weight": "model.embedding_norm.weight"}  # the last one, in spite of its name
_CONVOLUTION = "shortconv.conv.weight"
_ROPE_FACTORS = "rope_freqs.weight"
_ENDS = ("<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<end_of_turn>")  # those that a model may sample besides EOS
_GEMMA_27B_LAYERS = 62


class Family(Struct, frozen=True):
    """How llama.cpp stores the models of an architecture, and transformers' classes for them.

    `more` maps further tensor names of a layer to those of transformers, `outside` those of no layer. `interleaves`
    says that the rows of the query and key weights are in llama.cpp's order, `adds_one` that norms are stored with 1
    added.
    """

    title: str
    config: str
    model: str
    more: dict[str, str] = {}
    outside: dict[str, str] = {}
    interleaves: bool = False
    adds_one: bool = False


_FAMILIES = {
    "llama": Family("Llama", "LlamaConfig", "LlamaForCausalLM", interleaves=True),
    "qwen2": Family("Qwen2", "Qwen2Config", "Qwen2ForCausalLM", more=_BIASES),
    "qwen3": Family("Qwen3", "Qwen3Config", "Qwen3ForCausalLM", more=_HEAD_NORMS),
    "gemma3": Family(
        "Gemma 3", "Gemma3TextConfig", "Gemma3ForCausalLM", more={**_HEAD_NORMS, **_GEMMA_NORMS}, adds_one=True
    ),
    "lfm2": Family("LFM2", "Lfm2Config", "Lfm2ForCausalLM", more=_LFM2_TENSORS, outside=_LFM2_NORM),
}


def convert_gguf(source: Path, out: Path) -> None:
    """Write the model in `source` to the directory `out`, as bf16 safetensors with its tokenizer."""
    check_layout(source)
    try:
        reader = GGUFReader(source)
    except (ValueError, OSError, IndexError, KeyError) as error:
        raise ModelMissing(f"{source.name} is not a readable GGUF file: {error}") from error
    architecture = str(read_field(reader, "general.architecture"))
    if architecture not in _FAMILIES:
        raise ModelMissing(
            f"the GGUF file contains a {architecture!r} model; only {', '.join(_FAMILIES)} can be converted",
            hint="use the model's safetensors folder or its hub id",
        )
    num_layers = int(read_field(reader, f"{architecture}.block_count"))
    if not 1 <= num_layers <= len(reader.tensors):  # a layer has at least one tensor
        raise ModelMissing(f"the GGUF file declares {num_layers:,} layers and has {len(reader.tensors):,} tensors")
    tokenizer = read_tokenizer(reader, max_length=int(read_field(reader, f"{architecture}.context_length")))
    is_tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
    config = _read_config(reader, architecture, tied=is_tied)
    weights = _read_weights(reader, architecture)
    _check_fit(weights, config)
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(out)
    _read_generation_config(reader).save_pretrained(out)
    tokenizer.save_pretrained(out)


def _check_fit(weights: dict[str, torch.Tensor], config: PretrainedConfig) -> None:
    """Raise `ModelMissing` unless names and shapes of the weights are those of a model with this config."""
    with torch.device("meta"):  # shapes only, without memory or initialisation
        model = getattr(transformers, config.architectures[0])(config)
    expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:  # the head is the embedding itself
        expected.pop("lm_head.weight", None)
    found = {name: tensor.shape for name, tensor in weights.items()}
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        raise ModelMissing(f"the GGUF file's tensors do not fit its own architecture: {', '.join(wrong[:3])}")


# -------------------------------------------------------------------------------------------------------- weights


def _read_weights(reader: GGUFReader, architecture: str) -> dict[str, torch.Tensor]:
    """All tensors, dequantised to bf16, by their names in transformers."""
    family = _FAMILIES[architecture]
    num_heads = int(read_field(reader, f"{architecture}.attention.head_count"))
    num_kv_heads = read_field(reader, f"{architecture}.attention.head_count_kv", num_heads)
    weights = {}
    for tensor in reader.tensors:
        if tensor.name == _ROPE_FACTORS and architecture == "llama":
            continue  # read with the settings: transformers computes these factors
        array = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        if family.interleaves and tensor.name.endswith("attn_q.weight"):
            array = split_halves(array, num_heads)
        elif family.interleaves and tensor.name.endswith("attn_k.weight"):
            array = split_halves(array, num_kv_heads)
        elif family.adds_one and tensor.name.endswith("norm.weight"):
            array = array - 1
        elif tensor.name.endswith(_CONVOLUTION):
            array = array[:, None]
        name = rename(tensor.name, architecture)
        weights[name] = torch.from_numpy(numpy.ascontiguousarray(array)).to(torch.bfloat16)
    return weights


def rename(name: str, architecture: str = "llama") -> str:
    """transformers' name of a llama.cpp tensor.

    rename("blk.3.attn_q.weight") == "model.layers.3.self_attn.q_proj.weight"
    """
    family = _FAMILIES[architecture]
    outside = {**_MODEL_TENSORS, **family.outside}
    if name in outside:
        return outside[name]
    block, _, rest = name.partition(".")
    layer, _, part = rest.partition(".")
    parts = {**_LAYER_TENSORS, **family.more}
    if block != "blk" or not layer.isdigit() or part not in parts:
        raise ModelMissing(f"the GGUF file contains a tensor that is not part of a {family.title} model: {name}")
    return f"model.layers.{layer}.{parts[part]}"


def split_halves(weight: NDArray[numpy.float32], num_heads: int) -> NDArray[numpy.float32]:
    """The weight with the rows of each head in transformers' order: 0, 2, 4, ... first, then 1, 3, 5, ...

    Rotary embedding rotates pairs of rows: transformers pairs row i of a head of 2h rows with row h+i, llama.cpp pairs
    adjacent rows.
    """
    per_head = weight.reshape(num_heads, len(weight) // num_heads // 2, 2, *weight.shape[1:])
    return per_head.swapaxes(1, 2).reshape(weight.shape)


# -------------------------------------------------------------------------------------------------------- settings


def _read_config(reader: GGUFReader, architecture: str, *, tied: bool) -> PretrainedConfig:
    """The model's config; `tied` says that the output head shares the embedding's weights."""
    family = _FAMILIES[architecture]

    def read(key: str, *default: Any) -> Any:
        return read_field(reader, f"{architecture}.{key}", *default)

    num_heads, hidden_size = int(read("attention.head_count")), int(read("embedding_length"))
    usual_size = int(read("rope.dimension_count", hidden_size // num_heads))
    settings: dict[str, Any] = {
        "vocab_size": len(read_field(reader, "tokenizer.ggml.tokens")),
        "hidden_size": hidden_size,
        "intermediate_size": int(read("feed_forward_length")),
        "num_hidden_layers": int(read("block_count")),
        "num_attention_heads": num_heads,
        "max_position_embeddings": int(read("context_length")),
        "rope_parameters": _read_rope(reader, read),
        "tie_word_embeddings": tied,
        "architectures": [family.model],
        "bos_token_id": read_token_id(reader, "bos"),
        "eos_token_id": read_token_id(reader, "eos"),
        "pad_token_id": read_token_id(reader, "padding"),
        "dtype": "bfloat16",
    }
    kv_heads, epsilon = read("attention.head_count_kv", num_heads), float(read("attention.layer_norm_rms_epsilon"))
    is_hybrid = architecture == "lfm2"
    if isinstance(kv_heads, list) != is_hybrid or (is_hybrid and len(kv_heads) != settings["num_hidden_layers"]):
        raise ModelMissing(f"the GGUF file's numbers of key and value heads are not those of a {family.title} model")
    if is_hybrid:
        settings |= {"norm_eps": epsilon, **_read_lfm2(kv_heads, int(read("shortconv.l_cache")))}
    else:
        settings |= {"rms_norm_eps": epsilon, "num_key_value_heads": int(kv_heads)}
    if architecture not in ("qwen2", "lfm2"):  # which have no setting for it
        settings["head_dim"] = int(read("attention.key_length", usual_size))
    if architecture == "gemma3":
        settings |= _read_gemma(read, settings)
    return getattr(transformers, family.config)(**settings)


def _read_rope(reader: GGUFReader, read: Callable[..., Any]) -> dict[str, Any]:
    """Parameters of the rotary embedding: plain, or Llama 3.1's, of which the file has only the resulting factors."""
    kind = str(read("rope.scaling.type", "none"))
    if kind not in ("none", "linear"):
        raise ModelMissing(f"the GGUF file's rotary embedding is scaled by {kind}; only none and linear can be read")
    theta, factor = float(read("rope.freq_base", 10_000.0)), float(read("rope.scaling.factor", 1.0))
    factors = next((tensor.data for tensor in reader.tensors if tensor.name == _ROPE_FACTORS), None)
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


def _read_gemma(read: Callable[..., Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The config fields that only Gemma 3 has: five of six layers have a sliding window and their own rotary base."""
    head_dim, num_layers = settings["head_dim"], settings["num_hidden_layers"]
    # llama.cpp recognises the largest model by its number of layers: only its scale is not the head's size.
    is_largest = num_layers == _GEMMA_27B_LAYERS
    return {
        "sliding_window": int(read("attention.sliding_window", 1024)),
        "query_pre_attn_scalar": settings["hidden_size"] // settings["num_attention_heads"] if is_largest else head_dim,
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": ["full_attention" if layer % 6 == 5 else "sliding_attention" for layer in range(num_layers)],
        "rope_parameters": {
            "full_attention": settings["rope_parameters"],
            "sliding_attention": {"rope_type": "default", "rope_theta": float(read("rope.freq_base_swa", 10_000.0))},
        },
    }


def _read_lfm2(kv_heads: list[int], num_kept: int) -> dict[str, Any]:
    """The config fields that only LFM2 has: layers without heads are convolutions over the last `num_kept` tokens."""
    return {
        "num_key_value_heads": max(kv_heads),
        "layer_types": ["full_attention" if heads else "conv" for heads in kv_heads],
        "conv_L_cache": num_kept,
        "block_auto_adjust_ff_dim": False,  # the file has the adjusted size
    }


def _read_generation_config(reader: GGUFReader) -> GenerationConfig:
    """The tokens that end generation: end of turn and end of text, because the model may sample either."""
    tokens, types = read_field(reader, "tokenizer.ggml.tokens"), read_field(reader, "tokenizer.ggml.token_type")
    ends = [read_token_id(reader, "eos"), read_token_id(reader, "eot")]
    ends += [i for i, token in enumerate(tokens) if types[i] == _CONTROL and token in _ENDS]
    return GenerationConfig(
        bos_token_id=read_token_id(reader, "bos"),
        eos_token_id=list(dict.fromkeys(end for end in ends if end is not None)),
        pad_token_id=read_token_id(reader, "padding"),
    )


# ------------------------------------------------------------------------------------------------------------ tokenizer

_NAMED_TOKENS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6  # llama.cpp's numbers for types of tokens
_SPACE = "▁"

# Where a rule splits text before merging: words with one sign before them, numbers, signs, line breaks, white space.
# The rules differ in the length of the numbers.
_CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{numbers}|"
    r" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NUMBERS = {"llama-bpe": "{1,3}", "lfm2": "{1,3}", "qwen2": ""}
_PLAIN_RULES = ("smollm", "gpt-2", "default")


def read_tokenizer(reader: GGUFReader, max_length: int) -> PreTrainedTokenizerFast:
    """The tokenizer with its control tokens and its chat template."""
    kind, rule = read_field(reader, "tokenizer.ggml.model"), read_field(reader, "tokenizer.ggml.pre", "default")
    tokens, types = read_field(reader, "tokenizer.ggml.tokens"), read_field(reader, "tokenizer.ggml.token_type")
    if kind == "gpt2" and rule in (*_PLAIN_RULES, *_NUMBERS):
        backend = _byte_level(reader, tokens, rule)
    elif kind == "llama":
        backend = _sentence_pieces(reader, tokens, types)
    else:
        known = ", ".join(f"gpt2/{name}" for name in (*_PLAIN_RULES[:2], *_NUMBERS))
        raise ModelMissing(
            f"the GGUF file's tokenizer is {kind}/{rule}; only {known} and llama can be read",
            hint="use the model's safetensors folder or its hub id",
        )
    added = [(token, type_) for token, type_ in zip(tokens, types, strict=True) if type_ in (_CONTROL, _USER_DEFINED)]
    special = [AddedToken(token, normalized=False, special=True) for token, type_ in added if type_ == _CONTROL]
    backend.add_special_tokens(special)
    backend.add_tokens([AddedToken(token, normalized=False) for token, type_ in added if type_ == _USER_DEFINED])
    named = {f"{name}_token": read_token_id(reader, key) for name, key in _NAMED_TOKENS.items()}
    begin = named["bos_token"]
    if begin is not None and read_field(reader, "tokenizer.ggml.add_bos_token", kind == "llama"):
        special_tokens = [(tokens[begin], begin)]
        backend.post_processor = processors.TemplateProcessing(f"{tokens[begin]} $A", special_tokens=special_tokens)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=read_field(reader, "tokenizer.chat_template", None),
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        **{name: tokens[token_id] for name, token_id in named.items() if token_id is not None},
    )


def _byte_level(reader: GGUFReader, tokens: list[str], rule: str) -> Any:
    """A tokenizer that merges bytes: GPT-2's, SmolLM's, Llama 3's and Qwen's."""
    merges = [tuple(merge.split(" ", 1)) for merge in read_field(reader, "tokenizer.ggml.merges")]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    # The tokenizers of Llama 3 and LFM2 take a word that is in the vocabulary as one token, without merging.
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=_NUMBERS.get(rule) == "{1,3}"))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule in _PLAIN_RULES)
    if rule == "smollm":
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    elif rule in _NUMBERS:
        cut = pre_tokenizers.Split(Regex(_CUT.format(numbers=_NUMBERS[rule])), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([cut, byte_level])
    else:
        backend.pre_tokenizer = byte_level
    if rule == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentence_pieces(reader: GGUFReader, tokens: list[str], types: list[int]) -> Any:
    """A SentencePiece BPE tokenizer that encodes unknown characters as bytes: Llama 2's and Gemma's."""
    scores = read_field(reader, "tokenizer.ggml.scores")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    unknown = next((token for token, type_ in zip(tokens, types, strict=True) if type_ == _UNKNOWN), None)
    pieces = {
        token: score
        for token, score, type_ in zip(tokens, scores, types, strict=True)
        if type_ not in (_UNKNOWN, _CONTROL, _BYTE)
    }
    model = models.BPE(
        vocab=vocabulary, merges=find_merges(pieces), unk_token=unknown, fuse_unk=True, byte_fallback=True
    )
    backend = Tokenizer(model)
    prefix = bool(read_field(reader, "tokenizer.ggml.add_space_prefix", True))
    spaced = normalizers.Replace(" ", _SPACE)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaced]) if prefix else spaced
    decoding = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*decoding, decoders.Strip(" ", 1, 0)] if prefix else decoding)
    return backend


def find_merges(scores: dict[str, float]) -> list[tuple[str, str]]:
    """The merges of a BPE whose pieces have scores: every way to make a piece of two others, the best piece first.

    find_merges({"a": -3.0, "b": -4.0, "ab": -1.0}) == [("a", "b")]
    """
    merges = [
        (score, piece[:cut], piece[cut:])
        for piece, score in scores.items()
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    # Of the ways to make one piece, the one with the better parts comes first.
    merges.sort(key=lambda merge: (merge[0], scores[merge[1]] + scores[merge[2]]), reverse=True)
    return [(left, right) for _, left, right in merges]
