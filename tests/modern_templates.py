"""Chat templates with the traits of today's: thoughts that are opened or cut out, channels, prompts that move."""

import re
from functools import lru_cache

import tiny

# DeepSeek-R1's and Qwen3.5's traits: a turn begins inside a thought, and thoughts are cut out of earlier turns.
OPENS_THOUGHT = """\
{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}\
<|turn|>model
{{ m.content.split('</think>')[-1] }}<|over|>
{% else %}<|turn|>{{ m.role }}
{{ m.content }}<|over|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|turn|>model
<think>
{% endif %}"""

# The same with an empty thought before each turn: a model that shall not think.
CLOSES_THOUGHT = OPENS_THOUGHT.replace("<think>\n", "<think>\n\n</think>\n\n")

# Qwen3.5's further trait: only the turns after the last question have a thought written around them.
THINKS_AT_LAST = """\
{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}\
{% endif %}{% endfor %}{% for m in messages %}<|turn|>{{ m.role }}
{% if m.role == 'assistant' and loop.index0 > ns.last %}<think>

</think>

{% endif %}{{ m.content }}<|over|>
{% endfor %}{% if add_generation_prompt %}<|turn|>assistant
<think>
{% endif %}"""

# GPT-OSS's traits: channels, a last turn that ends otherwise than earlier ones.
CHANNELS = """\
{% for m in messages %}{% if m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}\
{% if loop.last and not add_generation_prompt %}<|return|>{% else %}<|end|>{% endif %}\
{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}\
{% if add_generation_prompt %}<|start|>assistant{% endif %}"""

# GLM's traits: a turn has no end of its own, only the next one's beginning.
NO_END = """\
{% for m in messages %}<|{{ m.role }}|>
{% if m.role == 'assistant' %}<think></think>
{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""

# Vision models' trait: content is a list of parts, and a string is an error or shown as nothing.
LISTED = """\
{% for m in messages %}{{ m.role | capitalize }}: {% for part in m.content %}{% if part.type == 'text' %}\
{{ part.text }}{% endif %}{% endfor %}<|over|>
{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"""

# Mistral's trait: the system prompt stands before the newest question.
MOVES_SYSTEM = """\
{% for m in messages %}{% if m.role == 'user' %}[INST]{% if loop.index0 == messages | length - 1 and \
messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}{{ m.content }}[/INST]{% elif m.role == 'assistant' %}{{ m.content }}</s>{% endif %}{% endfor %}"""

# Qwen3.5's calls: tools are listed, a turn begins inside a thought, and calls are functions with parameters.
FUNCTIONS = """\
{% if tools %}<|turn|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}

Functions:{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
Call one so: <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call><|over|>
{% elif messages[0].role == 'system' %}<|turn|>system
{{ messages[0].content }}<|over|>
{% endif %}{% for m in messages %}{% if m.role == 'assistant' %}<|turn|>assistant
{{ m.content.split('</think>')[-1] }}<|over|>
{% elif m.role == 'tool' %}<|turn|>user
<tool_response>
{{ m.content }}
</tool_response><|over|>
{% elif m.role == 'user' %}<|turn|>user
{{ m.content }}<|over|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|turn|>assistant
<think>
{% endif %}"""

# GLM's calls, with observations instead of user turns.
ARGUMENTS = """\
{% if tools %}<|system|>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call one so: <tool_call>NAME<arg_key>KEY</arg_key><arg_value>value</arg_value></tool_call>{% endif %}\
{% for m in messages %}{% if m.role == 'tool' %}<|observation|>
{{ m.content }}{% else %}<|{{ m.role }}|>
{% if m.role == 'assistant' %}<think></think>
{% endif %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""

# GPT-OSS's: tools in a message of their own, and results only after calls that the template has parsed itself.
CALL_CHANNELS = (
    """\
{% if tools %}<|start|>developer<|message|>{% for tool in tools %}{{ tool.function.description }} {{ tool | tojson }}\
{% endfor %}Calls go to the commentary channel and end with <|call|>.<|end|>{% endif %}\
{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no call before this result') }}{% endif %}\
{% endfor %}"""
    + CHANNELS
)

CALLS = {"functions": FUNCTIONS, "arguments": ARGUMENTS, "call channels": CALL_CHANNELS}

MODERN = {
    "opens a thought": OPENS_THOUGHT,
    "closes a thought": CLOSES_THOUGHT,
    "thinks at last": THINKS_AT_LAST,
    "channels": CHANNELS,
    "no end": NO_END,
    "listed": LISTED,
    **CALLS,
}

_CONTROL = re.compile(
    r"<\|[^<>|\s'\"{}]{1,40}\|?>|<[a-z_]{1,20}\|>|<｜[^<>｜'\"]{1,40}｜>|\[/?(?:INST|gMASK)\]"
    r"|</?(?:s|bos|eos|start_of_turn|end_of_turn|think|tool_call|tool_response|sop|end_of_utterance)>"
)
_ROLE_TOKENS = ["<|user|>", "<|assistant|>", "<|system|>", "<|observation|>"]  # templates put these together


@lru_cache
def control_strings(template: str) -> tuple[str, ...]:
    """Strings in a template that a tokenizer of its own would have as control tokens.

    control_strings("<|im_start|>{{ m.role }}") -> ("<|im_start|>", "<|user|>", "<|assistant|>", ...)
    """
    return tuple(dict.fromkeys([*_CONTROL.findall(template), *_ROLE_TOKENS]))


def make_tokenizer(template: str):
    """The tiny tokenizer with this template and with every control string in it as a control token."""
    from tokenizers import AddedToken

    made = tiny.tokenizer(template)
    made.add_tokens([AddedToken(text, special=True, normalized=False) for text in control_strings(template)])
    return made
