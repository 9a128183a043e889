"""The tokenizer of a GGUF file, rebuilt from its vocabulary, its merges or scores, and the name of its rule.

It is built here because transformers' GGUF loader ignores `tokenizer.ggml.pre`, the pre-tokenization rule: SmolLM
splits off every digit first, which makes `"  7"` two tokens, `"ĠĠ"` and `"7"`, where GPT-2's rule gives three.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quaere.errors import ModelMissing
from quaere.policies.gguf_fields import read_field, read_token_id

if TYPE_CHECKING:
    from gguf import GGUFReader
    from transformers import PreTrainedTokenizerFast

_NAMED_TOKENS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6  # llama.cpp's numbers for types of tokens
_SPACE = "▁"

# Where a rule cuts text before merging: words with one sign before them, numbers, signs, line breaks, white space. The
# rules differ in the length of the numbers.
_CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{numbers}|"
    r" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NUMBERS = {"llama-bpe": "{1,3}", "qwen2": ""}
_PLAIN_RULES = ("smollm", "gpt-2", "default")


def read_tokenizer(reader: GGUFReader, max_length: int) -> PreTrainedTokenizerFast:
    """The tokenizer with its control tokens and its chat template."""
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

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
        backend.post_processor = _begin_with(tokens[begin], begin)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=read_field(reader, "tokenizer.chat_template", None),
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        **{name: tokens[token_id] for name, token_id in named.items() if token_id is not None},
    )


def _begin_with(token: str, token_id: int) -> Any:
    from tokenizers import processors

    return processors.TemplateProcessing(single=f"{token} $A", special_tokens=[(token, token_id)])


def _byte_level(reader: GGUFReader, tokens: list[str], rule: str) -> Any:
    """A tokenizer that merges bytes: GPT-2's, SmolLM's, Llama 3's and Qwen's."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    merges = [tuple(merge.split(" ", 1)) for merge in read_field(reader, "tokenizer.ggml.merges")]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    # Llama 3's takes a word that is in the vocabulary whole, without merging.
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=rule == "llama-bpe"))
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
    """A tokenizer of SentencePiece's BPE kind, with bytes for what has no piece: Llama 2's and Gemma's."""
    from tokenizers import Tokenizer, decoders, models, normalizers

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
