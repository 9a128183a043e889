"""Converter from a quantised model in a GGUF file to a directory that transformers loads.

llama.cpp packs weights, settings and tokenizer into one file. Here the weights are dequantised to bf16 and renamed for
transformers (`gguf_families`); the tokenizer is rebuilt from its vocabulary, its merges
or scores, and the name of its rule. transformers' own GGUF loader ignores that rule, `tokenizer.ggml.pre`: SmolLM
splits off every digit first, which makes `"  7"` two tokens, `"ĠĠ"` and `"7"`, where GPT-2's rule gives three.

    convert_gguf(Path("SmolLM2-135M-Instruct.Q4_1.gguf"), Path("smollm2-135m"))
    # smollm2-135m/: config.json, generation_config.json, model.safetensors, tokenizer.json, chat_template.jinja, ...

Dequantising does not restore precision: the result has the quality of the 4-bit file.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
import transformers
from gguf import GGUFReader, dequantize
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import GenerationConfig, PretrainedConfig, PreTrainedTokenizerFast

from quaere.errors import ModelMissing, QuaereError
from quaere.policies.gguf_families import FAMILIES, Family, split_name
from quaere.policies.gguf_file import Fields, check_layout, read_field, read_token_id
from quaere.policies.gguf_settings import ROPE_FACTORS
from quaere.policies.model_folders import first_line

_ENDS = ("<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<end_of_turn>")  # those that a model may sample besides EOS


def convert_gguf(source: Path, out: Path) -> None:
    """Write the model in `source` to the directory `out`, as bf16 safetensors with its tokenizer."""
    check_layout(source)
    try:
        reader = GGUFReader(source)
    except (ValueError, OSError, IndexError, KeyError) as error:
        raise ModelMissing(f"{source.name} is not a readable GGUF file: {error}") from error
    with _refusing_faults(source):
        weights, config, generation, tokenizer = _read_model(reader)
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(out)
    generation.save_pretrained(out)
    tokenizer.save_pretrained(out)


@contextmanager
def _refusing_faults(source: Path) -> Iterator[None]:
    """Context in which a file whose fields contradict each other is a `ModelMissing`: libraries raise many types."""
    try:
        yield
    except (QuaereError, MemoryError):
        raise
    except Exception as error:
        raise ModelMissing(f"{source.name} cannot be converted, its fields are invalid: {first_line(error)}") from error


def _read_model(
    reader: GGUFReader,
) -> tuple[dict[str, torch.Tensor], PretrainedConfig, GenerationConfig, PreTrainedTokenizerFast]:
    """Weights, config, the tokens that end generation, and tokenizer."""
    architecture = str(read_field(reader, "general.architecture"))
    if architecture not in FAMILIES:
        raise ModelMissing(
            f"the GGUF file contains a {architecture!r} model; only {', '.join(FAMILIES)} can be converted",
            hint="use the model's safetensors folder or its hub id",
        )
    family, fields = FAMILIES[architecture], Fields(reader, architecture)
    if not 1 <= fields.num_layers <= len(reader.tensors):  # a layer has at least one tensor
        raise ModelMissing(
            f"the GGUF file declares {fields.num_layers:,} layers and has {len(reader.tensors):,} tensors"
        )
    tokenizer = read_tokenizer(reader, max_length=fields.number("context_length"))
    config = _read_config(family, fields)
    weights = _read_weights(family, fields)
    _check_fit(weights, config)
    return weights, config, _read_generation_config(reader), tokenizer


def _check_fit(weights: dict[str, torch.Tensor], config: PretrainedConfig) -> None:
    """Raise `ModelMissing` unless names and shapes of the weights are those of a model with this config."""
    with torch.device("meta"):  # shapes only, without memory or initialisation
        model = getattr(transformers, config.architectures[0])(config)
    expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if model.get_output_embeddings().weight is model.get_input_embeddings().weight:
        expected.pop("lm_head.weight", None)
    found = {name: tensor.shape for name, tensor in weights.items()}
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        raise ModelMissing(f"the GGUF file's tensors do not fit its own architecture: {', '.join(wrong[:3])}")


def _read_weights(family: Family, fields: Fields) -> dict[str, torch.Tensor]:
    """All tensors, dequantised to bf16, by their names in transformers."""
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for tensor in fields.reader.tensors:
        if tensor.name == ROPE_FACTORS and fields.architecture == "llama":
            continue  # read with the settings: transformers computes these factors
        layer, part = split_name(tensor.name)
        if layer >= fields.num_layers:
            continue  # a layer for multi-token prediction
        name, _, place = family.rename(tensor.name).partition("/")
        try:
            array = family.restore(dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32), part, fields)
        except ValueError as error:
            raise ModelMissing(f"the GGUF file's tensor {tensor.name} does not fit its own architecture") from error
        parts.setdefault(name, {})[place] = torch.from_numpy(numpy.ascontiguousarray(array)).to(torch.bfloat16)
    return {
        name: torch.cat([found[place] for place in sorted(found)], -2) if len(found) > 1 else found.popitem()[1]
        for name, found in parts.items()
    }


def _read_config(family: Family, fields: Fields) -> PretrainedConfig:
    """The model's config; its output head shares the embedding's weights if the file has no head."""
    reader = fields.reader
    return getattr(transformers, family.config)(
        vocab_size=len(read_field(reader, "tokenizer.ggml.tokens")),
        hidden_size=fields.number("embedding_length"),
        num_hidden_layers=fields.num_layers,
        max_position_embeddings=fields.number("context_length"),
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in reader.tensors),
        architectures=[family.model],
        bos_token_id=read_token_id(reader, "bos"),
        eos_token_id=read_token_id(reader, "eos"),
        pad_token_id=read_token_id(reader, "padding"),
        dtype="bfloat16",
        **family.read_settings(fields),
    )


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
# The rules differ in the length of the numbers and in whether a word contains combining marks.
_CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?[{letters}]+|\p{{N}}{numbers}|"
    r" ?[^\s{letters}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class _Rule(NamedTuple):
    """A rule's numbers and letters; with `whole`, a word of the vocabulary is one token, without merging."""

    numbers: str
    letters: str = r"\p{L}"
    whole: bool = False


