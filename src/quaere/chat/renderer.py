"""Renderer from messages to token ids, for one tokenizer and its chat template.

The template is rendered once per episode, for the opening. After that the token sequence only grows: the ids the model
sampled, then the *joint* (the template's text between two turns), then the environment's reply. Joints are derived from
the template when a `Renderer` is made. A template whose longer conversations do not begin with its shorter ones is
refused: the tokens at training time would differ from those at sampling time.

    renderer = Renderer(tokenizer)
    context = renderer.opening(messages, tools)            # [1, 9690, ...]
    context += sampled_ids                                 # straight from the sampler
    context += renderer.reply(message, sampled_ids[-1])    # end of turn if it is missing, message, next turn's start

A base model has no chat template; it gets plain paragraphs, the form of the text it was pretrained on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

from msgspec import Struct, structs

from quaere.chat.messages import Message, Part, Quoted, Role, wrap_tool_result
from quaere.chat.template_budget import limited_work, refuse_powers
from quaere.chat.tools import SEARCH, ToolSchema
from quaere.chat.untrusted_text import PlainEncoder
from quaere.errors import TemplateRefused

NUM_REMEMBERED = 2048  # encoded texts kept in the cache
# Placeholder for text while a template is rendered. Letters and digits only, so that no template trims, escapes or
# splits it.
_SLOT = "Slot{}OfQuaere"
_SLOT_PATTERN = re.compile(r"(Slot\d+OfQuaere)")

# Template for tokenizers without one: no roles, no control tokens, a blank line after every message. A turn ends with a
# stop string of its protocol or the end-of-text token; the template writes no end-of-turn token.
_PARAGRAPHS = "{% for message in messages %}{{ message.content }}\n\n{% endfor %}"


class Joint(Struct, frozen=True):
    """Token ids that the template writes before and after an environment message.

    For a ChatML user message: `closing` is "<|im_end|>\\n<|im_start|>user\\n", beginning with the end of the model's
    turn; `opening` is "<|im_end|>\\n<|im_start|>assistant\\n".

        Joint(closing=(2, 198, 1, 4093, 198), opening=(2, 198, 1, 520, 9531, 198), end_of_turn=2)
    """

    closing: tuple[int, ...]
    opening: tuple[int, ...]
    end_of_turn: int | None

    def after(self, last_token: int | None) -> tuple[int, ...]:
        """The closing ids that are still missing after the model's last token.

        Only this function decides who writes the end-of-turn token: the model if it sampled it; otherwise it is added
        here and carries no loss.
        """
        if last_token is not None and last_token == self.end_of_turn:
            return self.closing[self.closing.index(last_token) + 1 :]
        return self.closing


class Renderer:
    """Writes conversations in a tokenizer's chat template, or as plain paragraphs if it has none."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.has_template = bool(getattr(tokenizer, "chat_template", None))
        templates = tokenizer.chat_template if self.has_template else ""
        for template in templates.values() if isinstance(templates, dict) else (templates,):
            refuse_powers(template)
        self._plain = PlainEncoder(tokenizer)
        # Cached, because the rollouts of one question are shown the same passages.
        self._encode_quoted = lru_cache(NUM_REMEMBERED)(lambda text: tuple(self._plain.encode(text)))
        self.folds_system = self.speaks_tools = False
        self.folds_system = not self._keeps_system()
        self.speaks_tools = True  # `_shows_tools` renders as if tools were supported, and looks at the result
        self.speaks_tools = self._shows_tools()
        self._joints: dict[Role, Joint] = {role: self._derive_joint(role) for role in ("user", "tool")}

    # -------------------------------------------------------------------------------------------------- writing

    def opening(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        """Ids of the first messages, up to where the model starts to write."""
        quoted: list[str] = []
        turns = [
            (self._role_name(message.role), self._wrap(message.role, _with_slots(message, quoted)))
            for message in messages
        ]
        text = self._render(turns, tools)
        ids: list[int] = []
        for piece in _SLOT_PATTERN.split(text):
            slot = _SLOT_PATTERN.fullmatch(piece)
            ids += self._encode_quoted(quoted[int(piece[4:-8])]) if slot else self._encode_ours(piece)
        return ids

    def reply(self, message: Message, last_token: int | None, max_tokens: int | None = None) -> list[int]:
        """Ids from the end of the model's turn to the start of its next turn.

        `last_token` is the last id the model sampled. `max_tokens` limits the message's parts; tags, note and joint are
        never cut.
        """
        joint = self._joints[message.role]
        before, after = (self._encode_ours(text) for text in message.frame)
        content = self.encode_parts(message.parts)[:max_tokens]
        return [*joint.after(last_token), *before, *content, *after, *joint.opening]

    def cut(self, message: Message, max_tokens: int) -> Message:
        """The message with its parts cut to the text that `reply` with this limit shows.

        renderer.cut(Message("tool", ("[1]\\n", Quoted("The Halm bridge is old."))), 7)
        -> Message("tool", ("[1]\\n", Quoted("The Halm")))
        """
        parts: list[Part] = []
        for part in message.parts:
            ids = self.encode_parts((part,))
            if len(ids) <= max_tokens:
                parts.append(part)
                max_tokens -= len(ids)
                continue
            whole = part if isinstance(part, str) else part.text
            # An incomplete character decodes to U+FFFD. The prefix is taken from `whole`, not from the decoded text,
            # because some tokenizers drop a space when decoding.
            shown = whole[: len(self.decode(ids[:max_tokens]).rstrip("\ufffd"))]
            if shown:
                parts.append(shown if isinstance(part, str) else Quoted(shown))
            break
        return structs.replace(message, parts=tuple(parts))

    def joint(self, role: Role) -> Joint:
        """The joint around an environment message of this role."""
        return self._joints[role]

    def encode_parts(self, parts: Sequence[Part]) -> list[int]:
        """Ids of the parts: control tokens are recognised in `str` parts, never in quoted ones."""
        ids: list[int] = []
        for part in parts:
            ids += self._encode_ours(part) if isinstance(part, str) else self._encode_quoted(part.text)
        return ids

    def _encode_ours(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False)) if text else []

    # -------------------------------------------------------------------------------------------------- reading

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of the ids, control tokens included. It is for reading only and never encoded again."""
        return str(
            self.tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )

    def read_turn(self, token_ids: Sequence[int]) -> str:
        """The text of a turn that the model wrote, without its end-of-turn token."""
        ids = list(token_ids)
        if ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        return self.decode(ids)

    @cached_property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids that end a turn: the template's end-of-turn tokens and the tokenizer's end-of-text token."""
        ends = {joint.end_of_turn for joint in self._joints.values()} | {self.tokenizer.eos_token_id}
        return tuple(sorted(token for token in ends if token is not None))

    # ---------------------------------------------------------------------------- deriving joints from the template

    def _render(self, turns: Sequence[tuple[str, str]], tools: Sequence[ToolSchema] = ()) -> str:
        """The text of `(role, text)` pairs, up to where the model starts to write."""
        listed = [{"role": role, "content": text} for role, text in turns]
        if tools and not self.speaks_tools:
            listed = _list_tools(listed, tools)
        if self.folds_system:
            listed = _fold_system(listed)
        known = [tool.as_json() for tool in tools] if tools and self.speaks_tools else None
        with limited_work():
            return str(
                self.tokenizer.apply_chat_template(
                    listed, tools=known, chat_template=self._own_template, tokenize=False, add_generation_prompt=True
                )
            )

    @cached_property
    def _own_template(self) -> str | None:
        """The paragraph template if the tokenizer has none, beginning with BOS if the tokenizer adds it to any text."""
        if self.has_template:
            return None
        begins_text = self.tokenizer.encode("")[:1] == [self.tokenizer.bos_token_id]
        return "{{ bos_token }}" + _PARAGRAPHS if begins_text else _PARAGRAPHS

    def _keeps_system(self) -> bool:
        """True if the template accepts a system message and shows its text."""
        try:
            return _SLOT.format(0) in self._render([("system", _SLOT.format(0)), ("user", _SLOT.format(1))])
        except TemplateRefused:
            raise
        except Exception:
            # Templates reject a role by raising exceptions of any type, so every exception means no.
            return False

    def _shows_tools(self) -> bool:
        """True if the template lists tools and shows tool results in the `<tool_call>` format."""
        turns = [("user", _SLOT.format(0)), ("assistant", _SLOT.format(1)), ("tool", _SLOT.format(2))]
        try:
            text = self._render([("system", "You search."), *turns], (SEARCH,))
        except TemplateRefused:
            raise
        except Exception:
            return False
        return SEARCH.name in text and "<tool_call>" in text and all(_SLOT.format(slot) in text for slot in range(3))

    def _derive_joint(self, role: Role) -> Joint:
        """The joint for a role, read off renderings of a conversation with no, one and two replies.

        Raises `TemplateRefused` if a longer rendering does not begin with the shorter one, or if the joints differ.
        """
        rounds = [("assistant", _SLOT.format(1)), (self._role_name(role), self._wrap(role, _SLOT.format(2)))]
        again = [("assistant", _SLOT.format(3)), (self._role_name(role), self._wrap(role, _SLOT.format(4)))]
        start = [("system", "You search."), ("user", _SLOT.format(0))]
        tools = (SEARCH,)
        try:
            short, middle, long = (
                self._render(turns, tools) for turns in (start, start + rounds, start + rounds + again)
            )
        except TemplateRefused:
            raise
        except Exception as error:
            raise TemplateRefused(f"the chat template cannot render a {role} reply: {_one_line(error)}") from error
        pieces = _SLOT_PATTERN.split(long)
        if len(pieces) != 11:
            raise TemplateRefused("the chat template drops or repeats messages, so it cannot be used for episodes")
        if not (long.startswith(middle) and middle.startswith(short)):
            raise TemplateRefused("the chat template rewrites earlier turns, so episodes would not be token-exact")
        # pieces: start, slot 0, to model, slot 1, closing, slot 2, to model, slot 3, closing, slot 4, to model.
        # `inner` may end with white space that `last` lacks: some templates put a space before the model's text that is
        # not there when the model starts to write.
        closing, inner, last = pieces[4], pieces[6], pieces[10]
        if closing != pieces[8] or not inner.startswith(last) or inner[len(last) :].strip():
            raise TemplateRefused(
                "the chat template writes different text between the same kinds of turns, so replies cannot be added"
            )
        ids = self._encode_ours(closing)
        return Joint(tuple(ids), tuple(self._encode_ours(last)), self._end_of_turn(ids))

    def _end_of_turn(self, closing: Sequence[int]) -> int | None:
        """The first control token in the closing ids, or None."""
        if not self.has_template:
            return None  # a tag such as <tool_response> may be a control token, but it does not end the turn
        return next((token for token in closing if token in self._plain.control_ids), None)

    def _role_name(self, role: Role) -> str:
        return role if role != "tool" or self.speaks_tools else "user"

    def _wrap(self, role: Role, text: str) -> str:
        """The text, or a tool result in `<tool_response>` tags if the template has no tool role."""
        return wrap_tool_result(text) if role == "tool" and not self.speaks_tools else text

    def keeps_thoughts(self) -> bool:
        """True if the template keeps the `<think>` block of an earlier turn; some templates cut these blocks out."""
        thought = f"<think>{_SLOT.format(1)}</think>{_SLOT.format(2)}"
        turns = [("user", "q"), ("assistant", thought), (self._role_name("tool"), self._wrap("tool", "r"))]
        return thought in self._render(turns, (SEARCH,))


