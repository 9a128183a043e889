"""The markups that are known, and the choice of one for a chat template.

| markup | models | calls are written so | tools are listed by |
|---|---|---|---|
| JSON in <tool_call> | Qwen2.5, Qwen3, Hermes; all without a markup | yes | the template if it can, else the prompt |
| <function=...> in <tool_call> | Qwen3.5 to 3.8, Nemotron-3 | yes | the template |
| <arg_key> in <tool_call> | GLM-4 | yes | the template |
| GPT-OSS channels | GPT-OSS | yes | the template |
| Muse recipients, Gemma 4, DeepSeek, Mistral, Llama, LFM2 | | read | the prompt |

"Read": prompts and demonstrations have JSON in <tool_call> tags, and the model's own form is read as well.
"""

from __future__ import annotations

from quaere.chat.call_markups.bracketed import DEEPSEEK, LLAMA, MISTRAL, PYTHON
from quaere.chat.call_markups.call_markup import CallMarkup
from quaere.chat.call_markups.channels import ATEM, GEMMA, HARMONY
from quaere.chat.call_markups.tagged import FUNCTIONS, GLM, JSON

MARKUPS: tuple[CallMarkup, ...] = (FUNCTIONS, GLM, HARMONY, ATEM, GEMMA, DEEPSEEK, MISTRAL, PYTHON, LLAMA)


def choose_markup(template: str) -> CallMarkup:
    """The markup of a chat template, by the strings that it writes around a call.

    choose_markup("... <tool_call>\\n<function=example> ...").name == "<function=...> in <tool_call>"
    """
    return next((markup for markup in MARKUPS if all(sign in template for sign in markup.signs)), JSON)
