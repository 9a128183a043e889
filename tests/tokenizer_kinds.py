"""Five kinds of tokenizer, each with a chat template of its own, that all know the control strings of `tiny.py`."""

from functools import lru_cache

import tiny

_LETTERS = " \n\t!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def _byte_level(pieces=()):
    """GPT-2's and Qwen's kind: merges over bytes. `pieces` are made ordinary entries of the vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    built = Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pieces)
    built.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    built.train_from_iterator([*pieces] * 20 or tiny.TEXT, trainer)
    return built


def _byte_fallback():
    """Llama 2's kind: letters, and bytes for whatever has none."""
    from tokenizers import Tokenizer, decoders, models

    vocabulary = {name: number for number, name in enumerate(["<unk>", *_BYTES, *_LETTERS])}
    built = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>"))
    built.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return built


def _unigram():
    """T5's and Gemma's kind: pieces with probabilities, spaces as marks."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = _LETTERS.replace(" ", "▁")
    words = ["▁the", "▁bridge", "Halm", "answer", "search", "think", "im_end", "tool_call", "<|im", "_end|>", "[INST"]
    pieces = [("<unk>", 0.0), *((name, -9.0) for name in _BYTES), *((letter, -5.0) for letter in letters)]
    built = Tokenizer(models.Unigram([*pieces, *((word, -3.0) for word in words)], unk_id=0, byte_fallback=True))
    built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    built.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never", split=False), decoders.Fuse()]
    )
    return built


def _characters():
    """One id a character, and one for all it does not know."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {name: number for number, name in enumerate(["<unk>", *_LETTERS])}
    built = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    built.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    built.decoder = decoders.Fuse()
    return built


KINDS = {
    "bytes": (_byte_level, "chatml"),
    "bytes, control strings as pieces": (lambda: _byte_level((*tiny.SPECIAL, *tiny.ADDED)), "qwen"),
    "letters and bytes": (_byte_fallback, "gemma"),
    "unigram": (_unigram, "brackets"),
    "characters": (_characters, "plain"),
}


@lru_cache
def _built(kind: str) -> str:
    from tokenizers import AddedToken

    built = KINDS[kind][0]()
    built.add_special_tokens([AddedToken(text, special=True) for text in tiny.SPECIAL])
    built.add_tokens([AddedToken(text, special=False, normalized=False) for text in tiny.ADDED])
    return built.to_str()


def make_tokenizer(kind: str):
    """A fast tokenizer of this kind.

    make_tokenizer("unigram").decode(make_tokenizer("unigram").encode("Halm")) -> "Halm"
    """
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    template = KINDS[kind][1]
    ends = {"gemma": "<end_of_turn>", "brackets": "</s>", "plain": "<|endoftext|>"}
    built = Tokenizer.from_str(_built(kind))
    unknown = {"unk_token": "<unk>"} if built.token_to_id("<unk>") is not None else {}
    made = PreTrainedTokenizerFast(
        tokenizer_object=built, eos_token=ends.get(template, "<|im_end|>"), bos_token="<s>", **unknown
    )
    made.chat_template = tiny.TEMPLATES[template]
    return made
