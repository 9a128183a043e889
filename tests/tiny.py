"""Small real parts for tests: a byte-level tokenizer, four styles of chat template and none, tiny models."""

import copy
from functools import lru_cache

from quaere.records import Hit, Passage

TEXT = [
    "The Oss rises in the Korrin hills and runs past Halmgate to the sea.",
    "Orsolya Venn built the Halm bridge in 1702 for the guild of ropers.",
    '<tool_call>{"name": "search", "arguments": {"query_list": ["who built the bridge"]}}</tool_call>',
    "<think>I need to look this up.</think><answer>Orsolya Venn</answer><question>Who?</question>",
    "You answer questions by searching a collection of documents, one after another.",
] * 4

# SmolLM2's style: ChatML, a default system prompt, no idea of tools.
CHATML = """\
{% for message in messages %}{% if loop.first and message.role != 'system' %}<|im_start|>system
You help.<|im_end|>
{% endif %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

# Qwen2.5's style: tools listed in the system message, tool results in user turns, results in a row share a turn.
QWEN = """\
{%- if tools -%}
<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% else %}You are a careful assistant.{% endif %}

# Tools
These functions may be called:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
Call one with <tool_call>{"name": ..., "arguments": ...}</tool_call>.<|im_end|>
{% else -%}
<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% else %}You are a careful assistant.{% endif -%}
<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'user' or message.role == 'assistant' or (message.role == 'system' and not loop.first) -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% elif message.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}
<|im_start|>user
{%- endif %}
<tool_response>
{{ message.content }}
</tool_response>
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}
<|im_end|>
{% endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}"""

# Gemma's style: no system role, the assistant is called model, text is trimmed, a beginning-of-sequence token.
GEMMA = """\
{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system role here') }}{% endif %}\
{% for message in messages %}\
{% if message.role not in ['user', 'assistant'] %}{{ raise_exception('unknown role') }}{% endif %}\
<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}
{{ message.content | trim }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""

# Llama 2's style: the end of a turn is not the first thing after it, and two control tokens touch.
BRACKETS = """\
{% for message in messages %}{% if message.role == 'system' %}<s>[SYS] {{ message.content }} [/SYS]\
{% elif message.role == 'user' %}{% if not loop.first %}<s>{% endif %}[INST] {{ message.content }} [/INST]\
{% else %} {{ message.content }} </s>{% endif %}{% endfor %}"""

# "plain" is a base model's tokenizer, which has no template at all.
TEMPLATES = {"chatml": CHATML, "qwen": QWEN, "gemma": GEMMA, "brackets": BRACKETS, "plain": None}

# Templates no episode can be exact under.
DROPS_HISTORY = CHATML.replace("{% for message in messages %}", "{% for message in messages[-2:] %}")
COUNTS_TURNS = CHATML.replace("<|im_end|>\n{% endfor %}", "<|im_end|>{{ messages | length }}\n{% endfor %}")

SPECIAL = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "<start_of_turn>", "<end_of_turn>", "<|endoftext|>"]
ADDED = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<|weird added|>", "[INST]"]


@lru_cache
def _backend() -> str:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    built = Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    built.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False))
    built.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    built.add_tokens([AddedToken(text, special=False, normalized=False) for text in ADDED])
    return built.to_str()


