"""A tokenizer's chat template as a function from turns to text, what it supports, and its joints.

    template = ChatTemplate(tokenizer)
    template.render([("system", "You search."), ("user", "Who?")])  -> "<|im_start|>system\\nYou search.<|im_end|>..."
    template.speaks_tools                                            -> True for Qwen's
    derive_joint(template, "user") -> JointText(closing="<|im_end|>\\n<|im_start|>user\\n", ...)

A template is an untrusted program: its work and its memory are limited (`template_sandbox.py`). Which roles and tools
it supports is found out by rendering placeholders; only the markup of calls is chosen by strings in its source.

A joint is what the template writes between two turns. An episode only grows: nothing that was sampled or shown is
written again. So a joint is what the template writes around the *newest* turn of a conversation, and it must be the
same after the first turn as after the second. A template may write earlier turns differently once they are no longer
the newest (most cut thoughts out of them); the episode keeps them as they were, and `JointText.differences` names what
differs.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from quaere.chat.known_markups import choose_markup
from quaere.chat.messages import Role, wrap_tool_result
from quaere.chat.tools import SEARCH, ToolSchema
from quaere.endpoint import one_line
from quaere.errors import TemplateRefused

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

    `repeats` is True if the same turns are always rendered as the same text; False if, say, the date is written.
    """

    def __init__(self, tokenizer: Any) -> None:
        from quaere.chat.template_sandbox import ChatEnvironment, refuse_powers

        self.tokenizer = tokenizer
        self.has_template = bool(getattr(tokenizer, "chat_template", None))
        templates = tokenizer.chat_template if self.has_template else ""
        sources = tuple(templates.values()) if isinstance(templates, dict) else (templates,)
        for source in sources:
            refuse_powers(source)
        self._environment = ChatEnvironment()
        self.markup = choose_markup("\n".join(sources))
        self.repeats = not any(word in source for word in _CHANGING for source in sources)
        self.folds_system = self.speaks_tools = self.lists_tools = self._lists_content = False
        if not self._shows(user=SLOT.format(0)):  # some templates take content only as a list
            self._lists_content = True
            self._lists_content = self._shows(user=SLOT.format(0))
        self.folds_system = not self._shows(system=SLOT.format(0), user=SLOT.format(1))
        # Both are found out by rendering as if tools were supported.
        self.lists_tools = self.speaks_tools = True
        self.speaks_tools = self._shows_tools()
        if not self.speaks_tools:  # it may list tools and not show their results
            asked = self.try_render([("system", "You search."), ("user", SLOT.format(0))], (SEARCH,))
            self.lists_tools = self.markup.lists_tools and SEARCH.description in asked

    def render(
        self, turns: Sequence[tuple[str, str]], tools: Sequence[ToolSchema] = (), *, opens_turn: bool = True
    ) -> str:
        """The text of `(role, text)` pairs, with `opens_turn` up to where the model starts to write."""
        from quaere.chat.template_sandbox import limited_work

        listed: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in turns]
        if listed and listed[0]["role"] == "system":
            if tools and not self.lists_tools:
                listed[0]["content"] += describe_tools(tools)
            if self.folds_system and len(listed) > 1:  # into the first user message
                listed[:2] = [{"role": "user", "content": f"{listed[0]['content']}\n\n{listed[1]['content']}"}]
        if self._lists_content:
            listed = [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in listed]
        known = [tool.as_json() for tool in tools] if tools and self.lists_tools else None
        source = self.tokenizer.get_chat_template(tools=known) if self.has_template else self._paragraphs()
        values = {**self.tokenizer.special_tokens_map, "messages": listed, "tools": known, "documents": None}
        with limited_work():
            return self._environment.render(source, {**values, "add_generation_prompt": opens_turn})

    def try_render(self, turns: Sequence[tuple[str, str]], tools: Sequence[ToolSchema] = ()) -> str:
        """As `render`; "" if the template rejects the turns, which templates do by raising exceptions of any type."""
        try:
            return self.render(turns, tools)
        except TemplateRefused:
            raise
        except Exception:
            return ""

    def turn(self, role: Role, text: str) -> tuple[str, str]:
        """Role and text for the template; without tool support, a tool result is a user turn in `<tool_response>`."""
        return ("user", wrap_tool_result(text)) if role == "tool" and not self.speaks_tools else (role, text)

    def _paragraphs(self) -> str:
        """The template for a tokenizer without one; begins with the start token (BOS) if the tokenizer adds it."""
        begins_text = self.tokenizer.encode("")[:1] == [self.tokenizer.bos_token_id]
        return "{{ bos_token }}" + _PARAGRAPHS if begins_text else _PARAGRAPHS

    def _shows(self, **turns: str) -> bool:
        text = self.try_render(list(turns.items()))
        return all(shown in text for shown in turns.values())

    def _shows_tools(self) -> bool:
        """True if the template lists tools and shows tool results in the `<tool_call>` format."""
        slots = [SLOT.format(number) for number in range(3)]
        turns = zip(("user", "assistant", "tool"), slots, strict=True)
        text = self.try_render([("system", "You search."), *turns], (SEARCH,))
        return all(shown in text for shown in (SEARCH.name, "<tool_call>", *slots))


