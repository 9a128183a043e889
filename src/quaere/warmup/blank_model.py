"""A tiny untrained model: random weights, and a vocabulary of the few words of the "village" worlds.

    with blank_model("brief", seed=0, beside=Path("tiny")) as folder: ...

It has 0.15 million weights, so that two CPU cores teach it to search within a minute, and it knows no word outside of
its village: it is for watching the recipe Dr. Zero learn, not for answering questions.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quaere.chat.protocol import Acted, PromptStyle, wrap_tool_result
from quaere.disk import scratch_folder
from quaere.records import Hit, Passage, ProposeTask, Question, Search, SearchResult, SolveTask
from quaere.warmup.dialects import proposer_turns, solver_turns
from quaere.warmup.phrases import load_forms
from quaere.warmup.scripted_episodes import open_protocol
from quaere.worlds import generate_world

_FAMILY, _DIALECT = "hamlet", "drzero"
_HIDDEN, _LAYERS, _HEADS = 64, 2, 4
# Standard deviation of the initial weights. Hugging Face's default of 0.02 is meant for wide layers: attention that
# begins so flat does not learn to copy a name within a minute; with about 1 / sqrt(hidden) it does.
_WEIGHT_SCALE = 0.125
_CONTEXT = 1024
_VOCABULARY = 1000
_NUM_ARTICLES = 900  # enough for every word of the family to be in one
_THOUGHTS = ("only_hop", "not_found", "answer", "ask_of_document")
_GAP = "\N{LOZENGE}"  # stands for what differs from turn to turn
_TEMPLATE = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@contextmanager
def blank_model(style: PromptStyle, seed: int, beside: Path) -> Iterator[Path]:
    """Context manager: a temporary folder next to `beside` with a tokenizer and random weights."""
    with scratch_folder(beside) as folder:
        _write(folder, _make_tokenizer(_fixed_texts(style), _village_texts()), seed)
        yield folder


def _village_texts() -> Iterator[str]:
    """Articles and questions that together contain every word of a village world."""
    world = generate_world(0, _NUM_ARTICLES, _FAMILY)
    yield from (f"{article.title}\n{article.text}" for article in world.articles())
    yield from (question.text for question in world.questions(_NUM_ARTICLES // 2))


def _fixed_texts(style: PromptStyle) -> list[str]:
    """The fixed texts of prompts, search results and turns; each becomes one token."""
    solver, turns = open_protocol("solver", style, _DIALECT), solver_turns(_DIALECT)
    proposer, passage = open_protocol("proposer", style, _DIALECT), Passage("d#0", "d", _GAP, _GAP, 0, 1)
    reply = solver.reply(Acted(Search((_GAP,)), [SearchResult(_GAP, (Hit(passage, 1.0),))]), final=True)
    prompts = [*solver.opening(SolveTask(Question("q", _GAP))), *proposer.opening(ProposeTask("p", passage, hops=1))]
    texts = [
        *(f"{role}\n" for role in ("system", "user", "assistant")),
        *(prompt.text for prompt in prompts),
        reply.text,
        wrap_tool_result(_GAP),
        turns.search(_GAP, _GAP),
        turns.answer(_GAP, _GAP),
        proposer_turns(_DIALECT).proposal(_GAP, _GAP, _GAP),
        *(thought.replace("{A}", _GAP) for name in _THOUGHTS for thought in load_forms("short")[name]),
    ]
    return sorted({part for text in texts for part in text.split(_GAP) if re.search(r"\w", part)})


def _write(folder: Path, tokenizer: Any, seed: int) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

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


def _make_tokenizer(fixed: Sequence[str], texts: Iterator[str]) -> Any:
    """A byte-level BPE tokenizer in ChatML; fixed texts, words and spaces are single tokens.

    A space is a token of its own, so that a word is the same token wherever it is copied from or to.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    built = Tokenizer(models.BPE())
    bytes_of_words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "isolated"), bytes_of_words])
    built.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words = trainers.BpeTrainer(vocab_size=_VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    built.train_from_iterator(texts, words)
    built.add_special_tokens([AddedToken(mark, special=True) for mark in ("<|im_start|>", "<|im_end|>")])
    built.add_tokens([AddedToken(text, special=False, normalized=False) for text in fixed])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=built, eos_token="<|im_end|>")
    tokenizer.chat_template = _TEMPLATE
    return tokenizer
