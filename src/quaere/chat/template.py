"""A tokenizer's chat template as a function from turns to text, and what it supports.

    template = ChatTemplate(tokenizer)
    template.render([("system", "You search."), ("user", "Who?")])  -> "<|im_start|>system\\nYou search.<|im_end|>..."
    template.speaks_tools                                            -> True for Qwen's

A template is an untrusted program: its work and its memory are limited (`template_budget.py`, `template_sandbox.py`).
What a role, a tool or a form of content does in it is found out by rendering placeholders; only the markup of calls is
chosen by strings in its source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from quaere.chat.call_markups.registry import choose_markup
from quaere.chat.messages import Role, wrap_tool_result
from quaere.chat.template_budget import limited_work, refuse_powers
from quaere.chat.tools import SEARCH, ToolSchema
from quaere.errors import TemplateRefused

if TYPE_CHECKING:
    from quaere.chat.template_sandbox import ChatEnvironment

# Placeholder for text while a template is rendered. Letters and digits only, so that no template trims, escapes or
# splits it.
SLOT = "Slot{}OfQuaere"
SLOT_PATTERN = re.compile(r"(Slot\d+OfQuaere)")

# Template for tokenizers without one: no roles, no control tokens, a blank line after every message. A turn ends with a
# stop string of its protocol or the end-of-text token; the template writes no end-of-turn token.
_PARAGRAPHS = "{% for message in messages %}{{ message.content }}\n\n{% endfor %}"


# Names of functions and filters that may give another text in a later rendering of the same turns.
_CHANGING = ("strftime_now", "random", "lipsum")


class ChatTemplate:
    """Renders turns with a tokenizer's chat template, or as plain paragraphs if it has none.

    `repeats` is True if the same turns are always rendered as the same text; not if it writes the date.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.has_template = bool(getattr(tokenizer, "chat_template", None))
        templates = tokenizer.chat_template if self.has_template else ""
        sources = tuple(templates.values()) if isinstance(templates, dict) else (templates,)
        for source in sources:
            refuse_powers(source)
        self.markup = choose_markup("\n".join(sources))
        self.repeats = not any(word in source for word in _CHANGING for source in sources)
        self.folds_system = self.speaks_tools = self.lists_tools = self._lists_content = False
        self._lists_content = not self._shows(user=SLOT.format(0)) and self._shows(user=SLOT.format(0), listed=True)
        self.folds_system = not self._shows(system=SLOT.format(0), user=SLOT.format(1))
        # Both are found out by rendering as if tools were supported.
        self.lists_tools = self.speaks_tools = True
        self.speaks_tools = self._shows_tools()
        self.lists_tools = self.speaks_tools or (self.markup.lists_tools and self._lists_search())

    def render(
        self, turns: Sequence[tuple[str, str]], tools: Sequence[ToolSchema] = (), *, opens_turn: bool = True
    ) -> str:
        """The text of `(role, text)` pairs, with `opens_turn` up to where the model starts to write."""
        listed: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in turns]
        if tools and not self.lists_tools:
            listed = _list_tools(listed, tools)
        if self.folds_system:
            listed = _fold_system(listed)
        if self._lists_content:
            listed = [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in listed]
        known = [tool.as_json() for tool in tools] if tools and self.lists_tools else None
        source = self._own or self.tokenizer.get_chat_template(tools=known)
        values = {**self.tokenizer.special_tokens_map, "messages": listed, "tools": known, "documents": None}
        with limited_work():
            return self._environment.render(source, {**values, "add_generation_prompt": opens_turn})

    @cached_property
    def _environment(self) -> ChatEnvironment:
        from quaere.chat.template_sandbox import ChatEnvironment

        return ChatEnvironment()

    def role_name(self, role: Role) -> str:
        """The template's name of a role: tool results are user turns if it has no tools."""
        return role if role != "tool" or self.speaks_tools else "user"

    def wrap(self, role: Role, text: str) -> str:
        """The text, or a tool result in `<tool_response>` tags if the template has no tool role."""
        return wrap_tool_result(text) if role == "tool" and not self.speaks_tools else text

    @cached_property
    def _own(self) -> str | None:
        """The paragraph template if the tokenizer has none, beginning with BOS if the tokenizer adds it to any text."""
        if self.has_template:
            return None
        begins_text = self.tokenizer.encode("")[:1] == [self.tokenizer.bos_token_id]
        return "{{ bos_token }}" + _PARAGRAPHS if begins_text else _PARAGRAPHS

    def _shows(self, *, listed: bool = False, **turns: str) -> bool:
        """True if the template accepts these turns and shows all their texts; `listed` gives content as a list."""
        before, self._lists_content = self._lists_content, self._lists_content or listed
        try:
            text = self.render(list(turns.items()))
        except TemplateRefused:
            raise
        except Exception:
            # Templates reject a role by raising exceptions of any type, so every exception means no.
            return False
        finally:
            self._lists_content = before
        return all(shown in text for shown in turns.values())

    def _shows_tools(self) -> bool:
        """True if the template lists tools and shows tool results in the `<tool_call>` format."""
        turns = [("user", SLOT.format(0)), ("assistant", SLOT.format(1)), ("tool", SLOT.format(2))]
        try:
            text = self.render([("system", "You search."), *turns], (SEARCH,))
        except TemplateRefused:
            raise
        except Exception:
            return False
        return SEARCH.name in text and "<tool_call>" in text and all(SLOT.format(slot) in text for slot in range(3))

    def _lists_search(self) -> bool:
        """True if the template lists tools; it may show no results, or only those of calls it has parsed itself."""
        try:
            return SEARCH.description in self.render([("system", "You search."), ("user", SLOT.format(0))], (SEARCH,))
        except TemplateRefused:
            raise
        except Exception:
            return False


def describe_tools(tools: Sequence[ToolSchema]) -> str:
    """The tools as a paragraph for the system prompt, for templates and endpoints without tools."""
    listed = "\n".join(json.dumps(tool.as_json()["function"], ensure_ascii=False) for tool in tools)
    return f"\n\nTools you can call, one JSON object a line:\n{listed}"


def _list_tools(turns: list[dict[str, Any]], tools: Sequence[ToolSchema]) -> list[dict[str, Any]]:
    """The turns with the tools described at the end of the system message."""
    if not turns or turns[0]["role"] != "system":
        return turns
    return [{"role": "system", "content": turns[0]["content"] + describe_tools(tools)}, *turns[1:]]


def _fold_system(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The turns with the system prompt at the start of the first user message, for templates without a system role."""
    if len(turns) < 2 or turns[0]["role"] != "system":
        return turns
    first = {"role": "user", "content": turns[0]["content"] + "\n\n" + turns[1]["content"]}
    return [first, *turns[2:]]