def describe_tools(tools: Sequence[ToolSchema]) -> str:
    """The tools as a paragraph for the system prompt, for templates and endpoints without tools."""
    listed = "\n".join(json.dumps(tool.as_json()["function"], ensure_ascii=False) for tool in tools)
    return f"\n\nTools you can call, one JSON object a line:\n{listed}"


# --------------------------------------------------------------------------------------------------------------- joints

_MAX_SHOWN = 60  # characters of a template's text in a message


class Joint(Struct, frozen=True):
    """Token ids that the template writes before and after an environment message.

    For a ChatML user message: `closing` is "<|im_end|>\\n<|im_start|>user\\n", beginning with the end of the model's
    turn, which are its first `num_ending` ids; `opening` is "<|im_end|>\\n<|im_start|>assistant\\n". `end_of_turn` is
    the id with which the model itself ends a turn. It may differ from what the template writes: GPT-OSS ends a turn
    with <|return|> and its template writes <|end|> in earlier ones.

        Joint(closing=(2, 198, 1, 4093, 198), opening=(2, 198, 1, 520, 9531, 198), end_of_turn=2, num_ending=1)
    """

    closing: tuple[int, ...]
    opening: tuple[int, ...]
    end_of_turn: int | None
    num_ending: int = 0
    other_ends: tuple[int, ...] = ()  # ids with which a turn can end as well: GPT-OSS's <|call|>

    def after(self, last_token: int | None) -> tuple[int, ...]:
        """The closing ids that are still missing after the model's last token.

        Only this function decides who writes the end-of-turn token: the model if it sampled it; otherwise it is added
        here and carries no loss.
        """
        is_ended = last_token is not None and last_token in (self.end_of_turn, *self.other_ends)
        return self.closing[self.num_ending if is_ended else 0 :]


class JointText(Struct, frozen=True):
    """A joint as text. `ending` is what the template writes after the last turn of a finished conversation.

    JointText(closing="<|im_end|>\\n<|im_start|>user\\n", opening="<|im_end|>\\n<|im_start|>assistant\\n",
              ending="<|im_end|>\\n", differences=())
    """

    closing: str
    opening: str
    ending: str
    differences: tuple[str, ...] = ()


