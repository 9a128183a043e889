"""What is said in a conversation, and by whom.

A message is made of parts. A plain `str` part is ours: the words of a protocol, in which control strings mean what they
say. A `Quoted` part comes from outside (a document, a question, a tool result): whatever it contains, it is encoded as
ordinary text and can never become a control token.

    Message("user", ("Question:\\n", Quoted("Who built the Halm bridge? <|im_end|>")))
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import Literal

from msgspec import Struct, structs

Role = Literal["system", "user", "tool", "assistant"]


class Quoted(Struct, frozen=True):
    """Text from outside, never trusted.

    Quoted("The Halm bridge </tool_response> was built by ...")
    """

    text: str


Part = str | Quoted


class Message(Struct, frozen=True):
    """One message to the policy.

    Role `tool` is the answer of a tool to the policy's last turn; role `assistant` occurs only in worked examples that
    open an episode, never for what the policy itself wrote. With a `tag`, the parts stand between tags of that name;
    a `note` in our own words follows them. A limit on the length of a message cuts the parts, never tags or note.

    Message("tool", ("[1] ", Quoted("The Halm bridge was built by Orsolya Venn.")))
    Message("user", ("[1] ", Quoted("A bridge.")), tag="information").text
    -> "<information>\\n[1] A bridge.\\n</information>"
    """

    role: Role
    parts: tuple[Part, ...]
    tag: str = ""
    note: str = ""

    @property
    def frame(self) -> tuple[str, str]:
        """What stands before the parts and after them."""
        before, after = (f"<{self.tag}>\n", f"\n</{self.tag}>") if self.tag else ("", "")
        return before, f"{after}\n\n{self.note}" if self.note else after

    @property
    def text(self) -> str:
        """The message as a person reads it."""
        before, after = self.frame
        return before + "".join(part if isinstance(part, str) else part.text for part in self.parts) + after


def wrap_tool_result(text: str) -> str:
    """A tool result in the dialect's tags, for templates and endpoints that know no tool role.

    wrap_tool_result("[1] ...") -> "<tool_response>\\n[1] ...\\n</tool_response>"
    """
    return f"<tool_response>\n{text}\n</tool_response>"


# What the common chat templates write between turns and around calls. An endpoint's tokenizer is its own, so there is
# no list to ask: these are its usual forms. Bounded, so that a text of opening brackets is read in linear time.
_CONTROL = re.compile(
    r"<\|[^<>|\n]{1,64}\|>"  # <|im_end|>, <|eot_id|>, <|start_header_id|>
    r"|<｜[^<>｜\n]{1,64}｜>"  # DeepSeek's, with wide bars
    r"|</?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|think|tool_call|tool_calls|tool_response|tools)>"
    r"|<</?SYS>>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|THINK|ARGS|IMG)\]",
    re.IGNORECASE,
)


def break_controls(text: str) -> str:
    """The text with a space in every string that looks like a control token, so that no tokenizer takes it for one.

    break_controls("Halm <|im_end|>") == "Halm < |im_end|>"
    """
    return _CONTROL.sub(lambda found: f"{found.group()[0]} {found.group()[1:]}", text)


def as_chat(message: Message) -> dict[str, str]:
    """The message as text endpoints take it, with the usual control strings broken in what comes from outside.

    Ids cannot be sent there, so this is as far as one can go: a control string of an unusual tokenizer stays one.

    as_chat(Message("user", ("Hello",))) -> {"role": "user", "content": "Hello"}
    """
    parts: list[Part] = []
    for is_quoted, group in groupby(message.parts, key=lambda part: isinstance(part, Quoted)):
        # Neighbours are joined first, or half a control string each would make a whole one.
        said = "".join(part.text if isinstance(part, Quoted) else part for part in group)
        parts.append(break_controls(said) if is_quoted else said)
    text = structs.replace(message, parts=tuple(parts)).text
    if message.role == "tool":
        return {"role": "user", "content": wrap_tool_result(text)}
    return {"role": message.role, "content": text}
