"""A model made from nothing: random weights, and the words of a few small worlds for a vocabulary.

    write_blank(folder, vocabulary_texts([harbour, village], "search-r1"), seed=0)

It has 0.2 million weights, so that two CPU cores teach it to search and read in a minute, and it knows no word that
is not in its worlds: it serves to see a recipe learn, not to answer questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from quaere.records import SolveTask
from quaere.warmup.dialects import Dialect, solver_turns
from quaere.warmup.phrases import solver_forms
from quaere.warmup.scripted_episodes import open_protocol
from quaere.worlds import World

_VOCABULARY = 1500
_NUM_QUESTIONS = 200
_HIDDEN, _LAYERS, _HEADS = 64, 2, 4
# Hugging Face's default of 0.02 is meant for wide layers. Attention that begins so flat does not learn to copy a name
# out of a passage within a minute; with weights of about 1 / sqrt(hidden) it does.
_WEIGHT_SCALE = 0.125
_CONTEXT = 1024
_TAG = re.compile(r"</?\w+>")
_TEMPLATE = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def vocabulary_texts(worlds: Sequence[World], dialect: Dialect) -> Iterator[str]:
    """What a solver of these worlds reads and writes, for the tokenizer: articles, prompts, thoughts, answers.

    Of both styles of prompts: only the full one names the tags that search results come in.
    """
    prompts, turns = [open_protocol("solver", style, dialect) for style in ("brief", "full")], solver_turns(dialect)
    for world in worlds:
        yield from (f"[1]\n{article.title}\n{article.text}" for article in world.articles())
        yield from (turns.answer(fact.value, fact.value) for fact in world.facts())
        for question in world.questions(_NUM_QUESTIONS):
            for prompt in prompts:
                yield from (f"{said.role}\n{said.text}" for said in prompt.opening(SolveTask(question.to_question())))
        for forms in solver_forms(world.family.name).values():
            yield from (turns.search(form, form) for form in forms)


def write_blank(folder: Path, texts: Iterator[str], seed: int) -> None:
    """Write a tokenizer for these texts and a model with random weights to a folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _make_tokenizer(list(texts))
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=_HIDDEN,
        intermediate_size=2 * _HIDDEN,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        num_key_value_heads=_HEADS,
        max_position_embeddings=_CONTEXT,
        initializer_range=_WEIGHT_SCALE,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _make_tokenizer(texts: Sequence[str]) -> Any:
    """A byte-level BPE tokenizer in ChatML; tags and the frequent words are single tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    built = Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words = trainers.BpeTrainer(vocab_size=_VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    built.train_from_iterator((_TAG.sub("\n", text) for text in texts), words)
    tags = sorted({tag for text in texts for tag in _TAG.findall(text)})
    built.add_special_tokens([AddedToken(mark, special=True) for mark in ("<|im_start|>", "<|im_end|>")])
    built.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=built, eos_token="<|im_end|>")
    tokenizer.chat_template = _TEMPLATE
    return tokenizer