def tokenizer(template: str = "chatml"):
    """A fast tokenizer of some 430 tokens, half of whose added tokens are not special."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    ends = {"gemma": "<end_of_turn>", "brackets": "</s>", "plain": "<|endoftext|>"}
    made = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_backend()), eos_token=ends.get(template, "<|im_end|>"), bos_token="<s>"
    )
    made.chat_template = TEMPLATES.get(template, template)
    return made


# Four experts of which a token uses two; and GPT-OSS's layers, every other one with a window, all with sinks.
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SINKS = EXPERTS | {"layer_types": ["sliding_attention", "full_attention"]}


# Families whose rows cannot be packed, each with its own config: what differs from the sizes of the others.
LINEAR = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
MAMBA = {"mamba_n_heads": 12, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1}
_STATES = {"mamba_num_heads": 12, "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 1}
PLAIN = {
    "lfm2": ("Lfm2Config", {"layer_types": ["conv", "full_attention"]}),
    "qwen3_5": ("Qwen3_5TextConfig", LINEAR | {"layer_types": ["linear_attention", "full_attention"]}),
    "qwen3_next": (
        "Qwen3NextConfig",
        LINEAR
        | EXPERTS
        | {"layer_types": ["linear_attention", "full_attention"], "shared_expert_intermediate_size": 32},
    ),
    "granite_hybrid": ("GraniteMoeHybridConfig", MAMBA | EXPERTS | {"layer_types": ["mamba", "attention"]}),
    "nemotron_h": ("NemotronHConfig", _STATES | {"layers_block_type": ["mamba", "attention", "mlp"]}),
    "falcon_h1": ("FalconH1Config", MAMBA | {"mamba_d_ssm": 96}),
    "mamba2": ("Mamba2Config", {"num_heads": 12, "head_dim": 8, "expand": 2, "state_size": 8, "n_groups": 1}),
}

_MADE: dict[str, tuple] = {}


def model(family: str = "llama", seed: int = 0, scale: float = 4, **changes):
    """A randomly initialised model of a real family, small enough for a test.

    One that was asked for before is copied, which is quicker; torch's random state is then as if it had been made.
    """
    import torch

    key = repr((family, seed, scale, sorted(changes.items())))
    if key not in _MADE:
        made = _make_model(family, seed, scale, **changes)
        _MADE[key] = made, torch.get_rng_state()
    made, state = _MADE[key]
    torch.manual_seed(seed)
    torch.set_rng_state(state)
    return copy.deepcopy(made)


def _make_model(family, seed, scale, **changes):
    import torch
    import transformers

    name, own = PLAIN.get(family, ("", {}))
    config_type = getattr(
        transformers,
        name
        or {
            "llama": "LlamaConfig",
            "qwen2": "Qwen2Config",
            "qwen3": "Qwen3Config",
            "gemma2": "Gemma2Config",
            "gemma3": "Gemma3TextConfig",
            "mistral": "MistralConfig",
            "gpt2": "GPT2Config",
            "gpt_oss": "GptOssConfig",
            "qwen3_moe": "Qwen3MoeConfig",
        }[family],
    )
    sizes = dict(
        vocab_size=440,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=0,
    )
    if family == "gpt2":
        sizes = dict(vocab_size=440, n_embd=48, n_layer=2, n_head=6, n_positions=1024, bos_token_id=0, eos_token_id=1)
    torch.manual_seed(seed)
    made = transformers.AutoModelForCausalLM.from_config(config_type(**{**sizes, **own, **changes}))
    # Initial weights are so small that all logits are nearly equal; larger ones make the choice of a token matter.
    with torch.no_grad():
        for weight in made.parameters():
            if weight.dim() > 1:
                weight.mul_(scale)
    return made.float().eval()


def passage(text: str, title: str = "Halm", number: int = 0) -> Passage:
    return Passage(id=f"d{number}#0", doc_id=f"d{number}", title=title, text=text, start=0, end=len(text))


class ListSearcher:
    """Answers every query with the same passages, after an optional pause."""

    def __init__(self, texts=("Orsolya Venn built the Halm bridge.",), pause=None):
        self.hits = [Hit(passage(text, number=number), float(-number)) for number, text in enumerate(texts)]
        self.pause = pause
        self.queries = []

    async def search(self, queries, topk):
        if self.pause:
            await self.pause()
        self.queries += queries
        return [self.hits[:topk] for _ in queries]


def interleave_halves(weight, num_heads):
    """A weight of transformers with each head's rows in llama.cpp's order: 0, h, 1, h+1, ... for a head of 2h rows."""
    per_head = weight.reshape(num_heads, 2, weight.shape[0] // num_heads // 2, *weight.shape[1:])
    return per_head.swapaxes(1, 2).reshape(weight.shape)