_THREE_DIGITS = _Rule("{1,3}", whole=True)
_RULES = {
    "llama-bpe": _THREE_DIGITS,
    "lfm2": _THREE_DIGITS,
    "falcon-h1": _THREE_DIGITS,
    "pixtral": _THREE_DIGITS,  # Nemotron-H
    "dbrx": _Rule("{1,3}"),  # Granite 4
    "qwen2": _Rule(""),
    "qwen35": _Rule("", r"\p{L}\p{M}"),
}
_PLAIN_RULES = ("smollm", "gpt-2", "default", "olmo", "mpt")  # the last two are GPT-NeoX's, as Mamba 2 has it
_NORMALISED = ("qwen2", "qwen35", "olmo", "mpt")


def read_tokenizer(reader: GGUFReader, max_length: int) -> PreTrainedTokenizerFast:
    """The tokenizer with its control tokens and its chat template."""
    kind, rule = read_field(reader, "tokenizer.ggml.model"), read_field(reader, "tokenizer.ggml.pre", "default")
    tokens, types = read_field(reader, "tokenizer.ggml.tokens"), read_field(reader, "tokenizer.ggml.token_type")
    if kind == "gpt2" and rule in (*_PLAIN_RULES, *_RULES):
        backend = _byte_level(reader, tokens, rule)
    elif kind == "llama":
        backend = _sentence_pieces(reader, tokens, types)
    else:
        known = ", ".join(f"gpt2/{name}" for name in (*_PLAIN_RULES[:2], *_RULES))
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
    """A tokenizer that merges bytes: GPT-2's, SmolLM's, Llama 3's, Qwen's and those alike."""
    merges = [tuple(merge.split(" ", 1)) for merge in read_field(reader, "tokenizer.ggml.merges")]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    cut = _RULES.get(rule)
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=cut is not None and cut.whole))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule in _PLAIN_RULES)
    if rule == "smollm":
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    elif cut is not None:
        pattern = Regex(_CUT.format(numbers=cut.numbers, letters=cut.letters))
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, "isolated"), byte_level])
    else:
        backend.pre_tokenizer = byte_level
    if rule in _NORMALISED:
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