def describe_tools(tools: Sequence[ToolSchema]) -> str:
    """The tools as a paragraph for the system prompt, for templates and endpoints without tools."""
    listed = "\n".join(json.dumps(tool.as_json()["function"], ensure_ascii=False) for tool in tools)
    return f"\n\nTools you can call, one JSON object a line:\n{listed}"


def _list_tools(turns: list[dict[str, str]], tools: Sequence[ToolSchema]) -> list[dict[str, str]]:
    """The turns with the tools described at the end of the system message."""
    if not turns or turns[0]["role"] != "system":
        return turns
    return [{"role": "system", "content": turns[0]["content"] + describe_tools(tools)}, *turns[1:]]


def _fold_system(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """The turns with the system prompt at the start of the first user message, for templates without a system role."""
    if len(turns) < 2 or turns[0]["role"] != "system":
        return turns
    first = {"role": "user", "content": turns[0]["content"] + "\n\n" + turns[1]["content"]}
    return [first, *turns[2:]]


def _with_slots(message: Message, quoted: list[str]) -> str:
    """The message's text with a numbered placeholder for each quoted part, whose text is appended to `quoted`."""
    before, after = message.frame
    pieces: list[str] = [before]
    for part in message.parts:
        if isinstance(part, Quoted):
            pieces.append(_SLOT.format(len(quoted)))
            quoted.append(part.text)
        else:
            pieces.append(part)
    return "".join([*pieces, after])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