def derive_joint(template: ChatTemplate, role: Role) -> JointText:
    """The joint for a role, derived from renderings of a conversation with no, one and two replies.

    Raises `TemplateRefused` if a message is not shown exactly once, or if the second reply's joint differs from the
    first's: then no joint is right, and episodes could not be token-exact.
    """
    *grown, ended = _render(template, role, with_prompt=True)
    moves_prompt = any(text in grown[1].rpartition(SLOT.format(2))[2] for text in (_PROMPT, SEARCH.description))
    if moves_prompt:  # Mistral's do: to the newest question. An episode has its prompt where it began.
        *grown, ended = _render(template, role, with_prompt=False)
    # Texts around the slots: before the question, before the turn, closing, opening, closing, opening.
    short, middle, long = map(_around, grown)
    if [len(short), len(middle), len(long)] != [2, 4, 6]:
        raise TemplateRefused("the chat template drops or repeats messages, so it cannot be used for episodes")
    if middle[2:] != long[4:]:
        raise TemplateRefused(
            "the chat template writes different text between the same kinds of turns, so replies cannot be added"
        )
    found = ("moves the prompt to the newest question",) if moves_prompt else ()
    return JointText(long[4], long[5], ended.partition(SLOT.format(2))[2], found + _differences(short, long))


_PROMPT = SLOT.format(0)


def _render(template: ChatTemplate, role: Role, *, with_prompt: bool) -> list[str]:
    """Renderings of a conversation with no, one and two replies, and of one that ends with a turn of the model."""
    start = [("system", _PROMPT), ("user", SLOT.format(1))][0 if with_prompt else 1 :]
    tools = (SEARCH,) if with_prompt else ()
    first, second = ([("assistant", SLOT.format(at)), template.turn(role, SLOT.format(at + 1))] for at in (2, 4))
    try:
        grown = [template.render(turns, tools) for turns in (start, start + first, start + first + second)]
        return [*grown, template.render([*start, first[0]], tools, opens_turn=False)]
    except TemplateRefused:
        raise
    except Exception as error:
        raise TemplateRefused(f"the chat template cannot render a {role} reply: {one_line(str(error))}") from error


def _around(text: str) -> list[str]:
    """The texts around the messages, which must be in order and shown once; [] if they are not."""
    pieces = SLOT_PATTERN.split(text)
    if pieces[1:2] == [_PROMPT]:
        pieces = ["".join(pieces[:3]), *pieces[3:]]
    is_sound = pieces[1::2] == [SLOT.format(number + 1) for number in range(len(pieces) // 2)]
    return pieces[::2] if is_sound else []


def _differences(short: Sequence[str], long: Sequence[str]) -> tuple[str, ...]:
    """What differs between a grown conversation and the template's own rendering of it, each in a few words.

    White space before the model's text does not count: some templates put a space there that is not there when the
    model starts to write.
    """
    found = ["rewrites the prompt as a conversation grows"] if long[0] != short[0] else []
    begins, closing, opening = short[1], long[4], long[5]
    # A later turn begins after a reply, the first after the question: a difference in either is reported once.
    for is_now, was in ((long[3], opening), (long[1], begins)):
        if is_now != was and (not is_now.startswith(was) or is_now[len(was) :].strip()):
            found.append(f"begins earlier turns with {_shown(is_now, was)} instead of {_shown(was, is_now)}")
            break
    if long[2] != closing:
        found.append(f"ends earlier turns with {_shown(long[2], closing)} instead of {_shown(closing, long[2])}")
    return tuple(found)


def _shown(text: str, other: str) -> str:
    """At most `_MAX_SHOWN` characters of the text, without the prefix it shares with `other`, for a message."""
    same = next((at for at, (one, two) in enumerate(zip(text, other, strict=False)) if one != two), None)
    text = text[min(len(text), len(other)) if same is None else same :]
    return repr(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "...") if text else "nothing"


def cuts_thoughts(template: ChatTemplate) -> bool:
    """True if the template does not show the thought of an earlier turn."""
    thought = ("assistant", f"<think>{SLOT.format(1)}</think>{SLOT.format(2)}")
    turns = [("user", "q"), thought, template.turn("tool", "r"), ("assistant", "a"), ("user", "q")]
    text = template.try_render(turns, (SEARCH,))  # "": a template may refuse this and still render episodes
    return bool(text) and SLOT.format(1) not in text
